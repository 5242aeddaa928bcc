"""Hypothesis strategies for what travels in 0-9-1: tables, properties, methods, contents, cuts of a byte string."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

from hypothesis import strategies as st

from harebell.protocol.v091 import Method, Properties, methods as m
from harebell.protocol.v091.typed_values import (
    Float32,
    Int8,
    Int16,
    Int64,
    Int64L,
    LongString,
    UInt8,
    UInt16,
    UInt32,
)


def _not_utf8(raw: bytes) -> bool:
    return raw.decode(errors="ignore").encode() != raw


octets = st.integers(0, 255)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
short_strings = texts.filter(lambda text: len(text.encode()) <= 255)
timestamps = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59), timezones=st.just(UTC)).map(
    lambda value: value.replace(microsecond=0)
)
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-20_000, max_value=20_000, places=5)
typed_values = (
    st.integers(-(1 << 7), (1 << 7) - 1).map(Int8)
    | octets.map(UInt8)
    | st.integers(-(1 << 15), (1 << 15) - 1).map(Int16)
    | st.integers(0, (1 << 16) - 1).map(UInt16)
    | st.integers(0, (1 << 32) - 1).map(UInt32)
    | st.integers(-(1 << 31), (1 << 31) - 1).map(Int64)
    | st.integers(-(1 << 63), (1 << 63) - 1).map(Int64L)
    | st.floats(width=32, allow_nan=False).map(Float32)
    | st.binary(min_size=1, max_size=5).filter(_not_utf8).map(LongString)
)
field_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | decimals
    | texts
    | st.binary(max_size=60)
    | typed_values
    | timestamps,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_strings, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(short_strings, field_values, max_size=5)
properties = st.builds(
    Properties,
    content_type=st.none() | short_strings,
    content_encoding=st.none() | short_strings,
    headers=st.none() | tables,
    delivery_mode=st.none() | octets,
    priority=st.none() | octets,
    correlation_id=st.none() | short_strings,
    reply_to=st.none() | short_strings,
    expiration=st.none() | short_strings,
    message_id=st.none() | short_strings,
    timestamp=st.none() | timestamps | st.integers(1 << 50, (1 << 64) - 1),
    type=st.none() | short_strings,
    user_id=st.none() | short_strings,
    app_id=st.none() | short_strings,
    reserved=st.none() | short_strings,
)

_WIDE = {"frame_max": 32, "prefetch_size": 32, "message_count": 32, "consumer_count": 32, "delivery_tag": 64}
_OCTET = {"version_major", "version_minor"}


def _of_field(name: str, annotation: str) -> st.SearchStrategy[object]:
    if annotation == "int":
        return octets if name in _OCTET else st.integers(0, (1 << _WIDE.get(name, 16)) - 1)
    return {
        "bool": st.booleans(),
        "str": short_strings,
        "bytes": st.binary(max_size=60),
        "TableLike | None": tables,
    }[annotation]


def of_method(cls: type[Method]) -> st.SearchStrategy[Method]:
    parameters = inspect.signature(cls).parameters.values()
    return st.builds(cls, **{p.name: _of_field(p.name, str(p.annotation)) for p in parameters})


methods = st.sampled_from(sorted(m.METHODS.values(), key=lambda cls: cls.NAME)).flatmap(of_method)


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The data in pieces, some of them empty."""
    at = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:stop] for start, stop in zip([0, *at], [*at, len(data)], strict=True)]
