"""Messages of sessions: a publication as a transfer, and a delivery, which is a transfer of the broker.

Properties are those of `harebell.Message`, which AMQP 0-10 has too (`protocol.conversion.properties`). A delivery has
the original ones as well.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

from harebell import errors
from harebell.client.messages import Message
from harebell.client.sessions.calls import Sent
from harebell.protocol.conversion.properties import from_v091, header_of, properties_of
from harebell.protocol.v010 import Content, DeliveryProperties, MessageProperties, commands as c
from harebell.protocol.v010.codec import encode_command
from harebell.protocol.v010.domains import AcceptMode, AcquireMode
from harebell.protocol.v091 import Properties, Table

__all__ = ["BaseDelivery", "Delivery", "Settler", "transfer", "transfer_command"]


def transfer(
    message: Message | bytes, exchange: str, routing_key: str, *, mandatory: bool = False, sync: bool = False
) -> Sent:
    """The transfer of a message.

    InvalidArgument for what is no message, and for properties that AMQP 0-10 has not: an expiration that is no number
    of milliseconds, cluster-id. LocalProtocolError when a property does not fit its type.
    """
    if isinstance(message, bytes):
        return Sent(*_plain(exchange, routing_key, mandatory, sync), message)
    if isinstance(message, Message):
        properties, body = message.properties, message.body
    else:
        raise errors.InvalidArgument(
            f"a message is a harebell.Message or bytes, not {type(message).__name__}: wrap it, Message(body)"
        )
    if properties.reserved is not None:
        raise errors.InvalidArgument("cluster-id is a property of AMQP 0-9 alone")
    delivery, rest = from_v091(exchange, routing_key, properties)
    if properties.expiration is not None and delivery.ttl is None:
        raise errors.InvalidArgument(f"expiration is {properties.expiration!r}: milliseconds are needed, as digits")
    delivery.discard_unroutable = not mandatory
    return Sent(_command(exchange, sync), header_of(delivery, rest), body)


@lru_cache(maxsize=256)
def _plain(exchange: str, routing_key: str, mandatory: bool, sync: bool) -> tuple[bytes, bytes]:
    """The command and the header of messages without properties."""
    delivery = DeliveryProperties(discard_unroutable=not mandatory, exchange=exchange, routing_key=routing_key)
    return encode_command(_command(exchange, sync)), header_of(delivery, MessageProperties())


@lru_cache(maxsize=256)
def transfer_command(exchange: str) -> bytes:
    """The payload of the command of transfers to this exchange. LocalProtocolError when its name does not fit."""
    return encode_command(_command(exchange, sync=False))


def _command(exchange: str, sync: bool) -> c.MessageTransfer:
    return c.MessageTransfer(exchange, AcceptMode.EXPLICIT, AcquireMode.PRE_ACQUIRED, sync=sync)


class Settler(Protocol):
    """The session of a delivery, as far as the delivery knows it."""

    def accept(self, delivery: BaseDelivery) -> None: ...
    def release(self, delivery: BaseDelivery, *, set_redelivered: bool) -> None: ...
    def reject(self, delivery: BaseDelivery, text: str | None) -> None: ...
    def acquire(self, delivery: BaseDelivery, timeout: float | None) -> Any: ...  # a bool, or it awaits one


class BaseDelivery:
    """What the deliveries of the asyncio API and of the blocking one have in common.

    number        its number in the session (command id), which stays the same over a lost connection
    consumer_tag  of the consumer it is for
    acquired      whether it is taken out of its queue, for this session; browsed ones are not
    settled       whether it is accepted, released or rejected, or needs nothing of that
    generation    of the session's state: settling it makes no sense in a later one
    settler       its session, as far as it is settled there: the client's own, and no public API
    """

    __slots__ = (
        "_body",
        "_content",
        "_properties",
        "acquired",
        "consumer_tag",
        "generation",
        "number",
        "settled",
        "settler",
    )

    def __init__(
        self,
        content: Content,
        session: Settler,
        consumer_tag: str,
        number: int,
        generation: int,
        *,
        acquired: bool,
        settled: bool,
    ) -> None:
        self._content = content
        self.settler = session
        self.consumer_tag = consumer_tag
        self.number = number
        self.generation = generation
        self.acquired = acquired
        self.settled = settled

    @property
    def body(self) -> bytes:
        try:
            return self._body
        except AttributeError:
            self._body: bytes = self._content.body
            return self._body

    @property
    def body_size(self) -> int:
        """Length of the body in bytes."""
        return self._content.body_size

    @property
    def properties(self) -> Properties:
        """The properties as AMQP 0-9-1 has them, converted at the first use. RemoteProtocolError when malformed."""
        try:
            return self._properties
        except AttributeError:
            self._properties: Properties = properties_of(self._content)[0]
            return self._properties

    @property
    def headers(self) -> Table:
        """The headers; empty when there are none."""
        return self.properties.headers or {}

    @property
    def delivery_properties(self) -> DeliveryProperties:
        """The original delivery-properties."""
        return self._content.delivery_properties

    @property
    def message_properties(self) -> MessageProperties:
        """The original message-properties."""
        return self._content.message_properties

    @property
    def exchange(self) -> str:
        """Where it was published to."""
        return self._content.delivery_properties.exchange or ""

    @property
    def routing_key(self) -> str:
        return self._content.delivery_properties.routing_key or ""

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self._content.delivery_properties.redelivered

    def accept(self) -> None:
        """Tell the broker that this message is done; in a transaction, when that is committed.

        It is sent with the next output, and survives a lost connection: `session.sync()` waits for it. These three
        raise LocalProtocolError when the delivery is settled or not acquired, SessionStateLost when the broker delivers
        it again, ChannelClosed when the session has ended.
        """
        self.settler.accept(self)

    def release(self, *, set_redelivered: bool = False) -> None:
        """Give it back to its queue, at once even in a transaction; with `set_redelivered`, as redelivered."""
        self.settler.release(self, set_redelivered=set_redelivered)

    def reject(self, text: str | None = None) -> None:
        """Refuse it, at once even in a transaction: dead-lettered, or dropped. `text` says why, for the broker."""
        self.settler.reject(self, text)

    def __repr__(self) -> str:
        body = repr(self.body) if self.body_size <= 64 else f"{self.body[:48]!r}... ({self.body_size} bytes)"
        return (
            f"Delivery({body}, exchange={self.exchange!r}, routing_key={self.routing_key!r}, number={self.number}, "
            f"redelivered={self.redelivered}, consumer_tag={self.consumer_tag!r})"
        )


class Delivery(BaseDelivery):
    """A message that came to a consumer, or as the answer to `get`."""

    __slots__ = ()

    async def acquire(self, *, timeout: float | None = None) -> bool:
        """Take a browsed message out of its queue; whether it was still there. Then it is to be settled."""
        return bool(await self.settler.acquire(self, timeout))
