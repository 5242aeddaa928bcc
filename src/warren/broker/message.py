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

    `keys` are the keys that it was routed by, where its address and CC header do not tell: after a BCC header, which
    nobody may see, or a dead-letter routing key, which overrules CC. `bcc` are those of them that were in BCC. `died`
    says that this broker dead-lettered it before. Nearly no message has any of these, so only a MarkedMessage
    has room for them.
    """

    __slots__ = ("address", "content")

    keys: tuple[str, ...] | None = None
    bcc: tuple[str, ...] = ()
    died: bool = False

    def __init__(self, address: Address, content: Content) -> None:
        self.address = address
        self.content = content


class MarkedMessage(Message):
    __slots__ = ("bcc", "died", "keys")

    def __init__(
        self, address: Address, content: Content, keys: tuple[str, ...], bcc: tuple[str, ...], *, died: bool = False
    ) -> None:
        super().__init__(address, content)
        self.keys = keys
        self.bcc = bcc
        self.died = died
