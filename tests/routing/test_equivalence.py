from __future__ import annotations

import pytest

from harebell.errors import PreconditionFailed
from harebell.routing.equivalence import check_arguments, check_property

QUEUE = "queue 'q' in vhost '/'"


def test_equal_properties_pass() -> None:
    check_property(QUEUE, "durable", True, True)


def test_a_property_that_differs() -> None:
    with pytest.raises(PreconditionFailed) as refused:
        check_property(QUEUE, "durable", False, True)
    assert refused.value.detail == f"inequivalent arg 'durable' for {QUEUE}: received 'false' but current is 'true'"


@pytest.mark.parametrize(
    "received, current",
    [
        ({}, {}),
        ({"x-ttl": 1}, {"x-ttl": 1}),
        ({"x-foo": 1}, {"x-foo": 2}),  # not compared
        ({"x-ttl": 2**40}, {"x-ttl": 2**40}),
    ],
)
def test_equal_arguments_pass(received: dict[str, object], current: dict[str, object]) -> None:
    check_arguments(QUEUE, received, current, ["x-ttl"])


@pytest.mark.parametrize(
    "received, current, text",
    [
        ({"x-ttl": 2000}, {"x-ttl": 1000}, "received '2000' but current is '1000'"),
        ({"x-ttl": "1"}, {"x-ttl": 1}, "received '1' but current is '1'"),
        ({}, {"x-ttl": 1000}, "received none but current is the value '1000' of type 'signedint'"),
        ({"x-ttl": 5}, {}, "received the value '5' of type 'signedint' but current is none"),
        ({"x-ttl": "zz"}, {}, "received the value 'zz' of type 'longstr' but current is none"),
    ],
)
def test_arguments_that_differ(received: dict[str, object], current: dict[str, object], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        check_arguments(QUEUE, received, current, ["x-ttl"])
    assert refused.value.detail == f"inequivalent arg 'x-ttl' for {QUEUE}: {text}"
