"""What a queue holds: a message with the address that it was published to."""

from __future__ import annotations

from warren.protocol.v091 import Content
from warren.protocol.v091.codec import END
from warren.protocol.v091.fields import write_shortstr

__all__ = ["Address", "MarkedMessage", "Message"]


class Address:
    """Exchange and routing key of a publication, with the bytes that they become in a delivery.

    `wire` is both as short strings; `fresh` and `again` are the end of a basic.deliver frame after the delivery tag,
    for a first delivery and a redelivery.
    """

    __slots__ = ("again", "exchange", "fresh", "routing_key", "wire")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.wire = write_shortstr(exchange, "exchange") + write_shortstr(routing_key, "routing_key")
        self.fresh = b"\0" + self.wire + END
        self.again = b"\1" + self.wire + END


class Message:
    """One message on its way through queues; shared by all the queues that it was routed to.

    `bcc` are routing keys that were in its BCC header, which nobody may see; `died` says that this broker
    dead-lettered it before. Nearly no message has either, so they take room only in a MarkedMessage.
    """

    __slots__ = ("address", "content")

    bcc: tuple[str, ...] = ()
    died: bool = False

    def __init__(self, address: Address, content: Content) -> None:
        self.address = address
        self.content = content


class MarkedMessage(Message):
    __slots__ = ("bcc", "died")

    def __init__(self, address: Address, content: Content, bcc: tuple[str, ...] = (), died: bool = False) -> None:
        super().__init__(address, content)
        self.bcc = bcc
        self.died = died
