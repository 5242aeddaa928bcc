"""The 0-9-1 engine: bytes in, events out; methods and messages in, bytes out. No I/O, no clock, either role.

    engine = Engine(Role.CLIENT)
    engine.send_header()
    transport.write(engine.data_to_send())
    ...
    engine.receive_data(data)               # RemoteProtocolError: what came before it is still in events()
    for channel, event in engine.events():  # event: a Method, a Content or an OversizedContent
        ...

Theory of operation. Data are split into frames. A method is decoded and checked against the tables of `states`; what
they allow becomes an event, the rest raises RemoteProtocolError with the reply code that the peer should be sent. A
method that carries content is not decoded: it is kept as bytes in a Content together with the slice of the input that
holds its header and body frames. When all of them are in one buffer, which is nearly always, that is one pass and one
slice (`_whole_content`); otherwise frames are gathered per channel (`_Assembly`).

Rules:
1. On any input, `receive_data` either returns or raises RemoteProtocolError; after that the engine only sends.
2. `send_*` raises LocalProtocolError for what the tables forbid now, and sends nothing then.
3. After a close was sent, everything but close and close-ok is dropped, per channel or for the connection.
4. The peer's frames may not exceed `frame_max`, its channels `channel_max`, its bodies `max_message_size`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from warren import errors
from warren.protocol.v091 import methods as m
from warren.protocol.v091.codec import (
    FRAME_OVERHEAD,
    FRAME_PREFIX,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_9,
    decode_method,
    encode_method,
)
from warren.protocol.v091.content import HEADER_FIXED, Content, OversizedContent, encode_content
from warren.protocol.v091.states import (
    CHANNEL_CLOSED_BY,
    CHANNEL_TRANSITIONS,
    CLOSED_BY,
    CONNECTION_TRANSITIONS,
    MAY_SEND,
    ChannelState,
    ConnectionState,
    Role,
)

__all__ = ["Engine", "Event"]

Event: TypeAlias = "tuple[int, m.Method | Content | OversizedContent]"

HANDSHAKE_FRAME_MAX: Final = 131_072  # before tuning; the specification's 4096 is too small for a token in start-ok
DEFAULT_CHANNEL_MAX: Final = 2047  # as RabbitMQ: a leak of channels is found before it hurts
MAX_MESSAGE_SIZE: Final = 134_217_728  # 128 MiB, RabbitMQ 3.10's default

_METHOD, _HEADER, _BODY, _HEARTBEAT = m.FRAME_METHOD, m.FRAME_HEADER, m.FRAME_BODY, m.FRAME_HEARTBEAT
_CONTENT_HEADER: Final = Struct(">BHIHHQ")  # a header frame up to its property flags
_MIN_HEADER_PAYLOAD: Final = HEADER_FIXED.size + 2  # class, weight, size, flags
_CONTENT_KEYS: Final = {
    role: frozenset(key for key, cls in m.METHODS.items() if cls in m.CARRIES_CONTENT & MAY_SEND[role])
    for role in Role
}


class _Assembly:
    """A message whose frames did not come in one buffer."""

    __slots__ = ("body_size", "frames", "method", "missing")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.frames: list[bytes] = []
        self.body_size = 0
        self.missing = -1  # no header yet


class Engine:
    """One peer of one connection.

    role              which peer this is
    frame_max         largest frame offered or accepted, in bytes (0 is not accepted from a peer that has a limit)
    channel_max       largest channel number
    max_message_size  largest body accepted, in bytes
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
        self.state = ConnectionState.AWAIT_HEADER
        self.channels: dict[int, ChannelState] = {}
        self.outgoing: list[bytes] = []  # the hot path appends whole frames here; data_to_send takes them
        self._peer = role.peer
        self._content_keys = _CONTENT_KEYS[role.peer]
        self._tail = b""
        self._events: list[Event] = []
        self._assemblies: dict[int, _Assembly] = {}
        self._limit_payload(max(frame_max, HANDSHAKE_FRAME_MAX))

    def _limit_payload(self, frame_max: int) -> None:
        self._max_payload = frame_max - FRAME_OVERHEAD
        self._max_whole_body = min(self._max_payload, self.max_message_size)

    # -- receiving ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take what the transport read. RemoteProtocolError when the peer broke the protocol."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        at = 0
        if self.state is ConnectionState.AWAIT_HEADER or self.state is ConnectionState.AWAIT_START:
            at = self._receive_header(data)
            if at < 0:
                self._tail = data
                return
        end, append, channels, assemblies = len(data), self._events.append, self.channels, self._assemblies
        is_open, max_payload, content_keys = ChannelState.OPEN, self._max_payload, self._content_keys
        while end - at >= FRAME_OVERHEAD:
            kind, channel, size = FRAME_PREFIX.unpack_from(data, at)
            stop = at + 7 + size
            if stop >= end:
                if size > max_payload:
                    raise self._frame_too_large(kind, channel, size)
                break
            if data[stop] != 206 or size > max_payload:
                if size > max_payload:
                    raise self._frame_too_large(kind, channel, size)
                raise errors.RemoteProtocolError(
                    errors.FrameError,
                    f"type {kind}, all octets = {_octets(data[at + 7 : stop])}: "
                    f"{{invalid_frame_end_marker,{data[stop]}}}",
                )
            if kind == _METHOD:
                start = at + 7
                if data[start : start + 4] in content_keys and channels.get(channel) is is_open:
                    if channel not in assemblies:
                        content = self._whole_content(data, stop + 1, end, channel, data[start:stop])
                        if content is not None:
                            append((channel, content))
                            at = stop + 1 + len(content.frames)
                            continue
                    self._begin_content(channel, data[start:stop])
                else:
                    self._receive_method(channel, data[start:stop])
                    max_payload = self._max_payload  # tune-ok changes it
            elif kind == _BODY or kind == _HEADER:
                self._receive_content_frame(kind, channel, data[at : stop + 1])
            elif kind == _HEARTBEAT:
                if channel or size:
                    raise errors.RemoteProtocolError(
                        errors.UnexpectedFrame, f"type 8, all octets = {_octets(data[at + 7 : stop])}"
                    )
            else:
                raise errors.RemoteProtocolError(
                    errors.FrameError, f"type {kind}, all octets = {_octets(data[at + 7 : stop])}: unknown frame type"
                )
            at = stop + 1
        if at < end:
            self._tail = data[at:] if at else data

    def events(self) -> list[Event]:
        """What was received since the last call, in order: (channel number, method or message)."""
        events, self._events = self._events, []
        return events

    def _whole_content(self, data: bytes, at: int, end: int, channel: int, method: bytes) -> Content | None:
        """The message whose header frame starts at `at`, if all of it is in this buffer and in one body frame."""
        if end - at < 22:
            return None
        kind, number, size, class_id, _, body_size = _CONTENT_HEADER.unpack_from(data, at)
        stop = at + 7 + size
        if (
            kind != _HEADER
            or number != channel
            or class_id != 60
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

    def _receive_header(self, data: bytes) -> int:
        """How many bytes the protocol header took; -1 when more are needed."""
        if self.role is Role.CLIENT:
            if self.state is ConnectionState.AWAIT_START and data[:4] == b"AMQP"[: len(data)] and data:
                if len(data) < 8:
                    return -1
                self.state = ConnectionState.CLOSED
                raise errors.RemoteProtocolError(
                    errors.NotImplemented, f"the server does not speak AMQP 0-9-1; it answered {data[:8]!r}"
                )
            return 0
        if self.state is not ConnectionState.AWAIT_HEADER:
            return 0
        if len(data) < 8 and PROTOCOL_HEADER.startswith(data[:4]):
            return -1
        if data[:8] in (PROTOCOL_HEADER, PROTOCOL_HEADER_0_9):
            self.state = ConnectionState.AWAIT_START
            return 8
        self.state = ConnectionState.CLOSED
        self.outgoing.append(PROTOCOL_HEADER)  # specification 2.2.1: answer with the version that is spoken here
        raise errors.RemoteProtocolError(errors.NotImplemented, f"not an AMQP 0-9-1 protocol header: {data[:8]!r}")

    def _receive_method(self, channel: int, payload: bytes) -> None:
        if self._drops(channel, payload):
            return
        if channel in self._assemblies:
            raise self._content_expected(self._assemblies[channel])
        method = decode_method(payload, channel)
        cls = type(method)
        if channel == 0:
            self._step_connection(self._peer, method)
        else:
            self._require_open_connection(channel, method)
            self._step_channel(self._peer, channel, method)
            if cls not in MAY_SEND[self._peer]:
                raise errors.RemoteProtocolError(
                    errors.CommandInvalid,
                    f"{method.NAME} does not go from the {self._peer.name.lower()} to the {self.role.name.lower()}",
                    method.CLASS_ID,
                    method.METHOD_ID,
                )
        self._events.append((channel, method))

    def _drops(self, channel: int, payload: bytes) -> bool:
        """Rule 3: whether a frame is what a peer said before it saw our close."""
        key = payload[:4]
        if self.state is CLOSED_BY[self.role] and not (channel == 0 and key in (b"\0\x0a\0\x32", b"\0\x0a\0\x33")):
            return True
        closing = self.channels.get(channel) is CHANNEL_CLOSED_BY[self.role]
        return closing and key not in (b"\0\x14\0\x28", b"\0\x14\0\x29")

    def _require_open_connection(self, channel: int, method: m.Method) -> None:
        if self.state is not ConnectionState.OPEN:
            raise errors.RemoteProtocolError(
                errors.ChannelMisused,
                f"{method.NAME} on channel {channel} before the connection is open",
                method.CLASS_ID,
                method.METHOD_ID,
            )

    def _begin_content(self, channel: int, method: bytes) -> None:
        if channel in self._assemblies:
            raise self._content_expected(self._assemblies[channel])
        self._assemblies[channel] = _Assembly(method)

    def _receive_content_frame(self, kind: int, channel: int, frame: bytes) -> None:
        if self._drops(channel, b""):
            self._assemblies.pop(channel, None)
            return
        assembly = self._assemblies.get(channel)
        if assembly is None:
            raise errors.RemoteProtocolError(
                errors.UnexpectedFrame, "expected method frame, got non method frame instead"
            )
        if kind == _HEADER:
            if assembly.missing >= 0:
                raise errors.RemoteProtocolError(
                    errors.UnexpectedFrame, "expected content body, got non content body frame instead", 60
                )
            self._receive_content_header(channel, assembly, frame)
        else:
            if assembly.missing < 0:
                raise self._content_expected(assembly)
            assembly.missing -= len(frame) - FRAME_OVERHEAD
            if assembly.missing < 0:
                raise errors.RemoteProtocolError(
                    errors.FrameError, f"content body exceeds the {assembly.body_size} bytes of its header", 60
                )
            if assembly.body_size <= self.max_message_size:
                assembly.frames.append(frame)
        if assembly.missing == 0:
            del self._assemblies[channel]
            if assembly.body_size <= self.max_message_size:
                self._events.append((channel, self._assembled(channel, assembly)))

    def _receive_content_header(self, channel: int, assembly: _Assembly, frame: bytes) -> None:
        if len(frame) < FRAME_OVERHEAD + _MIN_HEADER_PAYLOAD:
            raise errors.RemoteProtocolError(errors.SyntaxError, "content header is too short", 60)
        class_id, _, body_size = HEADER_FIXED.unpack_from(frame, 7)
        if class_id != 60:
            raise errors.RemoteProtocolError(
                errors.UnexpectedFrame, f"expected content header for class 60, got one for class {class_id} instead", 60
            )
        assembly.body_size = assembly.missing = body_size
        assembly.frames.append(frame)
        if body_size > self.max_message_size:
            self._events.append((channel, OversizedContent(assembly.method, body_size)))

    def _assembled(self, channel: int, assembly: _Assembly) -> Content:
        frames = b"".join(assembly.frames)
        content = Content(channel, assembly.method, frames, assembly.body_size)
        least = assembly.body_size // self._max_payload + 2
        if len(assembly.frames) > 2 * least:
            # A body cut into crumbs would cost every consumer; it goes on in frames of full size.
            content.frames = encode_content(channel, content.raw_properties, content.body, self._max_payload + 8)
        return content

    def _content_expected(self, assembly: _Assembly) -> errors.RemoteProtocolError:
        what = "content header for class 60" if assembly.missing < 0 else "content body"
        got = "content header" if assembly.missing < 0 else "content body"
        return errors.RemoteProtocolError(
            errors.UnexpectedFrame, f"expected {what}, got non {got} frame instead", 60, assembly.method[3]
        )

    def _frame_too_large(self, kind: int, channel: int, size: int) -> errors.RemoteProtocolError:
        return errors.RemoteProtocolError(
            errors.FrameError, f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{self._max_payload}}}"
        )

    # -- the state machine ---------------------------------------------------------------------------------------

    def _step_connection(self, speaker: Role, method: m.Method) -> None:
        after = CONNECTION_TRANSITIONS[self.state].get((speaker, type(method)))
        if after is None:
            raise errors.RemoteProtocolError(
                errors.CommandInvalid,
                f"{method.NAME} from the {speaker.name.lower()} on channel 0 in state {self.state.name.lower()}",
                method.CLASS_ID,
                method.METHOD_ID,
            )
        if isinstance(method, m.ConnectionTune):
            self._tuned_to(method.channel_max, method.frame_max)
        elif isinstance(method, m.ConnectionTuneOk):
            self._check_tune_ok(method)
            self._tuned_to(method.channel_max, method.frame_max)
            self._limit_payload(self.frame_max)
        self.state = after
        if after.value > ConnectionState.OPEN.value:
            self.channels.clear()  # no content is gathered any more, `_drops` decides on the rest
            self._assemblies.clear()

    def _tuned_to(self, channel_max: int, frame_max: int) -> None:
        self.channel_max = channel_max or 65_535
        self.frame_max = frame_max or HANDSHAKE_FRAME_MAX * 8

    def _check_tune_ok(self, method: m.ConnectionTuneOk) -> None:
        if 0 < method.frame_max < m.FRAME_MIN_SIZE:
            raise errors.RemoteProtocolError(
                errors.NotAllowed,
                f"negotiated frame_max = {method.frame_max} is lower than the minimum allowed value "
                f"({m.FRAME_MIN_SIZE})",
                method.CLASS_ID,
                method.METHOD_ID,
            )
        for name, value, limit in (
            ("frame_max", method.frame_max, self.frame_max),
            ("channel_max", method.channel_max, self.channel_max),
        ):
            if value > limit or (value == 0 and limit != (65_535 if name == "channel_max" else 0)):
                raise errors.RemoteProtocolError(
                    errors.NotAllowed,
                    f"negotiated {name} = {value} is higher than the maximum allowed value ({limit})",
                    method.CLASS_ID,
                    method.METHOD_ID,
                )

    def _step_channel(self, speaker: Role, channel: int, method: m.Method) -> None:
        state = self.channels.get(channel, ChannelState.CLOSED)
        if state is ChannelState.OPEN and method.CLASS_ID != 20:
            return
        after = CHANNEL_TRANSITIONS[state].get((speaker, type(method)))
        if after is None or method.CLASS_ID == 10:
            detail = (
                f"second '{method.NAME}' seen"
                if isinstance(method, m.ChannelOpen)
                else "expected 'channel.open'"
                if state is ChannelState.CLOSED
                else f"{method.NAME} from the {speaker.name.lower()} in state {state.name.lower()}"
            )
            raise errors.RemoteProtocolError(
                errors.ChannelMisused, detail, method.CLASS_ID, method.METHOD_ID, channel
            )
        if state is ChannelState.CLOSED and (channel > self.channel_max or len(self.channels) >= self.channel_max):
            raise errors.RemoteProtocolError(
                errors.NotAllowed,
                f"number of channels opened ({max(channel, len(self.channels))}) has reached the negotiated "
                f"channel_max ({self.channel_max})",
                method.CLASS_ID,
                method.METHOD_ID,
            )
        if after is ChannelState.CLOSED:
            del self.channels[channel]
        else:
            self.channels[channel] = after
        if after is not ChannelState.OPEN:
            self._assemblies.pop(channel, None)

    # -- sending -------------------------------------------------------------------------------------------------

    def send_header(self) -> None:
        """The client's first eight bytes."""
        if self.role is not Role.CLIENT or self.state is not ConnectionState.AWAIT_HEADER:
            raise errors.LocalProtocolError("the protocol header is sent once, by the client, first")
        self.state = ConnectionState.AWAIT_START
        self.outgoing.append(PROTOCOL_HEADER)

    def send_method(self, channel: int, method: m.Method) -> None:
        """A method without content. LocalProtocolError when it may not be sent now or does not fit the wire."""
        if type(method) in m.CARRIES_CONTENT:
            raise errors.LocalProtocolError(f"{method.NAME} carries content: send_content sends it")
        frame = encode_method(channel, method)
        self._check_size(frame, method)
        self._step_out(channel, method)
        self.outgoing.append(frame)

    def send_content(self, channel: int, method: m.Method, properties: m.Properties | bytes, body: bytes) -> None:
        """A method with its message: basic.publish, deliver, return or get-ok."""
        if type(method) not in m.CARRIES_CONTENT:
            raise errors.LocalProtocolError(f"{method.NAME} carries no content: send_method sends it")
        frame = encode_method(channel, method)
        content = encode_content(channel, properties, body, self.frame_max)
        self._check_size(frame, method)
        self._step_out(channel, method)
        self.outgoing.append(frame)
        self.outgoing.append(content)

    def send_heartbeat(self) -> None:
        self.outgoing.append(HEARTBEAT_FRAME)

    def data_to_send(self) -> bytes:
        """Everything sent since the last call, as bytes for the transport."""
        data = b"".join(self.outgoing)
        self.outgoing.clear()  # the same list: the hot path holds on to it
        return data

    def _check_size(self, frame: bytes, method: m.Method) -> None:
        if self.state is ConnectionState.OPEN and len(frame) > self.frame_max:
            raise errors.LocalProtocolError(
                f"{method.NAME} takes {len(frame)} bytes, the negotiated frame_max is {self.frame_max}: "
                "shorten its arguments"
            )

    def _step_out(self, channel: int, method: m.Method) -> None:
        if type(method) not in MAY_SEND[self.role]:
            raise errors.LocalProtocolError(f"a {self.role.name.lower()} does not send {method.NAME}")
        if channel and self.state is not ConnectionState.OPEN:
            raise errors.LocalProtocolError(f"{method.NAME}: the connection is {self.state.name.lower()}")
        try:
            if channel:
                self._step_channel(self.role, channel, method)
            else:
                self._step_connection(self.role, method)
        except errors.RemoteProtocolError as error:
            raise errors.LocalProtocolError(error.answer.detail) from None


def _octets(payload: bytes) -> str:
    """A payload as RabbitMQ prints it in its error texts."""
    if not payload:
        return "<<>>"
    if all(32 <= byte < 127 for byte in payload):
        return f'<<"{payload.decode()}">>'
    return f"<<{','.join(map(str, payload))}>>"

