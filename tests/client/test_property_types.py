"""Properties of a wrong type are refused where the message is made, in words: each property with each wrong value."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest

from harebell import Message, Properties, errors
from harebell.client.messages import encoded
from harebell.client.property_types import TEXTS, misfit
from harebell.protocol.v091.typed_values import Int16, Int64L

NAIVE: Final = datetime(2026, 1, 1)

WRONG: Final[dict[str, list[tuple[object, str]]]] = {
    **{
        name: [
            (5, rf"{name} is 5 \(int\): .*(text|name)"),
            (b"x", rf"{name} is b'x' \(bytes\)"),
            (["x"], rf"{name} is \['x'\] \(list\)"),
            (True, rf"{name} is True \(bool\)"),
        ]
        for name in TEXTS
    },
    "delivery_mode": [
        ("persistent", r"delivery_mode is 'persistent' \(str\): 1 \(transient\) or 2 \(persistent\) is needed"),
        (3, "delivery_mode is 3"), (0, "delivery_mode is 0"), (True, "delivery_mode is True"), (2.0, "is 2.0"),
    ],
    "priority": [
        ("5", r"priority is '5' \(str\): a whole number from 0 to 255 is needed"),
        (256, "priority is 256"), (-1, "priority is -1"), (True, "priority is True"), (1.5, "priority is 1.5"),
    ],
    "timestamp": [
        ("now", r"timestamp is 'now' \(str\): a datetime with a time zone, or whole seconds"),
        (1.5, "timestamp is 1.5"), (NAIVE, "has no time zone"), (-1, "outside of 0"), (True, "timestamp is True"),
    ],
    "headers": [
        ([("a", 1)], r"headers is \[\('a', 1\)\] \(list\): a dictionary by name is needed"),
        ("text", "headers is 'text'"),
        ({1: "a"}, r"the name of a header is 1 \(int\): text is needed"),
        ({"a": {1}}, r"header 'a': set \{1\} has no AMQP field type"),
        ({"deep": {"a": [object]}}, "header 'deep': .* has no AMQP field type"),
        ({"deep": {1: "a"}}, "header 'deep' does not fit the wire"),
        ({"at": NAIVE}, "header 'at': .* has no time zone"),
    ],
}  # fmt: skip
UNFIT: Final[list[tuple[str, object, str]]] = [
    *((name, "x" * 256, f"{name} is 256 bytes long") for name in TEXTS),
    *((name, "\ud800", f"{name} .* has no UTF-8 form") for name in TEXTS),
    ("headers", {"n" * 256: 1}, "table key is 256 bytes long"),
]  # of the right type: seen where they are written, since a look at each text would cost every message
CELLS: Final = [(name, value, text) for name, values in WRONG.items() for value, text in values]
RIGHT: Final[list[tuple[str, Any]]] = [
    *((name, value) for name in TEXTS for value in ("", "ü" * 127, type("Text", (str,), {})("of a subclass"))),
    ("delivery_mode", 1), ("delivery_mode", 2), ("priority", 0), ("priority", 255), ("timestamp", 0),
    ("timestamp", datetime(2026, 1, 1, tzinfo=UTC)), ("headers", {}),
    ("headers", {"a": 1, "b": None, "c": [1, {"d": 2.5}], "e": Decimal("1.5"), "f": Int16(7), "g": b"x", "h": True}),
    ("headers", {"big": 1 << 62, "typed": Int64L(3)}),
]  # fmt: skip


def test_every_property_is_in_the_table() -> None:
    assert set(WRONG) == set(Properties.__slots__) - {"reserved"}


@pytest.mark.parametrize("name, value, text", CELLS)
def test_what_does_not_fit_is_refused_at_once(name: str, value: object, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        Message(b"", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name, value, text", CELLS)
def test_what_is_set_later_is_refused_when_it_is_published(name: str, value: object, text: str) -> None:
    """Nothing of it gets to the wire, and the words are the same where a type is wrong."""
    message = Message(b"", properties=Properties(**{name: value}))  # type: ignore[arg-type]
    assert misfit(message.properties)
    if name == "delivery_mode" and value in (0, 3, 2.0, True):
        return  # an octet holds them: what they mean is the broker's affair
    if value in (True, 1.5) or (name == "priority" and value is True):
        return  # Python takes them for numbers that fit
    with pytest.raises(errors.LocalProtocolError):
        encoded(message)


@pytest.mark.parametrize("name, value, text", UNFIT)
def test_a_value_that_has_no_form_on_the_wire_is_refused_when_it_is_published(
    name: str, value: object, text: str
) -> None:
    message = Message(b"", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(errors.LocalProtocolError, match=text):
        encoded(message)


@pytest.mark.parametrize("name, value", RIGHT)
def test_what_fits_is_taken_as_it_is(name: str, value: object) -> None:
    message = Message(b"body", **{name: value})  # type: ignore[arg-type]
    assert message.properties == Properties(**{name: value})  # type: ignore[arg-type]
    assert misfit(message.properties) is None
    assert encoded(message) == (Properties(**{name: value}).encode(), b"body")  # type: ignore[arg-type]


def test_properties_are_properties() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"properties is \{'priority': 1\}"):
        Message(b"", properties={"priority": 1})  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="not both"):
        Message(b"", properties=Properties(priority=1), priority=2)
    made = Message(b"", properties=Properties(reserved="cluster"))
    assert made.properties.reserved == "cluster"
    assert set(Properties.__slots__) == {
        name for name in Properties.__slots__ if hasattr(Message(b"").properties, name)
    }
