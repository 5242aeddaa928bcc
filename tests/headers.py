"""Header tables as bytes: a table with every type of field, and the bytes of each entry of a table."""

from __future__ import annotations

from typing import Final

from harebell.protocol.v091.fields import skip_value
from tests.protocol.v091.samples import s

# Every type, with the bytes that other clients write.
EVERY_TYPE: Final = {
    name: letter + raw
    for name, letter, raw in [
        ("bool", b"t", b"\1"),
        ("int8", b"b", b"\xff"),
        ("uint8", b"B", b"\xff"),
        ("int16", b"s", b"\0\5"),
        ("uint16", b"u", b"\0\5"),
        ("int32", b"I", b"\0\0\0\5"),
        ("uint32", b"i", b"\0\0\0\5"),
        ("int64", b"l", b"\0\0\0\0\0\0\0\5"),
        ("int64L", b"L", b"\0\0\0\0\0\0\0\5"),
        ("wide", b"l", b"\0\0\1\0\0\0\0\5"),
        ("float", b"f", b"\x3f\0\0\0"),
        ("double", b"d", b"\x3f\xe0\0\0\0\0\0\0"),
        ("decimal", b"D", b"\2\0\0\1\x3a"),
        ("text", b"S", b"\0\0\0\1a"),
        ("octets", b"S", b"\0\0\0\1\xff"),
        ("binary", b"x", b"\0\0\0\1a"),
        ("time", b"T", b"\0\0\0\0\x50\xe2\xd9\x40"),
        ("far", b"T", b"\0\0\1\x3b\xf6\0\0\0"),
        ("void", b"V", b""),
        ("array", b"A", b"\0\0\0\x0cl\0\0\0\0\0\0\0\1s\0\2"),
        ("table", b"F", b"\0\0\0\7\1af\x3f\0\0\0"),
    ]
}


def raw_table(entries: dict[str, bytes]) -> bytes:
    raw = b"".join(s(name) + value for name, value in entries.items())
    return len(raw).to_bytes(4, "big") + raw


def entries_of(table: bytes) -> dict[str, bytes]:
    """The encoded values of an encoded table, by name."""
    found, at = dict[str, bytes](), 4  # behind the length
    while at < len(table):
        name = table[at + 1 : at + 1 + table[at]].decode("utf-8", "surrogateescape")
        start = at + 1 + table[at]
        at = skip_value(table, start)
        found[name] = table[start:at]
    return found
