"""Hypothesis strategies for what travels in 0-10: values, controls, commands, structs, sets of command ids."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import TypeVar

from hypothesis import strategies as st

from harebell.protocol.v010 import structs as s
from harebell.protocol.v010.commands import COMMANDS
from harebell.protocol.v010.compounds import Command, Compound, Control, Struct
from harebell.protocol.v010.controls import CONTROLS
from harebell.protocol.v010.typed_values import (
    Array,
    Bit,
    Char,
    CharUtf32,
    Decimal64,
    FixedBinary,
    Float32,
    Int8,
    Int16,
    Int32,
    Latin8,
    Latin16,
    Str8,
    StructValue,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    UnknownValue,
    Utf16Str8,
    Utf16Str16,
    Vbin8,
    Vbin32,
)
from tests.protocol.v091.strategies import cuts, short_strings, texts

__all__ = ["commands", "compounds", "controls", "cuts", "field_values", "maps", "of_compound", "ranges", "structs"]

C = TypeVar("C", bound=Compound)

binaries = st.binary(max_size=40)
times = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59), timezones=st.just(UTC)).map(
    lambda value: value.replace(microsecond=0)
)
latin = st.text(st.characters(max_codepoint=255), max_size=40)
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=6)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


struct_values = st.builds(StructValue, unsigned(16), binaries)
# One strategy for each type, so that an array can have values of one.
KINDS: list[st.SearchStrategy[object]] = [
    st.none(),
    st.booleans(),
    signed(64),
    st.floats(allow_nan=False),
    texts,
    binaries,
    times,
    st.uuids(),
    decimals.filter(lambda value: -(1 << 31) <= int(value.scaleb(6)) < 1 << 31),
    decimals.map(Decimal64),
    signed(8).map(Int8),
    unsigned(8).map(UInt8),
    unsigned(8).map(Char),
    signed(16).map(Int16),
    unsigned(16).map(UInt16),
    signed(32).map(Int32),
    unsigned(32).map(UInt32),
    unsigned(63).map(UInt64) | st.integers(1 << 63, (1 << 64) - 1),
    st.floats(width=32, allow_nan=False).map(Float32),
    unsigned(32).map(CharUtf32),
    short_strings.map(Str8),
    latin.map(Latin8),
    latin.map(Latin16),
    texts.map(lambda text: Utf16Str8(text[:60])),
    texts.map(Utf16Str16),
    binaries.map(Vbin8),
    binaries.map(Vbin32),
    st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 5, 9]).map(lambda size: FixedBinary(bytes(range(size)))),
    struct_values,
    st.just(Bit()),
    st.integers(1 << 50, (1 << 64) - 1),
    unsigned(8).map(lambda octet: UnknownValue(0x03, bytes([octet]))),
    binaries.map(lambda raw: UnknownValue(0x8F, bytes([len(raw)]) + raw)),
]
arrays = st.sampled_from(KINDS[:8] + KINDS[10:17]).flatmap(lambda kind: st.lists(kind, min_size=1, max_size=4)).map(
    Array
)  # fmt: skip
field_values = st.recursive(
    st.one_of(*KINDS) | arrays.filter(lambda array: len({type(each) for each in array}) == 1),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_strings, inner, max_size=4),
    max_leaves=12,
)
maps = st.dictionaries(short_strings, field_values, max_size=5)
ranges = st.lists(st.tuples(unsigned(32), unsigned(32)), max_size=5).map(tuple)
str16_arrays = st.lists(texts, max_size=4)

FIELDS: dict[str, st.SearchStrategy[object]] = {
    "bit": st.booleans(),
    "uint8": unsigned(8),
    "uint16": unsigned(16),
    "uint32": unsigned(32),
    "uint64": unsigned(64),
    "sequence-no": unsigned(32),
    "str8": short_strings,
    "str16": texts,
    "vbin8": binaries,
    "vbin16": binaries,
    "vbin32": binaries,
    "uuid": st.uuids(),
    "datetime": times | st.integers(1 << 50, (1 << 64) - 1),
    "map": maps,
    "array": str16_arrays,
    "str16-array": str16_arrays,
    "sequence-set": ranges,
    "struct32": struct_values,
}


def of_compound(cls: type[C], *, full: bool = False) -> st.SearchStrategy[C]:
    """Some of its optional fields, or all of them."""
    parameters = inspect.signature(cls).parameters
    given: dict[str, st.SearchStrategy[object]] = {"sync": st.booleans()} if issubclass(cls, Command) else {}
    for name, kind in cls.LAYOUT:
        field: st.SearchStrategy[object] = of_compound(INNER[kind]) if kind in INNER else FIELDS[kind]
        optional = parameters[name].default is None and kind not in INNER
        given[name] = st.one_of(st.none(), field) if optional and not full else field
    return st.builds(cls, **given)


INNER: dict[str, type[Struct]] = {"message.reply-to": s.ReplyTo, "dtx.xid": s.Xid}


def _any_of(classes: list[type[C]]) -> st.SearchStrategy[C]:
    return st.sampled_from(sorted(classes, key=lambda cls: cls.NAME)).flatmap(of_compound)


controls: st.SearchStrategy[Control] = _any_of(list(CONTROLS.values()))
commands: st.SearchStrategy[Command] = _any_of(list(COMMANDS.values()))
structs: st.SearchStrategy[Struct] = _any_of([*s.STRUCTS.values(), s.ReplyTo])
compounds: st.SearchStrategy[Compound] = st.one_of(controls, commands, structs)
