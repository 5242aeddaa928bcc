"""Typed bodies: what JSON takes, gives and refuses."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

import pytest

import harebell
from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.codec import message_of
from harebell.protocol.v091 import Content, Properties, encode_content


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Order:
    id: int
    lines: list[Line]
    price: float
    at: datetime
    colour: Colour
    note: str | None = None
    pair: tuple[int, str] = (0, "")
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    kind: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("a price is not negative")


def delivery(body: bytes, content_type: str | None = None) -> Delivery:
    frames = encode_content(1, Properties(content_type=content_type).encode(), body, 4096)
    channel: Any = ChannelCore
    return Delivery(Content(1, b"", frames, len(body)), channel, "", 1, False, "", "")


ORDER = Order(7, [Line("tea", 2), Line("süß")], 3.5, datetime(2026, 1, 2, tzinfo=UTC), Colour.RED, pair=(1, "x"))


def test_there_and_back() -> None:
    codec = harebell.JSON(Order)
    body, content_type = codec.encode(ORDER)
    assert content_type == "application/json"
    assert codec.decode(delivery(body, content_type)) == ORDER
    plain = harebell.JSON()
    assert plain.decode(delivery(b'{"a": [1, null]}')) == {"a": [1, None]}
    assert harebell.JSON(list[Line]).decode(delivery(b'[{"item": "a"}]', "application/x+json; charset=utf-8")) == [
        Line("a")
    ]
    assert harebell.JSON(float).decode(delivery(b"1")) == 1.0
    assert harebell.JSON(dict[str, list[int]]).decode(delivery(b'{"a": [1]}')) == {"a": [1]}
    assert harebell.JSON(type(None)).decode(delivery(b"null")) is None


@pytest.mark.parametrize(
    "wanted, body, said",
    [
        (object, b"\xff", "no JSON"),
        (object, b"{", "no JSON"),
        (object, b"[" * 100_000, "no JSON"),
        (int, b"true", "the body is True, and int was expected"),
        (int, b'"1"', "int was expected"),
        (Line, b"[]", "Line was expected"),
        (Line, b'{"count": 1}', "makes no Line"),
        (Line, b'{"item": "a", "colour": 1}', "'colour', which Line has not"),
        (list[Line], b'[{"item": 1}]', r"the body\[0\].item is 1, and str was expected"),
        (tuple[int, str], b"[1]", "tuple"),
        (dict[str, int], b'{"a": null}', r"\['a'\] is None"),
        (int | None, b'"x"', "int | NoneType"),
        (Colour, b'"blue"', "Colour"),
        (datetime, b'"yesterday"', "datetime"),
        (datetime, b"5", "datetime"),
        (Literal["a"], b'"c"', "'c'"),
        (type(None), b"0", "NoneType"),
        (str, b'["' + b"x" * 100 + b'"]', r"\.\.\."),
    ],
)
def test_what_does_not_fit_is_refused(wanted: Any, body: bytes, said: str) -> None:
    with pytest.raises(errors.UndecodableBody, match=said):
        harebell.JSON(wanted).decode(delivery(body))


def test_a_check_of_the_dataclass_itself_counts() -> None:
    body, _ = harebell.JSON(Order).encode(ORDER)
    with pytest.raises(errors.UndecodableBody, match="a price is not negative"):
        harebell.JSON(Order).decode(delivery(body.replace(b"3.5", b"-3.5")))


def test_types_that_cannot_be_found_are_refused_at_once() -> None:
    @dataclasses.dataclass
    class Local:
        other: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(errors.InvalidArgument, match="define them at module level"):
        harebell.JSON(Local)


def test_another_content_type_is_refused() -> None:
    with pytest.raises(errors.UndecodableBody, match="image/png"):
        harebell.JSON().decode(delivery(b"1", "image/png"))


@pytest.mark.parametrize("value", [b"bytes", float("nan"), {1j}, object()])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="cannot be written as JSON"):
        harebell.JSON().encode(value)


def test_a_message_is_taken_as_it_is() -> None:
    message = Message(b"x")
    assert message_of(message, harebell.JSON()) is message
    assert message_of(b"x", None) == b"x"
    encoded = message_of({"a": 1}, harebell.JSON())
    assert isinstance(encoded, Message)
    assert (encoded.body, encoded.properties.content_type) == (b'{"a":1}', "application/json")
