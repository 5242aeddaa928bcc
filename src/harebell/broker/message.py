"""Messages in queues: a message with the address that it was published to, and a queue's data about it."""

from __future__ import annotations

from typing import Final, TypeAlias

from harebell.protocol.v091 import BaseContent, Content
from harebell.protocol.v091.codec import END
from harebell.protocol.v091.content import FLAGS_AT, stored_content
from harebell.protocol.v091.fields import read_shortstr, write_shortstr
from harebell.protocol.v091.fitting import fits, fitting_frames
from harebell.protocol.v091.large_frames import LARGE, Frames, LargeFrames
from harebell.protocol.v091.splice import DELIVERY_COUNT, header_frame_size, replace_raw_properties

__all__ = ["STORED_CHANNEL", "Address", "Given", "Held", "MarkedMessage", "Message", "NumberedMessage", "to_held"]

STORED_CHANNEL: Final = 1  # of frames on disk: most clients use it first, so most deliveries need no rewriting


class Address:
    """Exchange and routing key of a publication, with their bytes in a delivery.

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

    @classmethod
    def read(cls, wire: bytes) -> Address:
        """The address with this `wire` form."""
        exchange, at = read_shortstr(wire, 0)
        return cls(exchange, read_shortstr(wire, at)[0])


class Message:
    """One message on its way through queues; shared by all the queues that it was routed to.

    `keys` are the keys that it was routed by, where its address and CC header do not contain them: after a BCC header,
    which is hidden from consumers, or a dead-letter routing key, which overrules CC. `bcc` are those of them that were
    in BCC. `died`: this broker dead-lettered it before. `ttl` is its expiration in milliseconds. `origin` is the header
    segment of an AMQP 0-10 client, where the properties of 0-9-1 do not say the same. `number` says which session
    sent it in which command, as bytes (`store.positions`), where the session survives a restart. Nearly no message has
    any of these, so only a MarkedMessage has attributes for them, and a NumberedMessage for its number.
    """

    __slots__ = ("address", "content")

    keys: tuple[str, ...] | None = None
    bcc: tuple[str, ...] = ()
    died: bool = False
    ttl: int | None = None
    origin: bytes = b""
    number: bytes = b""

    def __init__(self, address: Address, content: BaseContent) -> None:
        self.address = address
        self.content = content


class NumberedMessage(Message):
    __slots__ = ("number",)

    def __init__(self, address: Address, content: BaseContent, number: bytes) -> None:
        self.address = address
        self.content = content
        self.number = number


class MarkedMessage(Message):
    __slots__ = ("bcc", "died", "keys", "number", "origin", "ttl")

    def __init__(
        self,
        address: Address,
        content: BaseContent,
        keys: tuple[str, ...] | None = None,
        bcc: tuple[str, ...] = (),
        *,
        died: bool = False,
        ttl: int | None = None,
        origin: bytes = b"",
        number: bytes = b"",
    ) -> None:
        self.address = address
        self.content = content
        self.keys = keys
        self.bcc = bcc
        self.died = died
        self.ttl = ttl
        self.origin = origin
        self.number = number


class Held:
    """A message in one queue: its place there, its deadline, and how often it was delivered.

    position  its place in the queue; a message that comes back goes to its old place
    deadline  when it expires, in milliseconds of the node's clock; 0: never
    priority  of its level in the queue
    count     deliveries so far that ended without an acknowledgement
    gone      it left the queue from the middle, and is removed when it comes to the head
    listed    the deadlines of a backlog that it has an entry in
    """

    __slots__ = ("count", "deadline", "gone", "listed", "message", "position", "priority")

    def __init__(self, message: Message, position: int, deadline: int = 0, priority: int = 0) -> None:
        self.message = message
        self.position = position
        self.deadline = deadline
        self.priority = priority
        self.count = 0
        self.gone = False
        self.listed: object = None

    def __lt__(self, other: Held) -> bool:
        return self.position < other.position

    def __hash__(self) -> int:  # for mypyc, whose classes that compare have none
        return id(self)

    def renewed(self) -> Held:
        """Another entry for the same message, which is in no queue."""
        held = type(self)(self.message, self.position, self.deadline, self.priority)
        held.count, held.gone = self.count, True
        return held

    @property
    def size(self) -> int:
        return self.message.content.body_size

    def frames_for(self, channel: int, frame_max: int) -> Frames:
        """The message's frames, with x-delivery-count among its headers when it was delivered before and that fits.

        LocalProtocolError when its properties do not fit a frame without the headers that brokers add.
        """
        content = self.message.content
        if not self.count or len(content.frames) <= LARGE:
            frames = fitting_frames(content, channel, frame_max)
            return self._counted(frames, frame_max) if self.count and isinstance(frames, bytes) else frames
        stored = content.frames
        size = header_frame_size(stored)
        head = Content(content.channel, content.method, stored[:size], content.body_size)
        header = fitting_frames(head, content.channel, frame_max)
        assert isinstance(header, bytes)  # a header frame that fits is not large
        return LargeFrames(self._counted(header, frame_max), stored, size, channel, frame_max)

    def _counted(self, frames: bytes, frame_max: int) -> bytes:
        if DELIVERY_COUNT.may_be_in(frames):  # a publisher's or another broker's own is replaced by this broker's
            properties = frames[FLAGS_AT : header_frame_size(frames) - 1]
            frames = replace_raw_properties(frames, DELIVERY_COUNT.take_from(properties))
        counted = DELIVERY_COUNT.put_into(frames, self.count)
        return counted if header_frame_size(counted) <= frame_max else frames

    def fits(self, frame_max: int) -> bool:
        """Whether the message fits a peer with this frame size (0: no limit)."""
        return fits(self.message.content.frames, frame_max)


Given: TypeAlias = Message | Held | tuple[Address, bytes]
"""A delivery as its channel notes it. One from disk is address and frames: it needs more only when it comes back."""


def to_held(given: Given, position: int) -> Held:
    """The message of a returned delivery, with its place in the queue."""
    if isinstance(given, Held):
        return given
    if isinstance(given, Message):
        return Held(given, position)
    address, frames = given
    return Held(Message(address, stored_content(STORED_CHANNEL, frames)), position)
