"""Messages of one dialect in the other: once, and only when somebody needs the other form.

A message stays in the form in which it came. One of AMQP 0-10 is in queues as a `ForeignContent`, whose frames of 0-9-1
are made when a 0-9-1 consumer, the disk or an exchange that reads headers asks for them. One of 0-9-1 is converted when
it goes to a subscriber of 0-10 (`Outgoing`), and stays in a small cache for the next one.

The properties: `protocol.conversion.properties`. What no property of 0-9-1 can say is in the message's `origin`, with
which a queue stores it; a stream does not.
"""

from __future__ import annotations

from harebell.broker.message import STORED_CHANNEL, Address, Message
from harebell.defaults import FRAME_MAX
from harebell.errors import LocalProtocolError
from harebell.protocol import v010, v091
from harebell.protocol.conversion.contents import Headers, ShapeToV091, ToV091
from harebell.protocol.conversion.properties import from_v091, header_of, properties_of
from harebell.protocol.v010.frames import LARGEST_FRAME, channel_of
from harebell.protocol.v010.shapes import TEXT_ID, Shape
from harebell.protocol.v091.codec import decode_properties

__all__ = ["ForeignContent", "Form", "Outgoing", "content_of", "is_exact", "takes_shape"]


class Form:
    """What 0-9-1 says for a header of 0-10: the same for all messages with this header, or with one of this shape."""

    __slots__ = ("_native", "_shape", "_to_v091", "persistent", "priority")

    def __init__(self, native: v010.Content, shape: Shape | None = None) -> None:
        delivery = native.delivery_properties
        self.persistent = delivery.delivery_mode == 2
        self.priority = min(delivery.priority or 0, 255)
        self._native: v010.Content | None = native
        self._shape = shape
        self._to_v091: ToV091 | ShapeToV091 | None = None

    @property
    def to_v091(self) -> ToV091 | ShapeToV091:
        """What makes frames of 0-9-1 of messages with this header."""
        if self._to_v091 is None:
            first, self._native = self._native, None  # nothing else needs it
            assert first is not None
            properties, shape = _properties_of(first), self._shape
            if shape is None:
                self._to_v091 = ToV091(STORED_CHANNEL, properties, first.header_size, FRAME_MAX)
            else:
                self._to_v091 = ShapeToV091(STORED_CHANNEL, properties, shape, FRAME_MAX)
        return self._to_v091


class ForeignContent(v091.BaseContent):
    """A message of AMQP 0-10 as a content of 0-9-1.

    native_frames   the message as it came; `native_channel` is the channel in them
    """

    __slots__ = ("_converted", "_form", "native_channel", "native_frames")

    channel = STORED_CHANNEL
    method = b""

    def __init__(self, channel: int, frames: bytes, body_size: int, form: Form) -> None:
        self.native_channel = channel
        self.native_frames = frames
        self.body_size = body_size
        self._form = form

    @classmethod
    def of(cls, native: v010.Content) -> ForeignContent:
        return cls(native.channel, native.frames, native.body_size, Form(native))

    @property
    def native(self) -> v010.Content:
        """The message as it came; its command is not kept."""
        return v010.Content(self.native_channel, b"", self.native_frames, self.body_size)

    @property
    def frames(self) -> bytes:  # made at the first use
        try:
            return self._converted
        except AttributeError:
            self._converted: bytes = self._form.to_v091.frames(self.native_frames, self.body_size)
            return self._converted

    def decode_properties(self) -> v091.Properties:
        """The properties, decoded anew, without the frames."""
        return decode_properties(self._form.to_v091.properties(self.native_frames), 0, self.channel)

    @property
    def persistent(self) -> bool:
        return self._form.persistent

    @property
    def priority(self) -> int:
        return self._form.priority


def _properties_of(native: v010.Content) -> bytes:
    properties, _ = properties_of(native)
    try:
        return properties.encode()
    except LocalProtocolError:  # headers nested deeper than a table may be: those that fit are kept
        properties.headers = {name: value for name, value in (properties.headers or {}).items() if _fits(name, value)}
        return properties.encode()


def _fits(name: str, value: object) -> bool:
    try:
        v091.Properties(headers={name: value}).encode()
    except LocalProtocolError:
        return False
    return True


def is_exact(native: v010.Content) -> bool:
    """Whether `from_v091` gives a message like this one back: else it needs its `origin` when it is stored."""
    return properties_of(native)[1]


def takes_shape(native: v010.Content, shape: Shape) -> bool:
    """Whether all messages with a header of that shape, which is this one's, may have the same `Form`."""
    properties = _properties_of(native)
    if not ShapeToV091.takes(shape, properties):
        return False
    if TEXT_ID not in shape.names:
        return True
    head = shape.filled(
        [
            _other_text(value) if name == TEXT_ID else value
            for name, value in zip(shape.names, shape.values(native.frames), strict=True)
        ]
    )
    other = v010.Content(native.channel, native.command, head + native.frames[shape.size :], native.body_size)
    return ShapeToV091(STORED_CHANNEL, properties, shape, FRAME_MAX).properties(other.frames) == _properties_of(other)


def _other_text(value: bytes) -> bytes:
    """Another text of the same length."""
    return (b"x" if value[:1] != b"x" else b"y") * len(value)


def content_of(address: Address, content: v091.BaseContent, origin: bytes = b"") -> v010.Content:
    """A message of 0-9-1 as one of 0-10, in frames of full size on channel 0."""
    header = origin or header_of(*from_v091(address.exchange, address.routing_key, content.decode_properties()))
    frames = v010.encode_content(0, header, content.body, LARGEST_FRAME)
    return v010.Content(0, b"", frames, content.body_size)


class Outgoing:
    """Messages on their way to subscribers of 0-10, in frames that fit a connection.

    channel  the session's, which the frames are on
    largest  the largest frame that the client takes
    """

    def __init__(self) -> None:
        self.channel = 0
        self.largest = LARGEST_FRAME
        self._headers = Headers()

    def frames(self, message: Message) -> bytes:
        """The message in frames of 0-10."""
        content = message.content
        if type(content) is ForeignContent:
            frames = content.native_frames
            if content.native_channel == self.channel and len(frames) <= self.largest:
                return frames
            return content.native.frames_for(self.channel, self.largest)
        if message.origin:
            return content_of(message.address, content, message.origin).frames_for(self.channel, self.largest)
        return self.stored(message.address, content.frames)

    def stored(self, address: Address, frames: bytes) -> bytes:
        """The same for a message that is an address and frames of 0-9-1."""
        wire, exchange, routing_key = address.wire, address.exchange, address.routing_key
        found = self._headers.frames(self.channel, wire, exchange, routing_key, frames)
        return found if len(found) <= self.largest else self.fitted(found)

    def fitted(self, frames: bytes) -> bytes:
        """Frames of 0-10, on any channel, as they go out."""
        if not frames:
            return frames
        return v010.Content(channel_of(frames), b"", frames, 0).frames_for(self.channel, self.largest)

    def native(self, message: Message) -> v010.Content:
        """The message in the form of 0-10, as it came if it came in 0-10."""
        content = message.content
        if type(content) is ForeignContent:
            return content.native
        return content_of(message.address, content, message.origin)
