"""Messages of one dialect in the other: once, and only when somebody needs the other form.

A message stays in the form in which it came. One of AMQP 0-10 is in queues as a `ForeignContent`, whose frames of 0-9-1
are made when a 0-9-1 consumer, the disk or an exchange that reads headers asks for them. One of 0-9-1 is converted when
it goes to a subscriber of 0-10 (`Outgoing`), and stays in a small cache for the next one.

The properties by name, 0-9-1 first:

    content-type, content-encoding       the same
    headers                              application-headers (`field_values`)
    delivery-mode, priority, timestamp   the same, in delivery-properties
    expiration (text, milliseconds)      ttl
    correlation-id, user-id, app-id      the same, as bytes; what is no UTF-8 or over 255 bytes is a header
    reply-to                             reply-to.routing-key; its exchange is a header
    message-id                           message-id, where it is a UUID; else a UUID made of it, and a header has it
    type                                 header x-jms-type
    cluster-id (reserved)                dropped

These headers come back as what they were. What no property of 0-9-1 can say (types of headers that it has not, unknown
structs of the header segment, delivery-properties such as resume-id) is in the message's `origin`, with which a queue
stores it; a stream does not.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from harebell.broker.message import STORED_CHANNEL, Address, Message
from harebell.broker.v010.field_values import to_map, to_table, utf8
from harebell.defaults import FRAME_MAX
from harebell.errors import LocalProtocolError
from harebell.protocol import v010, v091
from harebell.protocol.v010 import encode_header, structs as s
from harebell.protocol.v010.content import DELIVERY, MESSAGE
from harebell.protocol.v010.frames import LARGEST_FRAME
from harebell.protocol.v091.content import stored_content

__all__ = ["MAX_TTL", "ForeignContent", "Outgoing", "content_of", "from_v091", "to_v091"]

MAX_TTL: Final = 315_360_000_000  # milliseconds: ten years, the longest expiration in 0-9-1; more is none
MESSAGE_ID: Final = "x-amqp-0-9-1.message-id"
TYPE: Final = "x-jms-type"
REPLY_EXCHANGE: Final = "x-amqp-0-10.reply-exchange"
CORRELATION_ID: Final = "x-amqp-0-10.correlation-id"
USER_ID: Final = "x-amqp-0-10.user-id"
APP_ID: Final = "x-amqp-0-10.app-id"

SHORT: Final = 255  # bytes of a short string
CACHED: Final = 256  # converted messages
CACHED_BYTES: Final = 16_384  # of one of them; converting a longer one costs little beside sending it

_PLAIN_DELIVERY: Final = ("resume_id", "resume_ttl", "expiration")
_KNOWN: Final = frozenset({DELIVERY, MESSAGE})


class ForeignContent(v091.Content):
    """A message of AMQP 0-10 as a content of 0-9-1. `native` is the message as it came."""

    __slots__ = ("_converted", "native")

    def __init__(self, native: v010.Content) -> None:
        self.channel = STORED_CHANNEL
        self.method = b""
        self.body_size = native.body_size
        self.native = native
        self._converted: bytes | None = None

    @property
    def frames(self) -> bytes:  # type: ignore[override]  # made at the first use
        if self._converted is None:
            self._converted = to_v091(self.native)
        return self._converted

    @property
    def persistent(self) -> bool:
        return self.native.delivery_properties.delivery_mode == 2

    @property
    def priority(self) -> int:
        return min(self.native.delivery_properties.priority or 0, 255)


def to_v091(native: v010.Content) -> bytes:
    """The frames of 0-9-1 for a message of 0-10, on STORED_CHANNEL."""
    properties, _ = properties_of(native)
    try:
        return v091.encode_content(STORED_CHANNEL, properties, native.body, FRAME_MAX)
    except LocalProtocolError:  # headers nested deeper than a table may be: those that fit are kept
        properties.headers = {name: value for name, value in (properties.headers or {}).items() if _fits(name, value)}
        return v091.encode_content(STORED_CHANNEL, properties, native.body, FRAME_MAX)


def _fits(name: str, value: object) -> bool:
    try:
        v091.Properties(headers={name: value}).encode()
    except LocalProtocolError:
        return False
    return True


def is_exact(native: v010.Content) -> bool:
    """Whether `from_v091` gives a message like this one back: else it needs its `origin` when it is stored."""
    return properties_of(native)[1]


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
    if delivery.ttl is not None and delivery.ttl <= MAX_TTL:
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
    exact = exact and (delivery.ttl is None or delivery.ttl <= MAX_TTL)
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
    if value is not None and isinstance(given, str) and value == _uuid(given) and len(given.encode()) <= SHORT:
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
    address: Address, properties: v091.Properties, *, ttl: int | None = None
) -> tuple[s.DeliveryProperties, s.MessageProperties]:
    """The properties of 0-10 for a message of 0-9-1. `ttl` is its expiration in milliseconds, where it is valid."""
    headers: dict[str, Any] = dict(properties.headers or {})
    delivery = s.DeliveryProperties(
        priority=properties.priority,
        delivery_mode=properties.delivery_mode,
        ttl=ttl,
        timestamp=properties.timestamp,
        exchange=address.exchange,
        routing_key=address.routing_key,
    )
    message = s.MessageProperties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        correlation_id=_bytes(properties.correlation_id, CORRELATION_ID, headers),
        user_id=_bytes(properties.user_id, USER_ID, headers),
        app_id=_bytes(properties.app_id, APP_ID, headers),
    )
    exchange = headers.pop(REPLY_EXCHANGE, "") if properties.reply_to is not None else ""
    if properties.reply_to is not None:
        message.reply_to = s.ReplyTo(exchange if isinstance(exchange, str) else "", properties.reply_to)
    if properties.message_id is not None:
        message.message_id = _uuid(properties.message_id)
        if str(message.message_id) != properties.message_id:
            headers[MESSAGE_ID] = properties.message_id
    if properties.type is not None:
        headers[TYPE] = properties.type
    if headers or properties.headers is not None:
        message.application_headers = to_map(headers)
    return delivery, message


def _bytes(value: str | None, header: str, headers: dict[str, Any]) -> bytes | None:
    kept = headers.get(header)
    if value is None and isinstance(kept, bytes):
        del headers[header]
        return kept
    return None if value is None else value.encode("utf-8", "surrogateescape")


def content_of(address: Address, content: v091.Content, origin: bytes = b"") -> v010.Content:
    """A message of 0-9-1 as one of 0-10, in frames of full size on channel 0."""
    if origin:
        header = origin
    else:
        properties = content.decode_properties()
        given = properties.expiration
        ttl = int(given) if given is not None and given.isascii() and given.isdecimal() and len(given) < 20 else None
        delivery, message = from_v091(address, properties, ttl=ttl)
        header = encode_header((delivery, message) if _says_something(message) else (delivery,))
    frames = v010.encode_content(0, header, content.body, LARGEST_FRAME)
    return v010.Content(0, b"", frames, content.body_size)


def _says_something(message: s.MessageProperties) -> bool:
    return any(getattr(message, name) is not None for name in message.fields())


class Outgoing:
    """Messages on their way to subscribers of 0-10, with the most recently converted ones."""

    def __init__(self) -> None:
        self._converted: dict[tuple[bytes, bytes], v010.Content] = {}

    def native(self, message: Message) -> v010.Content:
        """The message in the form of 0-10."""
        content = message.content
        if type(content) is ForeignContent:
            return content.native
        if message.origin:
            return content_of(message.address, content, message.origin)
        return self.stored(message.address, content.frames)

    def stored(self, address: Address, frames: bytes) -> v010.Content:
        """The same for a message that is an address and frames of 0-9-1."""
        key = (address.wire, frames)
        found = self._converted.get(key)
        if found is None:
            found = content_of(address, stored_content(STORED_CHANNEL, frames))
            if len(frames) <= CACHED_BYTES:
                if len(self._converted) >= CACHED:
                    self._converted.clear()
                self._converted[key] = found
        return found
