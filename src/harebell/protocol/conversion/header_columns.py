"""The header segments of many messages at once, from columns of addresses and properties of 0-9-1.

`header_of(*from_v091(...))` makes one header; this makes thousands. What all rows share is encoded once, and so is each
different combination of the others; a message-id, which differs each time, is put behind what is already encoded.

A message-id that is a UUID travels as the property. Any other one is a header alone: `properties_of` reads it back, and
no UUID has to be made of it.

What `properties_of` would not read back as it was given is refused: an expiration that is no number, a header whose
type AMQP 0-10 does not have. A publisher over 0-9-1 is told of it by the broker, or keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final
from uuid import UUID

from harebell.defaults import MAX_TABLE_DEPTH, MAX_TIME
from harebell.errors import LocalProtocolError
from harebell.protocol.conversion.field_values import to_map, utf8
from harebell.protocol.conversion.properties import MESSAGE_ID, SHORT, TYPE, from_v091, header_of
from harebell.protocol.v091 import FieldValue, Properties
from harebell.protocol.v091.typed_values import FarSeconds, LongString

__all__ = ["encode_header_columns"]

ID: Final = "message_id"
UUID_LENGTH: Final = 36  # characters
LONG: Final = 0xFFFF  # bytes of a text in a header; 0-10 has longer ones as bytes only
BECOMES: Final = {MESSAGE_ID: "message_id", TYPE: "type"}  # headers that are read back as properties
_is_number: Final = re.compile("0|[1-9][0-9]*", re.ASCII).fullmatch
STAND_IN: Final = UUID("ff00fe01-fd02-fc03-fb04-fa05f906f807")  # in no text: it is not UTF-8


def encode_header_columns(
    rows: int,
    exchange: str | Sequence[str],
    routing_key: str | Sequence[str],
    columns: Mapping[str, Sequence[FieldValue]],
    constants: Mapping[str, FieldValue],
    *,
    mandatory: bool = False,
) -> list[bytes]:
    """The header segment of each of `rows` messages.

    exchange, routing_key  one for all, or one for each
    columns    by property of 0-9-1, a value for each row; None is absent. Equal tables should be one object
    constants  by property, the value that all rows have; a property is in one of the two at most

    Raises LocalProtocolError, which names the property whose value does not fit its type.
    """
    for name, values in columns.items():
        if len(values) != rows:
            raise LocalProtocolError(f"column {name} has {len(values)} values, and there are {rows} messages")
    ids = columns.get(ID)
    names = [name for name in columns if name != ID]
    varying = [columns[name] for name in names]
    addresses: list[Iterable[str]] = [
        repeat(each, rows) if isinstance(each, str) else each for each in (exchange, routing_key)
    ]
    if not varying and isinstance(exchange, str) and isinstance(routing_key, str):
        header = _Header(exchange, routing_key, constants, mandatory)
        return [header.plain()] * rows if ids is None else header.identified_all(ids)
    found: list[bytes] = []
    headers: dict[tuple[object, ...], _Header] = {}
    for message_id, (to, key, *values) in zip(
        repeat(None, rows) if ids is None else ids, zip(*addresses, *varying, strict=True), strict=True
    ):
        # A table is no key, and nothing is known of it but that it is the same.
        which = (to, key, *[id(value) if isinstance(value, dict) else value for value in values])
        if which not in headers:
            properties = {**constants, **dict(zip(names, values, strict=True))}
            headers[which] = _Header(to, key, properties, mandatory)
        found.append(headers[which].identified(message_id))
    return found


class _Header:
    """What messages share that differ in their message-id alone."""

    __slots__ = ("_address", "_before", "_mandatory", "_plain", "_properties", "_uuid")

    def __init__(self, exchange: str, routing_key: str, properties: Mapping[str, Any], mandatory: bool) -> None:
        self._address = exchange, routing_key
        self._mandatory = mandatory
        self._properties = Properties(**properties)
        _check_expiration(self._properties.expiration)
        _check_headers(self._properties.headers)
        self._plain: bytes | None = None
        self._before: dict[int, bytes] = {}  # what comes before an identifier, by its length
        self._uuid: tuple[bytes, bytes] | None = None  # before and behind a UUID

    def plain(self) -> bytes:
        """That of a message without message-id."""
        if self._plain is None:
            self._plain = self._encoded({}, None)
        return self._plain

    def identified_all(self, message_ids: Sequence[Any]) -> list[bytes]:
        """Those of messages with these message-ids."""
        try:
            raws = list(map(str.encode, message_ids))
        except TypeError:  # some have none
            return list(map(self.identified, message_ids))
        if UUID_LENGTH in (lengths := set(map(len, raws))):
            return list(map(self.identified, message_ids))
        before = {length: self._identifying(length) for length in lengths}
        return [before[len(raw)] + raw for raw in raws]

    def identified(self, message_id: Any) -> bytes:
        """That of a message with this message-id."""
        if message_id is None:
            return self.plain()
        if not isinstance(message_id, str):
            raise LocalProtocolError(f"message_id is {type(message_id).__name__}, and has to be text")
        if len(message_id) == UUID_LENGTH and (uuid := _uuid_of(message_id)) is not None:
            if self._uuid is None:
                before, _, behind = self._encoded({}, STAND_IN).partition(STAND_IN.bytes)
                self._uuid = before, behind
            return uuid.bytes.join(self._uuid)
        raw = message_id.encode()
        return self._identifying(len(raw)) + raw

    def _identifying(self, length: int) -> bytes:
        """What comes before a message-id of so many bytes."""
        if length not in self._before:
            if length > SHORT:
                raise LocalProtocolError(f"message_id has {length} bytes, and {SHORT} at most are possible")
            whole = self._encoded({MESSAGE_ID: "x" * length}, None)
            self._before[length] = whole[: len(whole) - length]
        return self._before[length]

    def _encoded(self, last: Mapping[str, str], message_id: UUID | None) -> bytes:
        delivery, message = from_v091(*self._address, self._properties)
        delivery.discard_unroutable = not self._mandatory
        message.message_id = message_id
        if last:  # an identifier is the last of the headers, and these are the last of the properties
            message.application_headers = {**(message.application_headers or {}), **to_map(last)}
        return header_of(delivery, message)


def _uuid_of(text: str) -> UUID | None:
    """The UUID that is written so."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None


def _check_expiration(expiration: str | None) -> None:
    """Raises LocalProtocolError for one that is not the text of a number of milliseconds."""
    if expiration is None:
        return
    if not _is_number(expiration):
        raise LocalProtocolError(f"expiration is {expiration[:80]!r}, and has to be a whole number of milliseconds")
    if len(expiration) > len(str(MAX_TIME)) or int(expiration) > MAX_TIME:
        raise LocalProtocolError(f"expiration is {expiration[:80]}, and {MAX_TIME} at most is possible")


def _check_headers(table: Mapping[str, object] | None) -> None:
    """Raises LocalProtocolError for what `to_map`, or its encoding, gives another type or another place."""
    for name, value in (table or {}).items():
        if name in BECOMES and isinstance(value, str):
            raise LocalProtocolError(f"headers: {name!r} is read back as the property {BECOMES[name]}: give that")
        if (problem := _unkept(value, 1)) is not None:
            raise LocalProtocolError(f"headers: {name!r} has {problem}")


def _unkept(value: object, depth: int) -> str | None:
    """What there is in the value that AMQP 0-10 does not keep as it is; None when it keeps all."""
    if isinstance(value, Mapping | list | tuple):
        if depth > MAX_TABLE_DEPTH:
            return f"tables nested more than {MAX_TABLE_DEPTH} deep"
        for each in value.values() if isinstance(value, Mapping) else value:
            if (problem := _unkept(each, depth + 1)) is not None:
                return problem
    elif isinstance(value, LongString) or (isinstance(value, str) and not utf8(value)):
        return "a text that is not UTF-8, which becomes bytes in AMQP 0-10"
    elif isinstance(value, str):
        if (size := len(value.encode())) > LONG:
            return f"a text of {size:,} bytes, and {LONG:,} at most are possible in AMQP 0-10"
    elif isinstance(value, int) and not isinstance(value, FarSeconds) and not -(1 << 63) <= value < 1 << 63:
        return f"the number {value}, which does not fit 64 bits"
    return None
