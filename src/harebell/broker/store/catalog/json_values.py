"""Values of field tables and definitions as JSON, without loss.

A value that has no JSON type is an object with the single key "!": bytes, decimals, timestamps, tuples, tables with
such a key themselves, and what remembers its type on the wire (`protocol.v091.typed_values`). Text may contain
surrogate escapes (names that are not UTF-8): it is written in ASCII.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import datetime
from decimal import Decimal

from harebell.protocol.v091.typed_values import TYPED, LongString

__all__ = ["decode_value", "encode_value"]

_MARK = "!"
_KINDS = frozenset(TYPED)
_TYPES = {kind.__name__: kind for kind in TYPED}
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def encode_value(value: object) -> str:
    """The JSON text of a value. TypeError for a value that neither a field table nor a definition can contain."""
    return _ENCODER.encode(_plain(value))


def decode_value(text: str) -> object:
    """The value of a JSON text. ValueError for text that `encode_value` does not write."""
    return _rich(json.loads(text))


def _plain(value: object) -> object:
    if type(value) in _KINDS:
        return {_MARK: [type(value).__name__, str(value)]}
    match value:
        case LongString():
            return {_MARK: ["LongString", b64encode(value).decode()]}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {_MARK: ["bytes", b64encode(value).decode()]}
        case Decimal():
            return {_MARK: ["decimal", str(value)]}
        case datetime():
            return {_MARK: ["time", value.isoformat()]}
        case tuple():
            return {_MARK: ["tuple", [_plain(item) for item in value]]}
        case list():
            return [_plain(item) for item in value]
        case dict():
            table = {name: _plain(item) for name, item in value.items()}
            return {_MARK: ["table", table]} if _MARK in table else table
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def _rich(value: object) -> object:
    match value:
        case list():
            return [_rich(item) for item in value]
        case dict() if _MARK in value:
            kind, content = value[_MARK]
            match kind:
                case "bytes":
                    return b64decode(content)
                case "decimal":
                    return Decimal(content)
                case "time":
                    return datetime.fromisoformat(content)
                case "tuple":
                    return tuple(_rich(item) for item in content)
                case "table":
                    return {name: _rich(item) for name, item in content.items()}
                case "LongString":
                    return LongString(b64decode(content))
                case str() if kind in _TYPES:
                    return _TYPES[kind](content)
            raise ValueError(f"unknown kind of value: {kind}")
        case dict():
            return {name: _rich(item) for name, item in value.items()}
    return value
