"""Expirations: what is allowed, and RabbitMQ's texts for the others."""

from __future__ import annotations

import pytest

from harebell.broker.expiration import milliseconds_of
from harebell.defaults import MAX_TIME
from harebell.errors import PreconditionFailed


@pytest.mark.parametrize(
    "text, number",
    [("0", 0), ("60000", 60_000), ("+5", 5), ("-0", 0), ("007", 7), (str(MAX_TIME), MAX_TIME)],
)
def test_allowed(text: str, number: int) -> None:
    assert milliseconds_of(text) == number


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "no_integer"),
        ("soon", "no_integer"),
        ("-", "no_integer"),
        ("٣", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("5 s", '{leftover_string," s"}'),
        ('5"\\', '{leftover_string,"\\"\\\\"}'),
        ("1.5", '{leftover_string,".5"}'),
        (str(MAX_TIME + 1), f"{{value_too_large,{MAX_TIME + 1}}}"),
        ("9" * 40, f"{{value_too_large,{'9' * 40}}}"),
    ],
)
def test_refused(text: str, problem: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        milliseconds_of(text)
    assert str(refused.value) == f"406 PRECONDITION_FAILED - invalid expiration '{text}': {problem}"
