"""Header tables as JSON text and back, without loss, and as a map of texts.

Rules: values that JSON has are written as JSON (text, whole numbers, numbers with a point, true, false, null, arrays,
tables). Any other value is a table with one key that begins with "!":

    {"!timestamp": "2026-01-05T12:00:00Z"}    T; far ones: the seconds as a number
    {"!decimal": "1.50"}                      D
    {"!base64": "AAE="}                       x, and long strings that are not UTF-8
    {"!float": "NaN"}                         NaN, Infinity, -Infinity
    {"!table": {"!base64": "AAE="}}           a table that looks like one of these
    {"!string": "2026-01-05T12:00:00Z"}       text where a timestamp is expected, see below

One exception keeps dead letters readable: `time` in the entries of `x-death` is a timestamp and is written as plain
text; a text that stands there instead and reads as one is {"!string": ...}. The header table itself is never such a
form, whatever its keys.

A number whose type on the wire is not the one that it is written in (I, or l where 32 bits do not hold it; d) stays a
plain number, so that a query finds it whatever its publisher's language. The key "!types" beside the headers has its
type letter, by name or place: {"n": 5, "list": [1, 2], "!types": {"n": "l", "list": {"1": "s"}}}. A letter whose
number is gone, is no number any more or does not fit is ignored. S stands there for bytes of a long string. A header
whose name is "types" behind one or more "!" gets one more "!".

`x-stream-offset` is left out: it is the column `offset`. This module knows neither rows nor connections.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harebell.errors import InvalidArgument
from harebell.protocol.v091.typed_values import TYPED, FarSeconds, LongString

if TYPE_CHECKING:
    from harebell.protocol.v091 import Table

__all__ = ["STREAM_OFFSET", "TYPES", "headers_from_json", "headers_to_json", "headers_to_texts"]

STREAM_OFFSET: Final = "x-stream-offset"
"""The header that says a message's number in its stream, and the consumer argument that says where to begin."""
DEATHS: Final = "x-death"
DEATH_TIME: Final = "time"

TYPES: Final = "!types"
_IS_TYPES_NAME: Final = re.compile("!+types").fullmatch
_TYPED: Final = frozenset(TYPED)
_BY_LETTER: Final = {kind.letter.decode(): kind for kind in TYPED}

# Types that JSON keeps as they are. Not float: NaN is not JSON.
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_encode: Final = msgspec.json.Encoder().encode  # this runs once a row: 5 times as fast as the standard library's
_decode: Final = msgspec.json.Decoder().decode
# For text with bytes that are not UTF-8: a text column of Spark holds no lone surrogates, their escapes it does.
_encode_ascii: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def headers_to_json(headers: Mapping[str, object] | None) -> str | None:
    """A header table as JSON text in the form above, None when there is none (or nothing but x-stream-offset).

    Raises TypeError for a value that AMQP has no type for.
    """
    if not headers:
        return None
    if STREAM_OFFSET in headers:
        headers = {name: value for name, value in headers.items() if name != STREAM_OFFSET}
        if not headers:
            return None
    for name, value in headers.items():
        if type(value) not in _PLAIN or name.endswith(TYPES):
            break
    else:
        return _text(headers)
    packed = {
        f"!{name}" if _IS_TYPES_NAME(name) else name: _pack_deaths(value) if name == DEATHS else _pack(value)
        for name, value in headers.items()
    }
    types = _types(headers)
    if types is not None:
        packed[TYPES] = types
    return _text(packed)


def headers_from_json(text: str) -> Table:
    """The header table that JSON text describes: the reverse of `headers_to_json`, and any plain JSON object.

    Raises InvalidArgument when it is not a JSON object, or has a "!..." form that is not one of those above.
    """
    try:
        table = _loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"column 'headers' holds {text[:80]!r}, which is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise InvalidArgument(f"column 'headers' holds {text[:80]!r}; it takes a JSON object")
    if '"!' in text or "\\u0021" in text or DEATHS in table:
        types = table.pop(TYPES, None)
        table = {
            name[1:] if _IS_TYPES_NAME(name) else name: _unpack_deaths(value) if name == DEATHS else _unpack(value)
            for name, value in table.items()
        }
        if types is not None:
            if not isinstance(types, dict):
                raise InvalidArgument(f"column 'headers' holds {TYPES} {json.dumps(types)[:80]}; it takes an object")
            _set_types(table, types)
    return table


def headers_to_texts(text: str | None) -> list[tuple[str, str | None]] | None:
    """The headers of a JSON text as pairs of texts: scalars as they are read, the rest (and bytes) as JSON."""
    if text is None:
        return None
    return [
        (name[1:] if _IS_TYPES_NAME(name) else name, _scalar(value))
        for name, value in _loads(text).items()
        if name != TYPES
    ]


def _text(table: object) -> str:
    try:
        return _encode(table).decode()
    except UnicodeEncodeError:
        return _encode_ascii(table)


def _loads(text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return json.loads(text)  # it alone takes escapes of lone surrogates


def _scalar(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        form, packed = next(iter(value.items()))
        if form in ("!timestamp", "!decimal", "!float"):
            return str(packed)
    return _text(value)


def _types(value: object) -> object:
    """The type letters of the value and of what is in it; None where there are none."""
    kind = type(value)
    if kind in _TYPED:
        return value.letter.decode()  # type: ignore[attr-defined]
    if kind is LongString:
        return "S"
    if isinstance(value, Mapping):
        return {name: types for name, inner in value.items() if (types := _types(inner)) is not None} or None
    if isinstance(value, list | tuple):
        return {str(at): types for at, inner in enumerate(value) if (types := _types(inner)) is not None} or None
    return None


def _set_types(within: Any, types: dict[str, Any]) -> None:
    """Give the values of a table or a list these types, as far as they are there and fit."""
    for name, asked in types.items():
        if isinstance(within, dict):
            place: Any = name
            value = within.get(name)
        else:
            place = int(name) if name.isascii() and name.isdecimal() else -1
            value = within[place] if 0 <= place < len(within) else None
        if isinstance(asked, dict):
            if isinstance(value, dict | list):
                _set_types(value, asked)
        elif asked == "S":
            if isinstance(value, bytes):
                within[place] = LongString(value)
        elif not isinstance(asked, str) or asked not in _BY_LETTER:
            known = ", ".join(sorted([*_BY_LETTER, "S"]))
            raise InvalidArgument(
                f"column 'headers' holds the type {json.dumps(asked)[:80]} in {TYPES}; known are: {known}"
            )
        else:
            typed = _of_type(value, asked)
            if typed is not None:
                within[place] = typed


def _of_type(value: Any, letter: str) -> Any:
    """The number as one of that type; None where it is no such number."""
    kind = _BY_LETTER[letter]
    if isinstance(value, bool) or not isinstance(value, (int, float) if letter == "f" else int):
        return None
    try:
        typed = kind(value)
        kind.packing.pack(typed)
    except (StructError, OverflowError):
        return None
    return typed


def _iso(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _pack(value: object) -> object:
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else {"!float": _float_text(value)}  # type: ignore[arg-type]
    if kind in _PLAIN:
        return value
    if kind in _TYPED:
        return int(value) if isinstance(value, int) else _pack(float(value))  # type: ignore[arg-type]
    if isinstance(value, datetime):
        return {"!timestamp": _iso(value)}
    if isinstance(value, FarSeconds):
        return {"!timestamp": int(value)}
    if isinstance(value, Decimal):
        return {"!decimal": str(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"!base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        packed = {name: _pack(inner) for name, inner in value.items()}
        return {"!table": packed} if _looks_packed(packed) else packed
    if isinstance(value, list | tuple):
        return [_pack(inner) for inner in value]
    if isinstance(value, str | int | float):
        return value  # subclasses of theirs, enumerations for example
    raise TypeError(f"a header value of type {kind.__name__} has no JSON form")


def _float_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _looks_packed(table: Mapping[str, object]) -> bool:
    return len(table) == 1 and next(iter(table)).startswith("!")


def _pack_deaths(deaths: object) -> object:
    """As `_pack`, with plain text for the times in x-death."""
    packed = _pack(deaths)
    if isinstance(deaths, list | tuple):
        for entry, death in zip(packed, deaths, strict=True):  # type: ignore[call-overload]
            time = death.get(DEATH_TIME) if isinstance(death, Mapping) and not _looks_packed(death) else None
            if isinstance(time, datetime):
                entry[DEATH_TIME] = _iso(time)
            elif isinstance(time, str) and _is_timestamp(time):
                entry[DEATH_TIME] = {"!string": time}
    return packed


def _is_timestamp(text: str) -> bool:
    try:
        _timestamp(text)
    except ValueError:
        return False
    return True


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if not _looks_packed(value):
        return {name: _unpack(inner) for name, inner in value.items()}
    form, packed = next(iter(value.items()))
    try:
        return _FORMS[form](packed)
    except (KeyError, ValueError, TypeError, InvalidOperation, binascii.Error) as error:
        raise InvalidArgument(
            f"column 'headers' holds {json.dumps(value)[:80]}; known are: {', '.join(_FORMS)} "
            "(a table with one key that begins with '!' is written {\"!table\": ...})"
        ) from error


def _timestamp(packed: Any) -> datetime | FarSeconds:
    if isinstance(packed, int) and not isinstance(packed, bool):
        return FarSeconds(packed)
    value = datetime.fromisoformat(packed)
    if value.tzinfo is None:
        raise ValueError("no time zone")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:  # in UTC it is before the year 1 or after 9999
        raise ValueError("no time of a calendar") from error


def _float(packed: Any) -> float:
    if packed not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError("a number")
    return float(packed)


def _string(packed: Any) -> str:
    if not isinstance(packed, str):
        raise ValueError("not text")
    return packed


def _table(packed: Any) -> Table:
    if not isinstance(packed, dict):
        raise ValueError("not a table")
    return {name: _unpack(inner) for name, inner in packed.items()}


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "!timestamp": _timestamp,
    "!decimal": lambda packed: Decimal(_string(packed)),
    "!base64": lambda packed: base64.b64decode(_string(packed), validate=True),
    "!float": _float,
    "!table": _table,
    "!string": _string,
}


def _unpack_deaths(deaths: Any) -> Any:
    unpacked = _unpack(deaths)
    if isinstance(deaths, list):
        for entry, death in zip(unpacked, deaths, strict=True):
            time = death.get(DEATH_TIME) if isinstance(death, dict) and not _looks_packed(death) else None
            if isinstance(time, str) and _is_timestamp(time):
                entry[DEATH_TIME] = _timestamp(time)
    return unpacked
