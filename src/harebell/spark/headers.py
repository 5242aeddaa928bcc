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
form, whatever its keys. The width of a number is not kept, because the codec does not keep it.

`x-stream-offset` is left out: it is the column `offset`. This module knows neither rows nor connections.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harebell.errors import InvalidArgument
from harebell.protocol.v091.fields import FarSeconds

if TYPE_CHECKING:
    from harebell.protocol.v091 import Table

__all__ = ["STREAM_OFFSET", "headers_from_json", "headers_to_json", "headers_to_texts"]

STREAM_OFFSET: Final = "x-stream-offset"
"""The header that says a message's number in its stream, and the consumer argument that says where to begin."""
DEATHS: Final = "x-death"
DEATH_TIME: Final = "time"

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
    for value in headers.values():
        if type(value) not in _PLAIN:
            break
    else:
        return _text(headers)
    return _text({name: _pack_deaths(value) if name == DEATHS else _pack(value) for name, value in headers.items()})


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
        return {name: _unpack_deaths(value) if name == DEATHS else _unpack(value) for name, value in table.items()}
    return table


def headers_to_texts(text: str | None) -> list[tuple[str, str | None]] | None:
    """The headers of a JSON text as pairs of texts: scalars as they are read, the rest (and bytes) as JSON."""
    if text is None:
        return None
    return [(name, _scalar(value)) for name, value in _loads(text).items()]


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


def _iso(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _pack(value: object) -> object:
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else {"!float": _float_text(value)}  # type: ignore[arg-type]
    if kind in _PLAIN:
        return value
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
    return value.astimezone(UTC)


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
