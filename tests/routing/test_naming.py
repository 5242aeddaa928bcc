from __future__ import annotations

from collections.abc import Callable

import pytest

from harebell.errors import AccessRefused, PreconditionFailed
from harebell.routing.naming import (
    Naming,
    check_exchange_name,
    check_exchange_type,
    check_new_name,
    check_queue_name,
    check_topic_key,
    generated_queue_name,
    without_line_ends,
)

ALL: list[Naming] = ["rabbitmq", "draft", "strict"]


@pytest.mark.parametrize(
    "name, refused_by",
    [
        ("orders_2", []),
        ("x" * 127, []),
        ("x" * 128, ["draft", "strict"]),
        ("", ["draft", "strict"]),
        ("orders.eu", ["strict"]),
        ("a b", ["strict"]),
        ("é", ["strict"]),
        ("amq.direct", []),
        ("x" * 256, ["rabbitmq", "draft", "strict"]),
        ("é" * 128, ["rabbitmq", "draft", "strict"]),
    ],
)
def test_names_of_exchanges(name: str, refused_by: list[Naming]) -> None:
    for naming in ALL:
        if naming in refused_by:
            with pytest.raises(PreconditionFailed, match="- exchange name '"):
                check_exchange_name(name, naming)
        else:
            check_exchange_name(name, naming)


@pytest.mark.parametrize(
    "name, refused_by",
    [
        ("q", []),
        ("_q é/☃", []),
        ("0", []),
        ("x" * 255, []),
        ("", ["draft", "strict"]),
        ("-q", ["draft", "strict"]),
        ("éq", ["draft", "strict"]),
        ("x" * 256, ["rabbitmq", "draft", "strict"]),
    ],
)
def test_names_of_queues(name: str, refused_by: list[Naming]) -> None:
    for naming in ALL:
        if naming in refused_by:
            with pytest.raises(PreconditionFailed, match="- queue name '"):
                check_queue_name(name, naming)
        else:
            check_queue_name(name, naming)


def test_texts() -> None:
    checks: list[tuple[Callable[[], object], str]] = [
        (lambda: check_exchange_name("", "draft"), "exchange name '' has 0 characters, and may have 1 to 127"),
        (lambda: check_exchange_name("a-b", "strict"), "exchange name 'a-b' may have letters, digits and '_' only"),
        (lambda: check_queue_name("-", "draft"), "queue name '-' must begin with a letter, a digit or '_'"),
        (lambda: check_queue_name("x" * 256), f"queue name '{'x' * 256}' has 256 bytes, and may have 255"),
        (
            lambda: check_exchange_type("mine", "strict"),
            "exchange type 'mine' is not the standard's and must begin with 'x-'",
        ),
        (
            lambda: check_topic_key("a.b-c", "strict"),
            "routing key 'a.b-c' has the word 'b-c': letters and digits only",
        ),
        (
            lambda: check_topic_key("a.*b", "strict", binding=True),
            "binding key 'a.*b' has the word '*b': letters and digits only",
        ),
    ]
    for check, text in checks:
        with pytest.raises(PreconditionFailed) as caught:
            check()
        assert caught.value.detail == text


def test_types_and_keys_that_pass() -> None:
    for kind in ("direct", "fanout", "topic", "headers", "system", "x-random"):
        check_exchange_type(kind, "strict")
    check_exchange_type("mine")
    for key in ("", "a", "a..b1", "."):
        check_topic_key(key, "strict")
    check_topic_key("*.a.#", "strict", binding=True)
    check_topic_key("a-b")
    with pytest.raises(PreconditionFailed):
        check_topic_key("*", "strict")


def test_names_of_the_servers() -> None:
    check_new_name("queue", "amq")
    with pytest.raises(AccessRefused) as caught:
        check_new_name("queue", "amq.foo")
    assert caught.value.detail == "queue name 'amq.foo' contains reserved prefix 'amq.*'"
    assert generated_queue_name(bytes(range(16))) == "amq.gen-AAECAwQFBgcICQoLDA0ODw"
    assert generated_queue_name(b"\xff" * 16) == "amq.gen-_____________________w"
    assert without_line_ends("a\r\nb\n") == "ab"


def test_a_servers_name_with_a_prefix_of_the_clients() -> None:
    token = b"\xff" * 16
    for prefix in ("shop", "", "é" * 32, "amq.gen"):
        assert generated_queue_name(token, {"x-name-prefix": prefix}) == f"{prefix}-_____________________w"
    with pytest.raises(PreconditionFailed) as caught:
        generated_queue_name(token, {"x-name-prefix": "é" * 33})
    assert caught.value.detail == f"x-name-prefix '{'é' * 33}' has 66 bytes, and may have 64"
    with pytest.raises(PreconditionFailed):
        generated_queue_name(token, {"x-name-prefix": 5})
    with pytest.raises(AccessRefused):
        generated_queue_name(token, {"x-name-prefix": "amq.other"})
