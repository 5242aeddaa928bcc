"""The 0-9-1 engine: bytes in, events out; methods and messages in, bytes out. No I/O, no clock, either role.

    engine = Engine(Role.CLIENT)
    engine.send_header()
    transport.write(engine.data_to_send())
    ...
    engine.receive_data(data)               # RemoteProtocolError: what came before it is still in events()
    for channel, event in engine.events():  # event: a Method, a Content or an OversizedContent
        ...

Theory of operation. The engine splits data into frames. It decodes a method and checks it against the tables of
`states`: an allowed method becomes an event, any other raises RemoteProtocolError with the reply code for the peer. A
method that carries content is not decoded: it stays bytes in a Content, together with the slice of the input that
holds its header and body frames. When all of them are in one buffer, which is nearly always, that is one pass and one
slice (`_whole_content`); otherwise an `Assembly` gathers the frames of a channel.

The file is long because the state of a connection's input is in one place: the loop over frames, the checks of what
follows what, and both ways in which a content arrives.

Rules:
1. On any input, `receive_data` either returns or raises RemoteProtocolError. Where the peer broke framing, the engine
   receives nothing after that; otherwise the next call goes on behind the offending frame, so that the engine
   understands the close-ok that answers the caller's connection.close.
2. The `send_` methods are the only way out. They raise LocalProtocolError for a frame longer than the peer's
   `frame_max`, and send nothing then. Those that take Method objects also refuse what the tables forbid in the present
   state; those that take encoded frames, for the hot paths, leave that check to the caller.
3. What crosses a close is dropped, in both directions. After it has sent a close, the engine drops everything from the
   peer but close and close-ok, on that channel or on the connection. After the peer's close it drops what the peer
   still sends there, until the close-ok is sent, and the rest of a message of which it has dropped a part. A client
   drops everything on a closed channel until that is opened again, because RabbitMQ delivers for a while after its
   channel.close. After the connection's last close-ok everything is dropped. A client's close that comes again before
   the answer, from another of its threads, gets a close-ok of its own, as RabbitMQ gives it.
4. The peer's frames may not exceed `frame_max`, its channels `channel_max`, its bodies `max_message_size`. As with
   RabbitMQ the payload of a method or body frame may have `frame_max` bytes, which some clients send; a header frame
   goes on to consumers uncut, and may not. What is sent keeps to the limit.
5. A client may run ahead in the handshake: a server keeps what comes behind the protocol header, start-ok and secure-ok
   until it has answered them. Then `waiting` is True, and `receive_data(b"")` goes on.
6. The events do not depend on how the input is cut into buffers, and no cut makes receiving cost more than linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from struct import Struct
from typing import Final, TypeAlias, cast

from harebell import errors
from harebell.defaults import FRAME_MAX, FRAME_MIN
from harebell.protocol.greeting import LEAST, foreign
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.assembly import Assembly
from harebell.protocol.v091.bulk import encode_contents
from harebell.protocol.v091.client_text import checked_decode, decode_client_method
from harebell.protocol.v091.codec import (
    FRAME_OVERHEAD,
    FRAME_PREFIX,
    HEARTBEAT_FRAME,
    MALFORMED,
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_9,
    decode_method,
    encode_method,
    encode_properties,
    too_long,
)
from harebell.protocol.v091.content import (
    BASIC_CLASS,
    CONTENT_HEAD,
    HEADER_FIXED,
    NEXT_BODY,
    Content,
    OversizedContent,
    check_frames,
    encode_content,
)
from harebell.protocol.v091.large_frames import LARGE, Frames, LargeFrames
from harebell.protocol.v091.property_flags import CORRELATION_ID, HEADERS, MESSAGE_ID, TIMESTAMP
from harebell.protocol.v091.runs import AckRun, ContentRun
from harebell.protocol.v091.states import (
    CHANNEL_CLOSED_BY,
    CHANNEL_TRANSITIONS,
    CLOSED_BY,
    CONNECTION_TRANSITIONS,
    MAY_SEND,
    ChannelState,
    ConnectionState,
    Role,
)

__all__ = ["Engine", "Event", "Grouped"]

Event: TypeAlias = "tuple[int, m.Method | Content | OversizedContent]"
Grouped: TypeAlias = "m.Method | Content | OversizedContent | ContentRun | AckRun"

LONG: Final = 1 << 14  # bytes of a message above which it costs less to write it on its own than to copy it
COUNTED: Final = 1 << 11  # bytes of a long message that count in a part of the input
HANDSHAKE_FRAME_MAX: Final = FRAME_MAX  # before tuning; the specification's 4096 is too small for a token in start-ok
UNLIMITED_FRAME_MAX: Final = 1 << 20  # the largest frame sent where neither peer sets a limit
MOST_CHANNELS: Final = 65_535  # a channel number has 16 bits
DEFAULT_CHANNEL_MAX: Final = 2047  # RabbitMQ's default; a client that leaks channels reaches it early
MOST_AHEAD: Final = 1 << 20  # bytes that a client may send ahead of the handshake
MAX_MESSAGE_SIZE: Final = 134_217_728  # 128 MiB, RabbitMQ 3.10's default

_METHOD, _HEADER, _BODY, _HEARTBEAT = m.FRAME_METHOD, m.FRAME_HEADER, m.FRAME_BODY, m.FRAME_HEARTBEAT
_CONTENT_HEADER: Final = Struct(">BHIIQ")  # a header frame up to its property flags; class and weight as one number
_ACK_FRAME: Final = Struct(">BHIIQBB")  # the whole frame of a basic.ack
_ACK: Final = 60 << 16 | 80
_ACK_SIZE: Final = 13  # of its payload
_ACK_HEAD: Final = 11  # bytes of its frame up to the tag
_ACK_REST: Final = Struct(">QBB")
_ACK_KEY: Final = b"\0\x3c\0\x50"
_BASIC_WEIGHT_0: Final = 60 << 16
_MIN_HEADER_PAYLOAD: Final = HEADER_FIXED.size + 2  # class, weight, size, flags
_HEADER_OVERHEAD: Final = FRAME_OVERHEAD + HEADER_FIXED.size  # bytes of a header frame without its properties
_OFTEN_UNIQUE: Final = CORRELATION_ID | MESSAGE_ID | TIMESTAMP | HEADERS  # messages with these are seldom alike
_CONTENT_KEYS: Final = {
    role: frozenset(key for key, cls in m.METHODS.items() if cls in m.CARRIES_CONTENT & MAY_SEND[role]) for role in Role
}
# Methods without content that a peer may send on an open channel at any time. They change no state, so that the look-up
# in this table is their only check.
_PLAIN: Final = {
    role: {
        key: checked_decode(cls) if role is Role.CLIENT else cls.decode
        for key, cls in m.METHODS.items()
        if cls in MAY_SEND[role] and cls not in m.CARRIES_CONTENT and cls.CLASS_ID not in (10, 20)
    }
    for role in Role
}
_CONNECTION_CLOSE: Final = b"\0\x0a\0\x32"
_CONNECTION_CLOSING: Final = frozenset({_CONNECTION_CLOSE, b"\0\x0a\0\x33"})  # and close-ok
_SECRET: Final = (b"\0\x0a\0\x0b", b"\0\x0a\0\x15", b"\0\x0a\0\x46")  # start-ok, secure-ok, update-secret: passwords
_CHANNEL_OPEN: Final = b"\0\x14\0\x0a"
_CHANNEL_CLOSE: Final = b"\0\x14\0\x28"
_CHANNEL_CLOSING: Final = frozenset({_CHANNEL_CLOSE, b"\0\x14\0\x29"})  # and close-ok
_CHANNEL_REOPENING: Final = _CHANNEL_CLOSING | {_CHANNEL_OPEN}  # an open is refused
_CHANNEL_OPENING: Final = _CHANNEL_CLOSING | {b"\0\x14\0\x0b"}  # and open-ok
# The states in which each peer may use a channel, and any channel at all. Rule 6 of `states` lets the client run ahead.
_USABLE: Final = {
    Role.CLIENT: frozenset({ChannelState.OPEN, ChannelState.AWAIT_OPEN_OK}),
    Role.SERVER: frozenset({ChannelState.OPEN}),
}
_CONNECTION_USABLE: Final = {
    Role.CLIENT: frozenset({ConnectionState.OPEN, ConnectionState.AWAIT_OPEN_OK}),
    Role.SERVER: frozenset({ConnectionState.OPEN}),
}


class Engine:
    """The protocol state of one peer of one connection.

    role              which peer this is
    frame_max         largest frame in bytes; from tune-ok on, the negotiated one
    channel_max       largest channel number; from tune-ok on, the negotiated one
    max_message_size  largest body accepted, in bytes
    grouping          whether `grouped_events` has messages that are alike, and acks, together: a server's does
    pending           how many pieces of output wait for `data_to_send`
    """

    def __init__(
        self,
        role: Role,
        *,
        frame_max: int = HANDSHAKE_FRAME_MAX,
        channel_max: int = DEFAULT_CHANNEL_MAX,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        self.role = role
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.max_message_size = max_message_size
        self.grouping = role is Role.SERVER
        self.state = ConnectionState.AWAIT_HEADER
        self.channels: dict[int, ChannelState] = {}
        self._outgoing: list[bytes | memoryview] = []  # pieces of whole frames, until `data_to_send` takes them
        self._gathered: tuple[memoryview, list[int]] | None = None  # their first one, and what of it was written
        # A program's messages often have one length and the same properties: channel, bytes of body and properties of
        # the last one that was sent, and what it had before its body.
        self._last_shape = (0, 0, b""), b""
        self._peer = role.peer
        self._content_keys = _CONTENT_KEYS[role.peer]
        self._plain, self._decode = _PLAIN[role.peer], decode_method if role is Role.CLIENT else decode_client_method
        self._held: list[bytes] = []  # input that is no whole frame yet, or ahead of the handshake
        self._ran_ahead = False
        self._missing = 0  # how many more bytes to wait for before parsing that again
        self._deaf = False
        self._halted = False  # deaf, or the answer of this side comes first (rule 5)
        self._offered = m.ConnectionTune(channel_max, frame_max)
        self._events: list[tuple[int, Grouped]] = []
        self._assemblies: dict[int, Assembly] = {}
        # Closed channels on which more may come from before the close; `channel_max` limits them.
        self._late: set[int] = set()
        self._repeated: dict[int, int] = {}  # how often a close has come again that is not answered yet
        self._limit_payload(max(frame_max, HANDSHAKE_FRAME_MAX))

    def _limit_payload(self, frame_max: int) -> None:
        self._max_payload = frame_max - FRAME_OVERHEAD
        self._max_received = frame_max
        self._max_whole_body = min(frame_max, self.max_message_size)

    # -- receiving ---------------------------------------------------------------------------------------------

    @property
    def deaf(self) -> bool:
        """True when the engine receives nothing any more: framing is lost, or the connection is closed."""
        return self._deaf

    @property
    def waiting(self) -> bool:
        """True when the client ran ahead in the handshake, and what it sent can be received now."""
        return self._ran_ahead and not self._halted and not self._deaf

    def receive_data(self, data: bytes) -> None:
        """Process what the transport read. Raises RemoteProtocolError when the peer broke the protocol."""
        self.receive_part(data, 0, len(data))

    def receive_part(self, data: bytes, at: int, most: int) -> tuple[bytes, int]:
        """Process a part of what the transport read: the frames that begin in the `most` bytes from `at` on.

        Of a long message only COUNTED bytes count, what it costs beside its copies, unless it is alike to short ones
        before it.

        Returns what is left, and where that begins: it is to be received next. Raises RemoteProtocolError when the peer
        broke the protocol; then nothing is left.
        """
        if self._halted or self._deaf:
            self._hold(data[at:])
            return b"", 0
        self._ran_ahead = False
        held = self._held
        while held:
            missing, came = self._missing, len(data) - at
            if came < missing:
                held.append(data[at:])
                self._missing -= came
                return b"", 0
            if not missing or self.state.value <= ConnectionState.AWAIT_START.value:
                held.append(data[at:])
                data, at = b"".join(held), 0
                most += len(data) - came
                held.clear()
                break
            self._complete(data, at, missing)
            at += missing
            most -= missing
            if self._halted:
                self._hold(data[at:])
                return b"", 0
        if self.state is ConnectionState.AWAIT_HEADER or self.state is ConnectionState.AWAIT_START:
            begins = self._receive_header(data)
            if begins < 0:
                held.append(data)
                self._missing = 1
                return b"", 0
            at += begins
            if self._halted:
                self._hold(data[at:])
                return b"", 0
        return data, self._receive_frames(data, at, at + most)

    def _complete(self, data: bytes, at: int, missing: int) -> None:
        """Process the frame, or its prefix, whose last `missing` bytes have come: the others need not be copied."""
        self._held.append(data[at : at + missing])
        frame = b"".join(self._held)
        self._held.clear()
        try:
            self._receive_frames(frame, 0, len(frame))
        except errors.RemoteProtocolError:
            if not self._deaf:
                self._held.append(data[at + missing :])
                self._missing = 0
            raise

    def _hold(self, data: bytes) -> None:
        """Keep what must wait for this side's answer in the handshake."""
        if self._deaf or not data:
            return
        self._ran_ahead = True
        self._held.append(data)
        self._missing = 0
        if sum(map(len, self._held)) > MOST_AHEAD:
            raise self._framing_lost(_METHOD, b"", f": more than {MOST_AHEAD} bytes before the end of the handshake")

    # Whole, because it runs for each frame, and a call costs as much as the rest of it.
    def _receive_frames(self, data: bytes, at: int, limit: int) -> int:  # noqa: C901, PLR0915
        """Process the frames from `at` on that begin before the limit. Returns where the rest begins."""
        end, append, channels, assemblies = len(data), self._events.append, self.channels, self._assemblies
        is_open, max_received, content_keys = ChannelState.OPEN, self._max_received, self._content_keys
        size, grouping = 0, self.grouping
        try:
            while end - at >= FRAME_OVERHEAD and at < limit:
                kind, channel, size = FRAME_PREFIX.unpack_from(data, at)
                stop = at + 7 + size
                if size > max_received or (kind == _HEADER and size > self._max_payload):
                    raise self._too_large(kind, size)
                if stop >= end:
                    break
                if data[stop] != 206:
                    payload = data[at + 7 : stop]
                    raise self._framing_lost(kind, payload, f": {{invalid_frame_end_marker,{data[stop]}}}")
                if kind == _METHOD:
                    start = at + 7
                    if data[start : start + 4] in content_keys and channels.get(channel) is is_open:
                        if channel not in assemblies:
                            content = self._whole_content(data, stop + 1, end, channel, data[start:stop])
                            if content is not None:
                                after = stop + 1 + len(content.frames)
                                if after - at > LONG:
                                    append((channel, content))
                                    limit += after - at - COUNTED
                                    at = after
                                elif grouping and after < end:
                                    at = self._receive_run(data, at, after, end, limit, content)
                                else:
                                    append((channel, content))
                                    at = after
                                continue
                        self._begin_content(channel, data[start:stop])
                    elif (
                        grouping and size == _ACK_SIZE and data[start : start + 4] == _ACK_KEY
                        and channels.get(channel) is is_open and channel not in assemblies
                    ):  # fmt: skip
                        at = self._receive_acks(data, at, end, limit, channel)
                        continue
                    else:
                        self._receive_method(channel, data[start:stop])
                        if self._halted:
                            self._hold(data[stop + 1 :])
                            return end
                        max_received = self._max_received  # tune-ok changes it
                elif kind == _BODY or kind == _HEADER:
                    self._receive_content_frame(kind, channel, data[at : stop + 1])
                elif kind != _HEARTBEAT or size:
                    raise self._framing_lost(kind, data[at + 7 : stop], ": unknown_frame")
                elif channel:
                    raise errors.RemoteProtocolError(errors.UnexpectedFrame, "type 8, all octets = <<>>")
                at = stop + 1
        except errors.RemoteProtocolError:
            if not self._deaf and stop + 1 < end:
                self._held.append(data[stop + 1 :])
                self._missing = 0
            raise
        if limit <= at < end:
            return at
        if at < end:
            self._held.append(data[at:] if at else data)
            if end - at < FRAME_PREFIX.size:
                self._missing = at + FRAME_PREFIX.size - end
                return end
            if end - at == FRAME_PREFIX.size:
                kind, channel, size = FRAME_PREFIX.unpack_from(data, at)
                if size > max_received or (kind == _HEADER and size > self._max_payload):
                    raise self._too_large(kind, size)  # RabbitMQ does not wait for the payload either
            self._missing = at + FRAME_OVERHEAD + size - end
        return end

    def events(self) -> list[Event]:
        """What was received since the last call, in order: (channel number, method or message)."""
        grouped = self.grouped_events()
        if not self.grouping:
            return cast("list[Event]", grouped)
        events: list[Event] = []
        for channel, event in grouped:
            if isinstance(event, ContentRun):
                events += [(channel, content) for content in event.contents]
            elif isinstance(event, AckRun):
                events += [(channel, m.BasicAck(tag)) for tag in event.tags]
            else:
                events.append((channel, event))
        return events

    def grouped_events(self) -> list[tuple[int, Grouped]]:
        """As `events`; messages that follow each other and are alike are one event, and so are acks (`runs`)."""
        events, self._events = self._events, []
        return events

    def lone_confirm(self, data: bytes) -> tuple[int, int, bool] | None:
        """(channel, delivery tag, multiple) of data that are exactly one basic.ack, without a Method object.

        The short cut for a client that waits for each confirm. None for any other data, and while earlier input or
        events wait: then the caller uses `receive_data` and `events`.
        """
        if len(data) != _ACK_FRAME.size or self._held or self._events or self._deaf:
            return None
        kind, channel, size, key, tag, bits, end = _ACK_FRAME.unpack(data)
        if key != _ACK or kind != _METHOD or size != 13 or end != 206:
            return None
        if self.channels.get(channel) is not ChannelState.OPEN or channel in self._assemblies:
            return None
        return channel, tag, bits & 1 != 0

    def _whole_content(self, data: bytes, at: int, end: int, channel: int, method: bytes) -> Content | None:
        """The message whose header frame starts at `at`, if all of it is in this buffer and in one body frame."""
        if end - at < 22:
            return None
        kind, number, size, class_and_weight, body_size = _CONTENT_HEADER.unpack_from(data, at)
        stop = at + 7 + size
        if (
            kind != _HEADER
            or number != channel
            or class_and_weight != _BASIC_WEIGHT_0
            or size < _MIN_HEADER_PAYLOAD
            or size > self._max_payload
            or body_size > self._max_whole_body
            or stop + (body_size + FRAME_OVERHEAD if body_size else 0) >= end
            or data[stop] != 206
        ):
            return None
        if body_size:
            kind, number, size = FRAME_PREFIX.unpack_from(data, stop + 1)
            stop += FRAME_OVERHEAD + body_size
            if kind != _BODY or number != channel or size != body_size or data[stop] != 206:
                return None
        return Content(channel, method, data[at : stop + 1], body_size)

    def _receive_run(self, data: bytes, at: int, after: int, end: int, limit: int, content: Content) -> int:
        """Take in the message between `at` and `after`, and those behind it that are alike and begin before the limit.

        Returns where these end.

        Messages of one length differ in their bodies alone: all their other bytes are compared at once.
        """
        channel, method, size = content.channel, content.method, content.body_size
        head, unit, contents = after - at - len(content.frames), after - at, [content]
        same = data[at : after - size - 1] if size else data[at:after]
        repeats = not content.flags & _OFTEN_UNIQUE
        while after < limit:
            stop = after + unit
            if stop <= end and data[stop - 1] == 206 and data.startswith(same, after):
                contents.append(Content(channel, method, data[after + head : stop], size))
                after = stop
                continue
            if not repeats or not data.startswith(same[:head], after):
                break
            other = self._whole_content(data, after + head, end, channel, method)
            if other is None or other.raw_properties != content.raw_properties:
                break
            contents.append(other)
            size, unit = other.body_size, head + len(other.frames)
            same = data[after : after + unit - size - 1] if size else data[after : after + unit]
            after += unit
        self._events.append((channel, content if len(contents) == 1 else ContentRun(method, contents)))
        return after

    def _receive_acks(self, data: bytes, at: int, end: int, limit: int, channel: int) -> int:
        """Take in the basic.ack at `at`, and those behind it that begin before the limit. Returns where these end."""
        head, tags = data[at : at + _ACK_HEAD], list[int]()
        while True:
            tag, bits, last = _ACK_REST.unpack_from(data, at + _ACK_HEAD)
            if last != 206:
                break
            if bits & 1:
                if not tags:
                    self._events.append((channel, m.BasicAck(tag, multiple=True)))
                    return at + _ACK_FRAME.size
                break
            tags.append(tag)
            at += _ACK_FRAME.size
            if end - at < _ACK_FRAME.size or at >= limit or not data.startswith(head, at):
                break
        self._events.append((channel, m.BasicAck(tags[0]) if len(tags) == 1 else AckRun(tags)))
        return at

    def _receive_header(self, data: bytes) -> int:
        """The length of the protocol header in the data, 0 where none is expected; -1 when more bytes must come."""
        if self.role is Role.CLIENT:
            if self.state is ConnectionState.AWAIT_START and data and data[0] != _METHOD:  # as connection.start is
                if len(data) < (8 if data[:4] == b"AMQP"[: len(data)] else LEAST):
                    return -1
                self._end()
                raise errors.RemoteProtocolError(errors.NotImplemented, foreign("0-9-1", data))
            return 0
        if self.state is not ConnectionState.AWAIT_HEADER:
            return 0
        if len(data) < 8 and PROTOCOL_HEADER.startswith(data[:4]):
            return -1
        if data[:8] in (PROTOCOL_HEADER, PROTOCOL_HEADER_0_9):
            self.state = ConnectionState.AWAIT_START
            self._halted = True
            return 8
        self._end()
        self._outgoing.append(PROTOCOL_HEADER)  # specification 2.2.1: answer with the version that is spoken here
        raise errors.RemoteProtocolError(errors.NotImplemented, f"not an AMQP 0-9-1 protocol header: {data[:8]!r}")

    def _receive_method(self, channel: int, payload: bytes) -> None:
        # An open channel implies an open connection.
        if self.channels.get(channel) is ChannelState.OPEN:
            decode = self._plain.get(payload[:4])
            if decode is not None and channel not in self._assemblies:
                try:
                    self._events.append((channel, decode(payload)))
                    return
                except MALFORMED:
                    pass  # decode_method, below, raises the error for the peer
        elif self._drops(channel, payload):
            return
        if channel in self._assemblies:
            raise self._content_expected(channel)
        method = self._decode(payload, channel)
        if channel == 0:
            self._step_connection(self._peer, method)
        else:
            self._step_channel(self._peer, channel, method)
            if type(method) not in MAY_SEND[self._peer]:
                raise _remote(
                    errors.CommandInvalid,
                    f"{method.NAME} does not go from the {self._peer.name.lower()} to the {self.role.name.lower()}",
                    method,
                )
            if type(method) in m.CARRIES_CONTENT:  # the client runs ahead: the channel's open-ok is not sent yet
                self._assemblies[channel] = Assembly(payload)
                return
        self._events.append((channel, method))

    def _drops(self, channel: int, payload: bytes) -> bool:
        """True for a frame to drop by rule 3; `payload` is a method's, or b"" for a content frame."""
        key, connection, state = payload[:4], self.state, self.channels.get(channel)
        if connection in CLOSED_BY[self.role]:
            if not (channel == 0 and key in _CONNECTION_CLOSING):
                return True
        elif connection in CLOSED_BY[self._peer]:
            self._count_close(key == _CONNECTION_CLOSE and channel == 0, channel)
            return True
        if state in CHANNEL_CLOSED_BY[self.role]:
            return key not in (_CHANNEL_CLOSING if self.role is Role.CLIENT else _CHANNEL_REOPENING)
        if state in CHANNEL_CLOSED_BY[self._peer]:
            self._count_close(key == _CHANNEL_CLOSE, channel)
            if key in self._content_keys:
                self._late.add(channel)
            elif key:
                self._late.discard(channel)
            return key != _CHANNEL_OPEN
        if channel not in self._late:
            return False
        if self.role is Role.CLIENT:
            return key not in _CHANNEL_OPENING
        if key:
            self._late.discard(channel)
        return not key

    def _count_close(self, again: bool, channel: int) -> None:
        if again and self.role is Role.SERVER:
            self._repeated[channel] = self._repeated.get(channel, 0) + 1

    def _begin_content(self, channel: int, method: bytes) -> None:
        if channel in self._assemblies:
            raise self._content_expected(channel)
        self._assemblies[channel] = Assembly(method)

    def _receive_content_frame(self, kind: int, channel: int, frame: bytes) -> None:
        if self._drops(channel, b""):
            return
        assembly = self._assemblies.get(channel)
        if assembly is None:
            raise errors.RemoteProtocolError(
                errors.UnexpectedFrame, "expected method frame, got non method frame instead"
            )
        try:
            if kind == _BODY:
                assembly.add_body(frame)
            else:
                self._receive_content_header(channel, assembly, frame)
        except errors.RemoteProtocolError:
            del self._assemblies[channel]
            raise
        if assembly.missing == 0:
            del self._assemblies[channel]
            if not assembly.oversized:
                self._events.append((channel, assembly.content(channel)))

    def _receive_content_header(self, channel: int, assembly: Assembly, frame: bytes) -> None:
        if len(frame) < FRAME_OVERHEAD + _MIN_HEADER_PAYLOAD:
            if assembly.missing >= 0:
                raise assembly.unexpected()
            raise self._framing_lost(_HEADER, frame[7:-1], ": unknown_frame")
        assembly.add_header(frame, self._max_payload, self.max_message_size)
        if assembly.oversized:
            self._events.append((channel, OversizedContent(assembly.method, assembly.body_size)))

    def _content_expected(self, channel: int) -> errors.RemoteProtocolError:
        """The error for another frame in place of a message's content; drops what came of the message."""
        return self._assemblies.pop(channel).unexpected()

    def _too_large(self, kind: int, size: int) -> errors.RemoteProtocolError:
        return self._framing_lost(kind, b"", f": {{frame_too_large,{size},{self._max_payload}}}")

    def _framing_lost(self, kind: int, payload: bytes, what: str) -> errors.RemoteProtocolError:
        self._deaf = True
        octets = "<<...>>" if payload.startswith(_SECRET) else _octets(payload)
        return errors.RemoteProtocolError(errors.FrameError, f"type {kind}, all octets = {octets}{what}")

    # -- the state machine ---------------------------------------------------------------------------------------

    def _step_connection(self, speaker: Role, method: m.Method) -> None:
        after = CONNECTION_TRANSITIONS[self.state].get((speaker, type(method)))
        if after is None:
            state = "running" if self.state is ConnectionState.OPEN else self.state.name.lower()
            raise _remote(errors.ChannelMisused, f"unexpected method in connection state {state}", method)
        if isinstance(method, m.ConnectionTune):
            self._check_tuning("frame_max", method.frame_max, 0, FRAME_MIN, method)
            self._offered = method
            self._tuned_to(method)
        elif isinstance(method, m.ConnectionTuneOk):
            offered = self._offered
            self._check_tuning("frame_max", method.frame_max, offered.frame_max, FRAME_MIN, method)
            self._check_tuning("channel_max", method.channel_max, offered.channel_max, 0, method)
            self._tuned_to(method)
            # Without a limit for frames, the limit for bodies applies: a frame holds one body at most.
            self._limit_payload(method.frame_max or max(self.max_message_size, HANDSHAKE_FRAME_MAX))
        if after is ConnectionState.CLOSED:
            self._end()
            return
        self.state = after
        self._halted = after is ConnectionState.AWAIT_TUNE and self.role is Role.SERVER
        if after.value > ConnectionState.OPEN.value:
            self.channels.clear()  # from now on `_drops` decides about every frame
            self._assemblies.clear()
            self._late.clear()

    def _end(self) -> None:
        self.state = ConnectionState.CLOSED
        self._deaf = self._halted = True
        self._held.clear()

    def _tuned_to(self, method: m.ConnectionTune | m.ConnectionTuneOk) -> None:
        self.channel_max = method.channel_max or MOST_CHANNELS
        self.frame_max = method.frame_max or UNLIMITED_FRAME_MAX

    def _check_tuning(self, name: str, value: int, limit: int, least: int, method: m.Method) -> None:
        if 0 < value < least:
            which = f"lower than the minimum allowed value ({least})"
        elif limit and not 0 < value <= limit:
            which = f"higher than the maximum allowed value ({limit})"
        else:
            return
        raise _remote(errors.NotAllowed, f"negotiated {name} = {value} is {which}", method)

    def _step_channel(self, speaker: Role, channel: int, method: m.Method) -> None:
        state, class_id = self.channels.get(channel, ChannelState.CLOSED), method.CLASS_ID
        if class_id != 20 and class_id != 10 and state in _USABLE[speaker]:
            return
        if self.state not in _CONNECTION_USABLE[speaker]:
            raise _remote(
                errors.ChannelMisused, f"{method.NAME} on channel {channel} of a connection that is not open", method
            )
        if class_id == 10:
            raise _remote(errors.CommandInvalid, f"{method.NAME} on channel {channel}: it belongs on channel 0", method)
        after = CHANNEL_TRANSITIONS[state].get((speaker, type(method)))
        if after is None:
            raise self._channel_misused(speaker, state, method)
        if state is ChannelState.CLOSED:
            self._check_channel_number(channel)
        if after is ChannelState.CLOSED:
            del self.channels[channel]
            if self.role is Role.CLIENT:
                self._late.add(channel)
        else:
            self.channels[channel] = after
            if after is ChannelState.OPEN:
                self._late.discard(channel)
        if after is not ChannelState.OPEN:
            self._assemblies.pop(channel, None)

    def _channel_misused(self, speaker: Role, state: ChannelState, method: m.Method) -> errors.RemoteProtocolError:
        if isinstance(method, m.ChannelOpen):
            return _remote(errors.ChannelMisused, "second 'channel.open' seen", method)
        if state is ChannelState.CLOSED:
            return _remote(errors.ChannelMisused, "expected 'channel.open'", method)
        said = f"{method.NAME} from the {speaker.name.lower()} in state {state.name.lower()}"
        return _remote(errors.CommandInvalid if state is ChannelState.OPEN else errors.ChannelMisused, said, method)

    def _check_channel_number(self, channel: int) -> None:
        if channel <= self.channel_max:
            return
        if len(self.channels) >= self.channel_max:
            detail = f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max"
        else:
            detail = f"channel number {channel} is above the negotiated channel_max"
        raise errors.RemoteProtocolError(errors.NotAllowed, f"{detail} ({self.channel_max})")

    # -- sending -------------------------------------------------------------------------------------------------

    def send_header(self) -> None:
        """Send the protocol header, the client's first eight bytes."""
        if self.role is not Role.CLIENT or self.state is not ConnectionState.AWAIT_HEADER:
            raise errors.LocalProtocolError("the protocol header is sent once, by the client, first")
        self.state = ConnectionState.AWAIT_START
        self._outgoing.append(PROTOCOL_HEADER)

    def send_method(self, channel: int, method: m.Method) -> None:
        """Send a method without content. Raises LocalProtocolError when it may not be sent now or does not fit."""
        if type(method) in m.CARRIES_CONTENT:
            raise errors.LocalProtocolError(f"{method.NAME} carries content: send_content sends it")
        frame = encode_method(channel, method)
        self._check_size(len(frame), method, "arguments")
        self._step_out(channel, method)
        self._outgoing.append(frame)
        if self._repeated and isinstance(method, m.ChannelCloseOk | m.ConnectionCloseOk):
            self._outgoing += [frame] * self._repeated.pop(channel, 0)

    def send_content(self, channel: int, method: m.Method, properties: m.Properties | bytes, body: bytes) -> None:
        """Send a method with its message: basic.publish, deliver, return or get-ok. Raises as `send_method` does.

        Properties may be given as the bytes of `Content.raw_properties` or `Properties.encode`.
        """
        if type(method) not in m.CARRIES_CONTENT:
            raise errors.LocalProtocolError(f"{method.NAME} carries no content: send_method sends it")
        frame = encode_method(channel, method)
        raw = properties if isinstance(properties, bytes) else encode_properties(properties)
        self._check_size(len(frame), method, "arguments")
        self._check_size(_HEADER_OVERHEAD + len(raw), method, "properties")
        content = encode_content(channel, raw, body, self.frame_max)
        self._step_out(channel, method)
        self._outgoing += (frame, content)

    # For the hot paths: the methods below take encoded frames. The caller has checked that the channel is open.

    def send_message(self, channel: int, method: bytes, raw_properties: bytes, body: bytes) -> None:
        """Send one message: the encoded frame of its method (on that channel), its encoded properties and its body.

        Raises LocalProtocolError when the properties do not fit a frame.
        """
        size, frame_max = len(body), self.frame_max
        header = _HEADER_OVERHEAD + len(raw_properties)
        if header > frame_max:
            raise too_long("basic.publish", "properties", header, frame_max)
        if 0 < size <= frame_max - FRAME_OVERHEAD:  # what encode_content does, without the call
            shape = (channel, size, raw_properties)
            known, before_body = self._last_shape
            if shape != known:
                head = CONTENT_HEAD.pack(_HEADER, channel, header - FRAME_OVERHEAD, BASIC_CLASS, 0, size)
                before_body = b"%b%b%b" % (head, raw_properties, NEXT_BODY.pack(206, _BODY, channel, size))
                self._last_shape = shape, before_body  # at once: an interrupted program may send on
            content = b"%b%b\xce" % (before_body, body)
        else:
            content = encode_content(channel, raw_properties, body, frame_max)
        self._outgoing += (method, content)  # one operation: a thread that is interrupted here has added both or none

    def send_messages(
        self, channel: int, methods: Sequence[bytes], raw_properties: Sequence[bytes], bodies: Sequence[bytes]
    ) -> None:
        """Send many messages, each as `send_message` does; all or none."""
        contents = encode_contents(channel, raw_properties, bodies, self.frame_max)
        self._outgoing += list(chain.from_iterable(zip(methods, contents, strict=True)))

    def check_properties(self, raw_properties: Sequence[bytes]) -> None:
        """Raise LocalProtocolError when `send_message` would refuse one of these properties."""
        longest = _HEADER_OVERHEAD + max(map(len, raw_properties), default=0)
        if longest > self.frame_max:
            raise too_long("basic.publish", "properties", longest, self.frame_max)

    def send_frame(self, method: bytes) -> None:
        """Send the encoded frame of a method without content."""
        if len(method) > self.frame_max:
            raise too_long("a method", "arguments", len(method), self.frame_max)
        self._outgoing.append(method)

    def send_frames(self, method: bytes, content: Frames) -> None:
        """Send the encoded frame of a method, and the frames of its content."""
        frame_max = self.frame_max
        if len(method) > frame_max:
            raise too_long("a method", "arguments", len(method), frame_max)
        if isinstance(content, LargeFrames):
            self._outgoing += (method, *content.pieces)
            return
        if len(content) > frame_max:
            check_frames(content, frame_max)
        self._outgoing += (method, content)

    def send_deliveries(self, pieces: Sequence[Frames]) -> None:
        """Send deliveries, all or none, each in four pieces: basic.deliver's frame in three, and the content's frames.

        The first three are a prefix of `deliver.DeliverPrefixes`, a delivery tag and an address: they always fit.
        """
        frame_max = self.frame_max
        longest = len(pieces[3]) if len(pieces) == 4 else max(map(len, pieces[3::4]), default=0)
        if longest > frame_max or longest > LARGE:
            for frames in pieces[3::4]:
                if isinstance(frames, bytes):
                    check_frames(frames, frame_max)
            self._outgoing += chain.from_iterable(
                piece.pieces if isinstance(piece, LargeFrames) else (piece,) for piece in pieces
            )
            return
        self._outgoing += pieces  # type: ignore[arg-type]  # short frames: they are bytes

    def send_heartbeat(self) -> None:
        """Send a heartbeat. Raises LocalProtocolError before the protocol header and after the connection is closed."""
        if self.state is ConnectionState.AWAIT_HEADER or self.state is ConnectionState.CLOSED:
            raise errors.LocalProtocolError(f"heartbeat: the connection is {self.state.name.lower()}")
        self._outgoing.append(HEARTBEAT_FRAME)

    def data_to_send(self) -> bytes:
        """Everything sent since the last call, as bytes for the transport."""
        if self._gathered is not None:
            self.leave_out_written()
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def pieces_to_send(self) -> list[bytes | memoryview]:
        """As `data_to_send`, in pieces: long ones are not copied."""
        pieces: list[bytes | memoryview] = []
        small: list[bytes | memoryview] = []
        for piece in self._outgoing:
            if len(piece) < LONG and type(piece) is bytes:
                small.append(piece)
            else:
                if small:
                    pieces.append(b"".join(small))
                    small = []
                pieces.append(piece)
        self._outgoing.clear()
        if small:
            pieces.append(b"".join(small))
        return pieces

    def gather(self) -> tuple[memoryview, list[int]]:
        """(Everything sent since the last `data_to_send`, a list), for a thread that may be interrupted anywhere.

        It puts into the list how many of these bytes it has written, in one operation with the writing: the engine
        leaves them out from then on, and keeps the others.
        """
        self.leave_out_written()
        piece = memoryview(b"".join(self._outgoing))
        self._outgoing[:] = (piece,)
        written: list[int] = []
        self._gathered = piece, written
        return piece, written

    def leave_out_written(self) -> None:
        """Leave out what was written of the last `gather`. To do it twice changes nothing."""
        if self._gathered is not None:
            piece, written = self._gathered
            outgoing = self._outgoing
            if written and outgoing and outgoing[0] is piece:
                outgoing[:1] = (piece[written[0] :],) if written[0] < len(piece) else ()
            self._gathered = None

    def take_back(self, pending: int) -> None:
        """Forget what was sent after the first `pending` pieces."""
        del self._outgoing[pending:]

    @property
    def pending(self) -> int:
        return len(self._outgoing)

    def _check_size(self, size: int, method: m.Method, part: str) -> None:
        tuned = self.state.value >= ConnectionState.AWAIT_OPEN.value
        frame_max = self.frame_max if tuned else max(self.frame_max, HANDSHAKE_FRAME_MAX)
        if size > frame_max:
            raise too_long(method.NAME, part, size, frame_max)

    def _step_out(self, channel: int, method: m.Method) -> None:
        if type(method) not in MAY_SEND[self.role]:
            raise errors.LocalProtocolError(f"a {self.role.name.lower()} does not send {method.NAME}")
        try:
            if channel:
                self._step_channel(self.role, channel, method)
            else:
                self._step_connection(self.role, method)
        except errors.RemoteProtocolError as error:
            raise errors.LocalProtocolError(f"{method.NAME}: {error.answer.detail}") from None


def _remote(cls: type[errors.AmqpError], detail: str, method: m.Method) -> errors.RemoteProtocolError:
    return errors.RemoteProtocolError(cls, detail, method.CLASS_ID, method.METHOD_ID)


def _octets(payload: bytes) -> str:
    """A payload as RabbitMQ prints it in its error texts."""
    payload = payload[: errors.MAX_REPLY_TEXT]  # no reply text can hold more
    if not payload:
        return "<<>>"
    if all(32 <= byte < 127 for byte in payload):
        return f'<<"{payload.decode()}">>'
    return f"<<{','.join(map(str, payload))}>>"
