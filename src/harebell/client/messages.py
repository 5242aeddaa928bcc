"""What a program hands to the client and gets from it: plain records.

A Delivery decodes nothing until it is asked: its body is a slice of what was received, its properties are decoded at
the first use. It is bound to the channel it came on, and only that channel can acknowledge it.
"""

from __future__ import annotations

from typing import Final, Literal

from harebell import errors
from harebell.client.property_types import PLAIN, misfit
from harebell.client.settling import Acknowledger, Settling
from harebell.protocol.v091 import Content, Properties, Table, TableLike, Timestamp
from harebell.protocol.v091.codec import MISFITS

__all__ = [
    "Acknowledger",
    "Confirmation",
    "Delivery",
    "Message",
    "OnNack",
    "OnOrphan",
    "Publication",
    "QueueInfo",
    "Returned",
]

OnOrphan = Literal["raise", "retry", "park"]
"""What becomes of a publication whose channel ends before its confirm: see `Channel.confirm_select`."""
OnNack = Literal["raise", "retry", "park"]
"""What becomes of a publication that the broker nacks: see `Channel.confirm_select`."""

NO_PROPERTIES: Final = b"\x00\x00"  # property flags without any bit: what most messages carry


class Message:
    """A body and its properties: what is published.

    body        bytes; text is encoded by the caller, who knows the encoding
    properties  all of them at once, instead of the keywords that follow
    headers, content_type, ... the basic properties (specification 1.8.1); None means absent. `delivery_mode` 2 is
                persistent, `expiration` is milliseconds as text, `timestamp` a datetime or whole seconds since 1970

    Raises InvalidArgument when the body is not bytes, when a property does not fit its type, or when both `properties`
    and a single property are given.
    """

    __slots__ = ("body", "properties")

    def __init__(
        self,
        body: bytes | bytearray | memoryview,
        *,
        properties: Properties | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: TableLike | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        expiration: str | None = None,
        message_id: str | None = None,
        timestamp: Timestamp | None = None,
        type: str | None = None,
        user_id: str | None = None,
        app_id: str | None = None,
    ) -> None:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise errors.InvalidArgument(
                f"the body is {type_of(body).__name__}, and must be bytes: encode it, for example body.encode()"
            )
        self.body: bytes = bytes(body)  # the same object when it is bytes
        given = _new_properties(Properties)  # and not its constructor: a call with so many keywords costs as much again
        given.content_type = content_type
        given.content_encoding = content_encoding
        given.headers = headers  # type: ignore[assignment]  # as the constructor takes it
        given.delivery_mode = delivery_mode
        given.priority = priority
        given.correlation_id = correlation_id
        given.reply_to = reply_to
        given.expiration = expiration
        given.message_id = message_id
        given.timestamp = timestamp
        given.type = type
        given.user_id = user_id
        given.app_id = app_id
        given.reserved = None
        # One line of comparisons: a message costs little more than its properties. What else may fit is asked then.
        if (
            (content_type is not None and type_of(content_type) is not str)
            or (content_encoding is not None and type_of(content_encoding) is not str)
            or (correlation_id is not None and type_of(correlation_id) is not str)
            or (reply_to is not None and type_of(reply_to) is not str)
            or (expiration is not None and type_of(expiration) is not str)
            or (message_id is not None and type_of(message_id) is not str)
            or (type is not None and type_of(type) is not str)
            or (user_id is not None and type_of(user_id) is not str)
            or (app_id is not None and type_of(app_id) is not str)
            or (delivery_mode is not None and (type_of(delivery_mode) is not int or not 1 <= delivery_mode <= 2))
            or (priority is not None and (type_of(priority) is not int or not 0 <= priority <= 255))
            or timestamp is not None
            or (headers is not None and not _plain(headers))
        ):
            wrong = misfit(given)
            if wrong is not None:
                raise errors.InvalidArgument(wrong)
        if properties is None:
            properties = given
        elif not isinstance(properties, Properties):
            raise errors.InvalidArgument(f"properties is {properties!r}: harebell.Properties(...) is needed")
        elif given != _ABSENT:
            raise errors.InvalidArgument("give either properties=... or single properties, not both")
        self.properties: Properties = properties

    @property
    def headers(self) -> Table:
        """The headers table; empty when there is none."""
        return self.properties.headers or {}

    def __repr__(self) -> str:
        return f"Message({_clip(self.body)}, properties={self.properties!r})"


def _plain(headers: object) -> bool:
    """Whether these headers need no closer look."""
    if type(headers) is not dict:
        return False
    for name, value in headers.items():  # noqa: SIM110  a generator would cost each message more
        if type(name) is not str or type(value) not in PLAIN:
            return False
    return True


_new_properties: Final = Properties.__new__
type_of: Final = type  # `type` is a property of a message, and hides the builtin there
_ABSENT: Final = Properties()
_STREAM_OFFSET: Final = b"\x0fx-stream-offsetl"  # the header's entry before its 8 bytes


class Publication:
    """A message on its way in: what to publish, and where to.

    message      a Message, or bytes for a message without properties
    exchange     name of the exchange; "" is the default exchange, where the routing key is a queue's name
    routing_key  as the exchange's type needs it
    mandatory    have it returned (Unroutable) when it reaches no queue; None: as what publishes it does by default, a
                 producer with mandatory, a channel without
    immediate    have it returned when no consumer is ready for it; RabbitMQ has no such thing, and it is refused there
    """

    __slots__ = ("exchange", "immediate", "mandatory", "message", "routing_key")

    def __init__(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool | None = None,
        immediate: bool = False,
    ) -> None:
        self.message = message
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate

    def __repr__(self) -> str:
        immediate = ", immediate=True" if self.immediate else ""
        return (
            f"Publication({self.message!r}, exchange={self.exchange!r}, routing_key={self.routing_key!r}, "
            f"mandatory={self.mandatory}{immediate})"
        )


class Delivery:
    """A message that came to a consumer, or as the answer to `get`.

    exchange, routing_key  where it was published to
    delivery_tag           its number on its channel
    redelivered            whether it may have been delivered before
    consumer_tag           of the consumer it is for; "" for the answer to `get`
    body_size              length of the body in bytes
    """

    __slots__ = (
        "_body",
        "_content",
        "acknowledger",
        "body_size",
        "consumer_tag",
        "delivery_tag",
        "exchange",
        "redelivered",
        "routing_key",
    )

    def __init__(
        self,
        content: Content,
        acknowledger: Acknowledger,
        consumer_tag: str,
        delivery_tag: int,
        redelivered: bool,
        exchange: str,
        routing_key: str,
    ) -> None:
        self._content = content
        self.body_size = content.body_size
        self.acknowledger = acknowledger
        self.consumer_tag = consumer_tag
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.exchange = exchange
        self.routing_key = routing_key

    @property
    def body(self) -> bytes:
        try:
            return self._body
        except AttributeError:
            self._body: bytes = self._content.body
            return self._body

    @property
    def properties(self) -> Properties:
        """The basic properties, decoded at the first use. RemoteProtocolError when they are malformed."""
        return self._content.properties

    @property
    def raw_properties(self) -> bytes:
        """The basic properties as they came: flags and values."""
        return self._content.raw_properties

    @property
    def headers(self) -> Table:
        """The headers table; empty when there is none."""
        return self._content.properties.headers or {}

    @property
    def stream_offset(self) -> int | None:
        """The message's number in its stream queue (x-stream-offset); None from a queue of another type."""
        number = self._content.first_header(_STREAM_OFFSET)  # without headers of one's own it is the only one
        if number is not None:
            return number
        value = self.headers.get("x-stream-offset")
        return value if isinstance(value, int) else None

    def ack(self, *, multiple: bool = False) -> None:
        """Tell the broker that this message (with `multiple`: and every earlier one that the channel has handed out) is
        done.

        ChannelClosed when its channel is closed: then the broker delivers it again. LocalProtocolError when it was
        settled before, or came with no_ack.
        """
        self.acknowledger.ack(self.delivery_tag, multiple=multiple)

    def nack(self, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse it (with `multiple`: and every earlier one): back into the queue, or dead-lettered or dropped."""
        self.acknowledger.nack(self.delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, *, requeue: bool = False) -> None:
        """Refuse this one message: dead-lettered or dropped, or back into the queue."""
        self.acknowledger.reject(self.delivery_tag, requeue=requeue)

    def process(self, *, requeue: bool = False) -> Settling[Delivery]:
        """Work on it: `async with delivery.process():` acknowledges at the end of the block, and rejects on an error.

        requeue  on an error, put it back into its queue instead

        In the block, `raise Reject` and `raise Requeue` say it for this one message; `settling` has the rules. Whoever
        is cancelled gives it back. A delivery can be settled only once after this.
        """
        return Settling(self, requeue=requeue)

    def __repr__(self) -> str:
        return (
            f"Delivery({_clip(self.body)}, exchange={self.exchange!r}, routing_key={self.routing_key!r}, "
            f"delivery_tag={self.delivery_tag}, redelivered={self.redelivered}, consumer_tag={self.consumer_tag!r})"
        )


class Returned:
    """A mandatory publication that the broker gave back, with its reason (312 NO_ROUTE, nearly always)."""

    __slots__ = ("_content", "exchange", "reply_code", "reply_text", "routing_key")

    def __init__(self, content: Content, reply_code: int, reply_text: str, exchange: str, routing_key: str) -> None:
        self._content = content
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.exchange = exchange
        self.routing_key = routing_key

    @property
    def body(self) -> bytes:
        return self._content.body

    @property
    def properties(self) -> Properties:
        return self._content.properties

    def __repr__(self) -> str:
        return (
            f"Returned({self.reply_code} {self.reply_text}, {_clip(self.body)}, exchange={self.exchange!r}, "
            f"routing_key={self.routing_key!r})"
        )


class QueueInfo:
    """The answer to queue_declare: the queue's name, its ready messages and its consumers at that moment."""

    __slots__ = ("consumer_count", "message_count", "name")

    def __init__(self, name: str, message_count: int, consumer_count: int) -> None:
        self.name = name
        self.message_count = message_count
        self.consumer_count = consumer_count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QueueInfo):
            return NotImplemented
        return (self.name, self.message_count, self.consumer_count) == (
            other.name,
            other.message_count,
            other.consumer_count,
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"QueueInfo({self.name!r}, message_count={self.message_count}, consumer_count={self.consumer_count})"


class Confirmation:
    """What became of one publication.

    publish_tag  its number on the channel; the numbers go on over a reconnect
    acked        whether the broker has accepted it
    orphaned     there will be no answer: it may or may not have arrived; `acked` is False
    returned     what came back of it when it was mandatory and reached no queue
    error        the broker's error where it has closed the channel because of this publication; where it is orphaned,
                 what has ended its channel
    """

    __slots__ = ("acked", "error", "orphaned", "publish_tag", "returned")

    def __init__(
        self,
        publish_tag: int,
        acked: bool,
        orphaned: bool = False,
        returned: Returned | None = None,
        error: errors.HarebellError | None = None,
    ) -> None:
        self.publish_tag = publish_tag
        self.acked = acked
        self.orphaned = orphaned
        self.returned = returned
        self.error = error

    def __repr__(self) -> str:
        more = (
            (", orphaned=True" if self.orphaned else "")
            + (f", returned={self.returned}" if self.returned else "")
            + (f", error={self.error!r}" if self.error else "")
        )
        return f"Confirmation(publish_tag={self.publish_tag}, acked={self.acked}{more})"


def encoded(message: Message | bytes) -> tuple[bytes, bytes]:
    """(property flags and values, body) of what is to be published. InvalidArgument for anything else."""
    if isinstance(message, bytes):
        return NO_PROPERTIES, message
    if isinstance(message, Message):
        try:
            return message.properties.encode(), message.body
        except MISFITS as error:  # set after the message was made
            wrong = misfit(message.properties) or f"{message.properties!r} do not fit the wire: {error}"
            raise errors.LocalProtocolError(wrong) from None
    raise errors.InvalidArgument(
        f"a message is a harebell.Message or bytes, not {type_of(message).__name__}: wrap it, Message(body)"
    )


def check_publication(given: object) -> None:
    """InvalidArgument for anything else than a Publication."""
    if not isinstance(given, Publication):
        raise errors.InvalidArgument(
            f"a publication is a harebell.Publication, not {type_of(given).__name__}: wrap it, "
            "Publication(body, exchange, routing_key)"
        )


def copy_of_properties(properties: Properties) -> Properties:
    """A copy that may be changed."""
    return Properties(**{name: getattr(properties, name) for name in Properties.__slots__})


def _clip(body: bytes) -> str:
    return repr(body) if len(body) <= 64 else f"{body[:48]!r}... ({len(body)} bytes)"
