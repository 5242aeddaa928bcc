"""Properties of a message of AMQP 0-10 as those of 0-9-1, and back.

The properties by name, 0-9-1 first:

    content-type, content-encoding       the same
    headers                              application-headers (`field_values`)
    delivery-mode, priority, timestamp   the same, in delivery-properties
    expiration (text, milliseconds)      ttl
    correlation-id, user-id, app-id      the same, as bytes; what is no UTF-8 or over 255 bytes is a header
    reply-to                             reply-to.routing-key; its exchange is a header
    message-id                           message-id, where it is a UUID; else a UUID made of it, and a header has it;
                                         the header alone will do
    type                                 header x-jms-type
    cluster-id (reserved)                dropped

These headers come back as what they were. What no property of 0-9-1 can say (types of headers that it has not, unknown
structs of the header segment, delivery-properties such as resume-id) is lost, and `properties_of` says so.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from harebell.defaults import MAX_TIME
from harebell.protocol import v010, v091
from harebell.protocol.conversion.field_values import to_map, to_table, utf8
from harebell.protocol.v010 import encode_header, structs as s
from harebell.protocol.v010.content import DELIVERY, MESSAGE

__all__ = ["from_v091", "header_of", "properties_of"]

MESSAGE_ID: Final = "x-amqp-0-9-1.message-id"
TYPE: Final = "x-jms-type"
REPLY_EXCHANGE: Final = "x-amqp-0-10.reply-exchange"
CORRELATION_ID: Final = "x-amqp-0-10.correlation-id"
USER_ID: Final = "x-amqp-0-10.user-id"
APP_ID: Final = "x-amqp-0-10.app-id"

SHORT: Final = 255  # bytes of a short string

_PLAIN_DELIVERY: Final = ("resume_id", "resume_ttl", "expiration")
_KNOWN: Final = frozenset({DELIVERY, MESSAGE})


def properties_of(native: v010.Content) -> tuple[v091.Properties, bool]:
    """The properties of 0-9-1 for a message of 0-10, and whether nothing is lost in them."""
    delivery, message = native.delivery_properties, native.message_properties
    exact = not any(getattr(delivery, name) is not None for name in _PLAIN_DELIVERY)
    exact = exact and message.content_length is None and all(code in _KNOWN for code, _ in native.structs())
    found = v091.Properties(
        content_type=_short(message.content_type),
        content_encoding=_short(message.content_encoding),
        delivery_mode=delivery.delivery_mode,
        priority=delivery.priority,
        timestamp=_timestamp(delivery.timestamp),
    )
    if delivery.ttl is not None and delivery.ttl <= MAX_TIME:
        found.expiration = str(delivery.ttl)
    headers: v091.Table = {}
    if message.application_headers is not None:
        headers, same = to_table(message.application_headers)
        exact = exact and same
        kind = headers.get(TYPE)
        if isinstance(kind, str) and len(kind.encode()) <= SHORT:
            found.type = kind
            del headers[TYPE]
    found.correlation_id = _text(message.correlation_id, CORRELATION_ID, headers)
    found.user_id = _text(message.user_id, USER_ID, headers)
    found.app_id = _text(message.app_id, APP_ID, headers)
    _convert_message_id(message.message_id, found, headers)
    _convert_reply_to(message.reply_to, found, headers)
    if headers or message.application_headers is not None:
        found.headers = headers
    exact = exact and (delivery.ttl is None or delivery.ttl <= MAX_TIME)
    return found, exact and found.content_type == message.content_type and (
        found.content_encoding == message.content_encoding
    )


def _short(value: str | None) -> str | None:
    return value if value is None or utf8(value) else None


def _timestamp(value: v010.Timestamp | None) -> v091.Timestamp | None:
    return value


def _text(value: bytes | None, header: str, headers: v091.Table) -> str | None:
    """The text of an identifier; one that 0-9-1 cannot hold becomes a header."""
    if value is None:
        return None
    if len(value) <= SHORT:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    headers[header] = value
    return None


def _convert_message_id(value: UUID | None, found: v091.Properties, headers: v091.Table) -> None:
    given = headers.get(MESSAGE_ID)
    if isinstance(given, str) and (value is None or value == _uuid(given)) and len(given.encode()) <= SHORT:
        found.message_id = given
        del headers[MESSAGE_ID]
    elif value is not None:
        found.message_id = str(value)


def _convert_reply_to(value: s.ReplyTo | None, found: v091.Properties, headers: v091.Table) -> None:
    if value is not None:
        found.reply_to = _short(value.routing_key) or ""
        if value.exchange and utf8(value.exchange):
            headers[REPLY_EXCHANGE] = value.exchange


def _uuid(text: str) -> UUID:
    """The UUID that a message-id is, or one that is made of it."""
    try:
        return UUID(text.removeprefix("ID:"))
    except ValueError:
        return uuid5(NAMESPACE_OID, text)


def from_v091(
    exchange: str, routing_key: str, properties: v091.Properties
) -> tuple[s.DeliveryProperties, s.MessageProperties]:
    """The properties of 0-10 for a message of 0-9-1 and its address; an expiration that is no number is dropped."""
    headers: dict[str, Any] = dict(properties.headers or {})
    delivery = s.DeliveryProperties(
        priority=properties.priority,
        delivery_mode=properties.delivery_mode,
        ttl=_milliseconds(properties.expiration),
        timestamp=properties.timestamp,
        exchange=exchange,
        routing_key=routing_key,
    )
    message = s.MessageProperties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        correlation_id=_bytes(properties.correlation_id, CORRELATION_ID, headers),
        user_id=_bytes(properties.user_id, USER_ID, headers),
        app_id=_bytes(properties.app_id, APP_ID, headers),
    )
    if properties.reply_to is not None:
        to = headers.pop(REPLY_EXCHANGE, "")
        message.reply_to = s.ReplyTo(to if isinstance(to, str) else "", properties.reply_to)
    if properties.message_id is not None:
        message.message_id = _uuid(properties.message_id)
        if str(message.message_id) != properties.message_id:
            headers[MESSAGE_ID] = properties.message_id
    if properties.type is not None:
        headers[TYPE] = properties.type
    if headers or properties.headers is not None:
        message.application_headers = to_map(headers)
    return delivery, message


def header_of(delivery: s.DeliveryProperties, message: s.MessageProperties) -> bytes:
    """The header segment with these properties; message-properties without any field are left out.

    Raises LocalProtocolError when a field does not fit its type.
    """
    says_something = any(getattr(message, name) is not None for name in message.fields())
    return encode_header((delivery, message) if says_something else (delivery,))


def _milliseconds(expiration: str | None) -> int | None:
    if expiration is None or not expiration.isascii() or not expiration.isdecimal() or len(expiration) >= 20:
        return None
    return int(expiration)


def _bytes(value: str | None, header: str, headers: dict[str, Any]) -> bytes | None:
    kept = headers.get(header)
    if value is None and isinstance(kept, bytes):
        del headers[header]
        return kept
    return None if value is None else value.encode("utf-8", "surrogateescape")
