"""Headers from columns are those that are made one by one, and read back as the same properties."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from harebell.errors import LocalProtocolError
from harebell.protocol import v010
from harebell.protocol.conversion.header_columns import encode_header_columns
from harebell.protocol.conversion.properties import from_v091, header_of, properties_of
from harebell.protocol.v010 import encode_content
from harebell.protocol.v091 import FieldValue, Properties
from harebell.protocol.v091.typed_values import FarSeconds, Float32, Int8, Int64, LongString, UInt32

UUIDS = ["6b8f2f1e-3f3c-4a36-9a0b-0a6b8a3f8d11", "00000000-0000-0000-0000-000000000000"]
TEXTS = [
    "",
    "1",
    "2",
    "10",
    "übergröße",
    "x" * 255,
    "6B8F2F1E-3F3C-4A36-9A0B-0A6B8A3F8D11",
    "no-uuid-but-as-long-as-one-is-------",
]


def content(header: bytes) -> v010.Content:
    return v010.Content(0, b"", encode_content(0, header, b"body", 65_535), 4)


def read_back(header: bytes) -> bytes:
    """The properties as 0-9-1 has them. A header that was a message-id leaves an empty table."""
    found = properties_of(content(header))[0]
    found.headers = found.headers or None
    return found.encode()


def one(exchange: str, key: str, properties: Properties, mandatory: bool) -> bytes:
    delivery, message = from_v091(exchange, key, properties)
    delivery.discard_unroutable = not mandatory
    return header_of(delivery, message)


@pytest.mark.parametrize("mandatory", [False, True])
def test_what_all_share_is_one_header(mandatory: bool) -> None:
    constants: dict[str, FieldValue] = {"delivery_mode": 2, "content_type": "text/plain", "headers": {"a": 1}}
    found = encode_header_columns(3, "x", "key", {}, constants, mandatory=mandatory)
    assert found == [one("x", "key", Properties(**constants), mandatory)] * 3  # type: ignore[arg-type]
    assert found[0] is found[2]
    assert encode_header_columns(0, "x", "key", {}, constants) == []


@pytest.mark.parametrize(
    "constants", [{}, {"headers": {"a": [1, None]}, "type": "t", "expiration": "0", "timestamp": 0}]
)
def test_message_ids(constants: dict[str, Any]) -> None:
    ids: list[FieldValue] = [*UUIDS, *TEXTS, None]
    found = encode_header_columns(len(ids), "x", "key", {"message_id": ids}, constants)
    for header, message_id in zip(found, ids, strict=True):
        wanted = Properties(message_id=message_id, **constants)  # type: ignore[arg-type]
        assert read_back(header) == wanted.encode()
        native = content(header).message_properties.message_id
        assert native == (UUID(str(message_id)) if message_id in UUIDS else None)
        assert content(header).delivery_properties.routing_key == "key"


@pytest.mark.parametrize("others", [[], UUIDS, [None]])
def test_message_ids_of_one_length_or_of_several(others: list[FieldValue]) -> None:
    ids: list[FieldValue] = ["1", "10", "übergröße", *others]
    found = encode_header_columns(len(ids), "x", "key", {"message_id": ids}, {})
    assert found == [encode_header_columns(1, "x", "key", {"message_id": [each]}, {})[0] for each in ids]


def test_columns_that_differ() -> None:
    table: FieldValue = {"n": 1}
    columns: dict[str, list[FieldValue]] = {
        "priority": [1, 2, 1, None],
        "headers": [table, None, table, {"n": 2}],
        "message_id": ["1", "2", "3", None],
    }
    exchanges, keys = ["a", "b", "a", "a"], ["k", "k", "k", "l"]
    found = encode_header_columns(4, exchanges, keys, columns, {"app_id": "app"}, mandatory=True)
    for place, header in enumerate(found):
        wanted = Properties(app_id="app", **{name: values[place] for name, values in columns.items()})  # type: ignore[arg-type]
        assert read_back(header) == wanted.encode()
        delivery = content(header).delivery_properties
        assert (delivery.exchange, delivery.routing_key) == (exchanges[place], keys[place])
        assert not delivery.discard_unroutable
    without = {name: values for name, values in columns.items() if name != "message_id"}
    assert len(set(encode_header_columns(4, exchanges, "k", without, {}))) == 3


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"message_id": ["x" * 256]}, "256 bytes"),
        ({"message_id": [5]}, "message_id is int"),
        ({"priority": [256]}, "priority"),
        ({"priority": [1, 2]}, "column priority has 2 values"),
        *(
            ({"expiration": [text]}, "expiration is .* has to be a whole number of milliseconds")
            for text in ("", " 300", "300 ", "abc", "-1", "+1", "05", "1_000", "1.5", "٣")
        ),
        *(
            ({"expiration": [text]}, "315360000000 at most")
            for text in ("315360000001", "18446744073709551616", "9" * 5000)
        ),
    ],
)
def test_what_does_not_fit(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        encode_header_columns(1, "x", "key", columns, {})


KEPT: list[FieldValue] = [
    None, True, 0, -1, (1 << 63) - 1, -(1 << 63), 1.5, "", "é" * 32_767, b"\0" * 70_000, Decimal("-1.50"),
    datetime(2026, 1, 5, tzinfo=UTC), FarSeconds((1 << 64) - 1), Int8(1), UInt32(1), Int64(1), Float32(0.5),
]  # fmt: skip
NOT_KEPT: list[tuple[FieldValue, str]] = [
    ("é" * 32_768, "a text of 65,536 bytes"),
    ("\udcff", "not UTF-8"),
    (LongString(b"\xff"), "not UTF-8"),
    (1 << 63, "does not fit 64 bits"),
    (-(1 << 63) - 1, "does not fit 64 bits"),
    (1 << 64, "does not fit 64 bits"),
]
WITHIN: list[Callable[[Any], Any]] = [
    lambda value: value,
    lambda value: [1, value],
    lambda value: {"b": [{"c": value}]},
]


@pytest.mark.parametrize("within", WITHIN)
def test_headers_are_kept_with_their_types_or_refused(within: Callable[[Any], Any]) -> None:
    for value in KEPT:
        table = {"a": within(value)}
        (header,) = encode_header_columns(1, "x", "key", {"headers": [table]}, {})
        assert read_back(header) == Properties(headers=table).encode()
        assert encode_header_columns(1, "x", "key", {}, {"headers": table}) == [header]
    for value, said in NOT_KEPT:
        with pytest.raises(LocalProtocolError, match=f"headers: 'a' has .*{said}"):
            encode_header_columns(1, "x", "key", {"headers": [{"a": within(value)}]}, {})
        with pytest.raises(LocalProtocolError, match=f"headers: 'a' has .*{said}"):
            encode_header_columns(1, "x", "key", {}, {"headers": {"a": within(value)}})


def test_headers_that_would_be_read_back_as_properties() -> None:
    for name, known in (("x-jms-type", "type"), ("x-amqp-0-9-1.message-id", "message_id")):
        with pytest.raises(LocalProtocolError, match=f"is read back as the property {known}"):
            encode_header_columns(1, "x", "key", {"headers": [{name: "text"}]}, {})


def test_tables_that_are_nested_too_deep() -> None:
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(LocalProtocolError, match="nested more than"):
        encode_header_columns(1, "x", "key", {"headers": [{"a": deep}]}, {})


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=60), st.uuids().map(str)),
            st.one_of(st.none(), st.integers(0, 255)),
            st.sampled_from(["a", "b"]),
        ),
        max_size=8,
    )
)
def test_any_columns(rows: list[tuple[str | None, int | None, str]]) -> None:
    ids, priorities, keys = ([row[at] for row in rows] for at in range(3))
    found = encode_header_columns(len(rows), "x", keys, {"message_id": ids, "priority": priorities}, {})  # type: ignore[arg-type]
    for header, (message_id, priority, key) in zip(found, rows, strict=True):
        assert read_back(header) == Properties(message_id=message_id, priority=priority).encode()
        assert content(header).delivery_properties.routing_key == key
