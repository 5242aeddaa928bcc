"""The 0-10 engine: bytes in, events out; controls, commands and messages in, bytes out. No I/O, no clock, either role.

    engine = Engine(Role.CLIENT)
    engine.send_header()
    transport.write(engine.data_to_send())
    ...
    engine.receive_data(data)               # RemoteProtocolError: what came before it is still in events()
    for channel, event in engine.events():  # event: a Control, a Command, a Content or an OversizedContent
        ...

Theory of operation. The engine splits data into frames. A control or a command in one frame is decoded and checked
against the tables of `states`. A transfer is not decoded: it stays bytes in a Content, together with the slice of the
input that holds its header and body frames. When all of them are in one buffer, which is nearly always, that is one
pass and one slice (`_whole_content`); otherwise an `Assembly` gathers the frames of a channel's track. Those behind it
that are like it are recognised by their bytes, and kept together (`_alike`, `transfers`).

The engine knows which channels have a session attached, and by what name. What a session has received, executed and
sent is `session.Session`'s: it outlives the connection.

Rules:
1. On any input, `receive_data` either returns or raises RemoteProtocolError. Scope "connection": the caller sends
   connection.close; where framing is lost the engine receives nothing after that. Scope "channel": the caller ends
   the session on that channel with execution.exception and session.detach. The next call goes on behind the frame.
2. The `send_` methods are the only way out. They raise LocalProtocolError for what the tables forbid in the present
   state, and send nothing then; `send_pieces`, for the hot paths, leaves that check to the caller.
3. What crosses a close or a detach is dropped: rules 2 and 6 of `states`.
4. A command on a channel without a session is dropped, and answered once with detached (not-attached) until the channel
   has a session; a control is answered each time.
5. The peer's frames may not exceed `max_frame_size`, its channels are below `channel_max`, its bodies do not exceed
   `max_message_size`. Before tuning, frames of any size are received, and none above 4096 octets is sent.
6. A client may run ahead in the handshake: a server keeps what comes behind the protocol header, start-ok and secure-ok
   until it has answered them. Then `waiting` is True, and `receive_data(b"")` goes on.
7. A command of which a part has come is dropped when session.gap comes and a new one begins: its sender gave it up.
8. The events do not depend on how the input is cut into buffers, and no cut makes receiving cost more than linear time.
   Which messages `grouped_events` has together does.

The file is long because the state of a connection's input is in one place: the loop over frames, what they become, and
the checks of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, TypeAlias

from harebell import errors
from harebell.protocol.greeting import LEAST, foreign
from harebell.protocol.v010 import commands as c, controls as k
from harebell.protocol.v010.assembly import Assembly
from harebell.protocol.v010.codec import decode_command, decode_control, encode_command, encode_control
from harebell.protocol.v010.compounds import Command, Control, Struct
from harebell.protocol.v010.content import Content, OversizedContent, encode_content, encode_header
from harebell.protocol.v010.domains import MIN_MAX_FRAME_SIZE, DetachCode
from harebell.protocol.v010.frames import (
    ALONE,
    BEGINS,
    BODY,
    COMMAND,
    CONTROL,
    FRAME,
    FRAME_HEADER,
    HEADER,
    LARGEST_FRAME,
    LAST_FRAME,
    LAST_SEGMENT,
    OPENING,
    PROTOCOL_HEADER,
    command_frames,
    control_frames,
    size_at,
)
from harebell.protocol.v010.states import (
    ATTACHMENT_TRANSITIONS,
    CLOSED_BY,
    CONNECTION_TRANSITIONS,
    DETACHING,
    MAY_CONTROL,
    MAY_SEND,
    USABLE,
    AttachmentState,
    ConnectionState,
    Role,
)
from harebell.protocol.v010.transfers import Transfers

__all__ = ["Engine", "Event", "GroupedEvent"]

Event: TypeAlias = "tuple[int, Control | Command | Content | OversizedContent]"
GroupedEvent: TypeAlias = "tuple[int, Control | Command | Content | OversizedContent | Transfers]"

MOST_CHANNELS: Final = 65_535  # the number of channels has 16 bits
MOST_AHEAD: Final = 1 << 20  # bytes that a client may send ahead of the handshake
MOST_GATHERED: Final = 256  # controls in several frames at once: one for each channel that is busy with sets of ids
MAX_MESSAGE_SIZE: Final = 134_217_728  # 128 MiB, as in AMQP 0-9-1

_ATTACHED: Final = AttachmentState.ATTACHED
_CARRIERS: Final = frozenset(cls.KEY for cls in c.CARRIES_CONTENT)
_TRANSFER: Final = c.MessageTransfer.KEY
_CLOSING: Final = (k.ConnectionClose.KEY, k.ConnectionCloseOk.KEY)
_DETACHING_CONTROLS: Final = (k.SessionDetach, k.SessionDetached)
_NAMED: Final = (k.SessionAttach, k.SessionAttached, k.SessionDetach, k.SessionDetached)
_RESERVED_FLAGS: Final = 0xF0  # framing version and two bits, all 0
_LAST_WHOLE: Final = 0x07
_FOLLOWED: Final = 0x03


class Engine:
    """The protocol state of one peer of one connection.

    role              which peer this is
    max_frame_size    largest frame in bytes; from tune-ok on, the negotiated one
    channel_max       number of channels; from tune-ok on, the negotiated one
    max_message_size  largest body accepted, in bytes
    attachments       the channels that have a session, or are getting or losing one
    names             the names of these sessions
    """

    def __init__(
        self,
        role: Role,
        *,
        max_frame_size: int = LARGEST_FRAME,
        channel_max: int = MOST_CHANNELS,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        self.role = role
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.max_message_size = max_message_size
        self.state = ConnectionState.AWAIT_HEADER
        self.attachments: dict[int, AttachmentState] = {}
        self.names: dict[int, bytes] = {}
        self._peer = role.peer
        self._outgoing: list[bytes] = []
        self._held: list[bytes] = []  # input that is no whole frame yet, or ahead of the handshake
        self._missing = 0  # how many more bytes to wait for before parsing that again
        self._ran_ahead = False
        self._greeted = False  # the peer's protocol header has come
        self._deaf = False
        self._halted = False  # deaf, or the answer of this side comes first (rule 6)
        self._offered = k.ConnectionTune(channel_max, max_frame_size)
        self._max_received = LARGEST_FRAME
        self._max_sent = MIN_MAX_FRAME_SIZE
        self._events: list[GroupedEvent] = []
        self._assemblies: dict[tuple[int, int], Assembly] = {}
        self._gathered = 0  # controls among them
        self._refused: set[int] = set()  # channels whose commands were answered with detached (rule 4)

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
        if self._halted or self._deaf:
            self._hold(data)
            return
        self._ran_ahead = False
        held = self._held
        if held:
            held.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(held)
            held.clear()
        at = 0
        if not self._greeted:
            least = LEAST if self.role is Role.CLIENT else 0
            if len(data) < (8 if PROTOCOL_HEADER.startswith(data[:4]) else least):
                held.append(data)
                self._missing = 1
                return
            self._receive_header(data)
            at = 8
            if self._halted:
                self._hold(data[at:])
                return
        self._receive_frames(data, at)

    def _receive_header(self, data: bytes) -> None:
        self._greeted = True
        if self.role is Role.CLIENT:
            if data[:8] == PROTOCOL_HEADER and self.state is ConnectionState.AWAIT_START:
                return
            self._end()
            raise errors.RemoteProtocolError(errors.NotImplemented, foreign("0-10", data))
        self._outgoing.append(PROTOCOL_HEADER)  # as the answer, or as the version that is spoken here
        if data[:8] != PROTOCOL_HEADER:
            self._end()
            raise errors.RemoteProtocolError(errors.NotImplemented, f"not an AMQP 0-10 protocol header: {data[:8]!r}")
        self.state = ConnectionState.AWAIT_START
        self._halted = True

    def _hold(self, data: bytes) -> None:
        """Keep what must wait for this side's answer in the handshake."""
        if self._deaf or not data:
            return
        self._ran_ahead = True
        self._held.append(data)
        self._missing = 0
        if sum(map(len, self._held)) > MOST_AHEAD:
            raise self._framing_lost(f"more than {MOST_AHEAD} bytes before the end of the handshake")

    def _receive_frames(self, data: bytes, at: int) -> None:
        end, append, attachments, assemblies = len(data), self._events.append, self.attachments, self._assemblies
        unpack = FRAME.unpack_from
        stop = at
        try:
            while end - at >= FRAME_HEADER:
                flags, kind, size, track, channel, zero = unpack(data, at)
                stop = at + size
                # Header and body frames are checked by who reads their flags: `_whole_content` or an Assembly.
                if size < FRAME_HEADER or size > self._max_received or zero or track > 1 or flags & _RESERVED_FLAGS:
                    raise self._malformed_frame(flags, size, track, zero)
                if stop > end:
                    break
                if flags == OPENING and kind == COMMAND and track and data[at + 12 : at + 14] == _TRANSFER:
                    if attachments.get(channel) is _ATTACHED and (not assemblies or (channel, 1) not in assemblies):
                        content = self._whole_content(data, stop, end, channel, data[at + 12 : stop])
                        if content is not None:
                            after = stop + len(content.frames)
                            if data.startswith(data[at : stop + 4], after):
                                alike, after = self._alike(data, at, stop, after, content)
                                append((channel, content if alike is None else alike))
                            else:
                                append((channel, content))
                            at = after
                            continue
                if channel >= self.channel_max:
                    raise self._framing_lost(f"channel {channel} is not below the negotiated {self.channel_max}")
                if flags == ALONE and kind == track and (channel, track) not in assemblies:
                    self._receive_payload(track, channel, data[at + 12 : stop])
                else:
                    self._gather(flags, kind, track, channel, data[at:stop])
                at = stop
                if self._halted:
                    self._hold(data[at:])
                    return
        except errors.RemoteProtocolError:
            if not self._deaf and stop < end:
                self._held.append(data[stop:])
                self._missing = 0
            raise
        if at < end:
            self._held.append(data[at:] if at else data)
            self._missing = at + (size_at(data, at) if end - at >= FRAME_HEADER else FRAME_HEADER) - end

    def interrupted(self) -> list[Content]:
        """The messages of which a part has come: what of their bodies was in whole frames. The connection is lost."""
        found = [
            assembly.partial(channel) for (channel, track), assembly in self._assemblies.items() if track == COMMAND
        ]
        return [content for content in found if content is not None and content.command[:2] == _TRANSFER]

    def events(self) -> list[Event]:
        """What was received since the last call, in order: (channel number, control, command or message)."""
        events: list[Event] = []
        for channel, event in self.grouped_events():
            if isinstance(event, Transfers):
                events += [(channel, content) for content in event.contents()]
            else:
                events.append((channel, event))
        return events

    def grouped_events(self) -> list[GroupedEvent]:
        """As `events`; messages that follow each other and are alike (`transfers`) are one event."""
        events, self._events = self._events, []
        return events

    def _whole_content(self, data: bytes, at: int, end: int, channel: int, command: bytes) -> Content | None:
        """The message whose header and body frames are all in the data from `at` on; None leaves it to an Assembly."""
        stop, expected, body_size, unpack = at, HEADER, 0, FRAME.unpack_from
        while end - stop >= FRAME_HEADER:
            flags, kind, size, track, number, zero = unpack(data, stop)
            stop += size
            if (
                size < FRAME_HEADER or size > self._max_received or stop > end or zero
                or track != 1 or number != channel or kind < expected or kind > BODY
            ):  # fmt: skip
                return None
            if kind == BODY:
                body_size += size - FRAME_HEADER
            if flags == _LAST_WHOLE:
                if body_size > self.max_message_size:
                    return None
                return Content(channel, command, data[at:stop], body_size)
            if flags != _FOLLOWED or kind == BODY:
                return self._long_content(data, at, stop - size, end, channel, command)
            expected = BODY
        return None

    def _alike(
        self, data: bytes, at: int, header_at: int, after: int, content: Content
    ) -> tuple[Transfers | None, int]:
        """The message from `at` on, with those from `after` on that are like it; and where the last of them ends.

        Its header frame is at `header_at`. None when none follows, or when header or body is in several frames.
        """
        body_at = header_at + size_at(data, header_at)
        if data[header_at] != _FOLLOWED or data[body_at] != _LAST_WHOLE:
            return None, after
        to_header, to_body, length, end = header_at - at, body_at - at, after - at, len(data)
        same, begin = data[at : body_at + FRAME_HEADER], data[at : header_at + FRAME_HEADER]
        head, bodies, channel = data[header_at:body_at], [data[body_at:after]], content.channel
        heads: list[bytes] | None = None
        while True:
            own, body = head, after + to_body
            if data.startswith(same, after):  # a body of that length too
                stop = after + length
            elif data.startswith(begin, after) and end - body >= FRAME_HEADER:
                flags, kind, size, track, number, zero = FRAME.unpack_from(data, body)
                stop = body + size
                if (
                    flags != _LAST_WHOLE or kind != BODY or not FRAME_HEADER <= size <= self._max_received
                    or track != 1 or number != channel or zero or size - FRAME_HEADER > self.max_message_size
                ):  # fmt: skip
                    break
                own = data[after + to_header : body]
            else:
                break
            if stop > end:
                break
            if heads is not None:
                heads.append(own)
            elif own != head:
                heads = [*repeat(head, len(bodies)), own]
            bodies.append(data[body:stop])
            after = stop
        if len(bodies) == 1:
            return None, after
        return Transfers(channel, content.command, head, bodies, heads), after

    def _long_content(
        self, data: bytes, at: int, body_at: int, end: int, channel: int, command: bytes
    ) -> Content | None:
        """The same for a body in several frames, which begin at `body_at`."""
        stop, body_size, wanted = body_at, 0, 0x06
        while end - stop >= FRAME_HEADER:
            flags, kind, size, track, number, zero = FRAME.unpack_from(data, stop)
            stop += size
            body_size += size - FRAME_HEADER
            if (
                size <= FRAME_HEADER or size > self._max_received or stop > end or zero
                or track != 1 or number != channel or kind != BODY or body_size > self.max_message_size
                or flags & ~LAST_FRAME != wanted
            ):  # fmt: skip
                return None
            if flags & LAST_FRAME:
                return Content(channel, command, data[at:stop], body_size)
            wanted = LAST_SEGMENT
        return None

    def _gather(self, flags: int, kind: int, track: int, channel: int, frame: bytes) -> None:
        """Add a frame to the control or command that it is a part of."""
        assembly = self._assemblies.get((channel, track))
        if assembly is None or (assembly.given_up and flags & BEGINS == BEGINS and kind == track):
            if track == CONTROL:
                self._gathered += 1
                if self._gathered > MOST_GATHERED:
                    raise self._framing_lost(f"more than {MOST_GATHERED} controls in several frames at once")
            dropped = track == COMMAND and not self._may_command(channel)
            assembly = self._assemblies[channel, track] = Assembly(track, self.max_message_size, dropped)
        try:
            last = assembly.add(flags, kind, frame)
        except errors.RemoteProtocolError as error:
            raise self._framing_lost(error.answer.detail) from None
        if not last:
            return
        del self._assemblies[channel, track]
        self._gathered -= track == CONTROL
        if assembly.dropped:
            return
        payload = assembly.command
        if not assembly.content and payload[:2] not in _CARRIERS:
            self._receive_payload(track, channel, payload)
        elif track == CONTROL:
            raise self._framing_lost("a control with a header or a body")
        elif payload[:2] not in _CARRIERS:
            command = decode_command(payload, channel)
            said = f"{command.NAME} has no header and no body"
            raise _in_session(errors.CommandInvalid, said, channel, type(command))
        elif assembly.limit:
            self._events.append((channel, OversizedContent(payload, assembly.limit)))
        else:
            self._events.append((channel, assembly.finished(channel, payload)))

    def _receive_payload(self, track: int, channel: int, payload: bytes) -> None:
        """Receive a control, or a command without content."""
        if track == CONTROL:
            if not self._closing() or (payload[:2] in _CLOSING and self.state in CLOSED_BY[self.role]):
                self._receive_control(channel, decode_control(payload, channel))
        elif self._may_command(channel):
            if payload[:2] in _CARRIERS:
                self._events.append((channel, Content(channel, payload, b"", 0)))
                return
            command = decode_command(payload, channel)
            if type(command) not in MAY_SEND[self._peer]:
                said = f"a {self._peer.name.lower()} does not send {command.NAME}"
                raise _in_session(errors.CommandInvalid, said, channel, type(command))
            self._events.append((channel, command))

    def _may_command(self, channel: int) -> bool:
        """True when the peer may send a command there; False when it is to be dropped."""
        if self._closing():
            return False
        if self.state is not ConnectionState.OPEN:
            raise self._framing_lost(f"a command on channel {channel} of a connection that is not open")
        state = self.attachments.get(channel)
        if state in USABLE[self._peer]:
            return True
        if state is None and channel not in self._refused:
            self._refused.add(channel)
            self._answer_not_attached(channel)
        return False

    def _closing(self) -> bool:
        """True when everything from the peer is dropped but the controls that close the connection."""
        return self.state.value > ConnectionState.REDIRECTED.value

    def _answer_not_attached(self, channel: int) -> None:
        answer = k.SessionDetached(b"", DetachCode.NOT_ATTACHED)
        self._outgoing.append(control_frames(channel, answer.encode(), self._max_sent))

    def _receive_control(self, channel: int, control: Control) -> None:
        if type(control) not in MAY_CONTROL[self._peer]:
            said = f"a {self._peer.name.lower()} does not send {control.NAME}"
            raise errors.RemoteProtocolError(errors.FrameError, said, control.KEY[0], control.KEY[1], channel)
        if control.KEY[0] == 1:
            self._step_connection(self._peer, channel, control)
            if type(control) is not k.ConnectionHeartbeat:
                self._events.append((channel, control))
            return
        if self.state is not ConnectionState.OPEN:
            raise self._framing_lost(f"{control.NAME} on a connection that is not open")
        state = self.attachments.get(channel, AttachmentState.DETACHED)
        if state is AttachmentState.DETACHED and type(control) is not k.SessionAttach:
            if type(control) is not k.SessionDetached:
                self._answer_not_attached(channel)
            return
        if state in DETACHING and type(control) not in _DETACHING_CONTROLS:
            return
        self._step_attachment(self._peer, channel, control)
        if type(control) is k.SessionGap and (channel, COMMAND) in self._assemblies:
            self._assemblies[channel, COMMAND].given_up = True
        self._events.append((channel, control))

    def _malformed_frame(self, flags: int, size: int, track: int, zero: int) -> errors.RemoteProtocolError:
        if flags & _RESERVED_FLAGS or track > 1 or zero:
            said = f"reserved bits of a frame are set: flags {flags:#04x}, track {track:#06x}, end {zero:#010x}"
        else:
            said = f"a frame of {size} octets; between {FRAME_HEADER} and {self._max_received} are possible"
        return self._framing_lost(said)

    def _framing_lost(self, said: str) -> errors.RemoteProtocolError:
        self._deaf = True
        self._held.clear()
        return errors.RemoteProtocolError(errors.FrameError, said)

    # -- the state machines --------------------------------------------------------------------------------------

    def _step_connection(self, speaker: Role, channel: int, control: Control) -> None:
        after = CONNECTION_TRANSITIONS[self.state].get((speaker, type(control)))
        if channel or after is None:
            where = f"channel {channel}" if channel else f"connection state {self.state.name.lower()}"
            said = f"unexpected {control.NAME} in {where}" if not channel else f"{control.NAME} on {where}, not 0"
            raise errors.RemoteProtocolError(errors.FrameError, said, control.KEY[0], control.KEY[1], channel)
        if isinstance(control, k.ConnectionTune):
            self._check_frame_size(control.max_frame_size, LARGEST_FRAME)
            self._offered = control
        elif isinstance(control, k.ConnectionTuneOk):
            self._tune(control)
        if after is ConnectionState.CLOSED:
            self._end()
            return
        self.state = after
        self._halted = after is ConnectionState.AWAIT_TUNE and self.role is Role.SERVER
        if self._closing():
            self.attachments.clear()
            self.names.clear()
            for assembly in self._assemblies.values():
                assembly.drop()

    def _tune(self, control: k.ConnectionTuneOk) -> None:
        most = self._offered.max_frame_size or LARGEST_FRAME
        self._check_frame_size(control.max_frame_size, most)
        channels = self._offered.channel_max or MOST_CHANNELS
        if (control.channel_max or 0) > channels:
            said = f"channel-max {control.channel_max} is above the offered {channels}"
            raise errors.RemoteProtocolError(errors.FrameError, said, *control.KEY)
        self.max_frame_size = self._max_received = self._max_sent = control.max_frame_size or most
        self.channel_max = control.channel_max or channels

    def _check_frame_size(self, size: int | None, most: int) -> None:
        if size and not MIN_MAX_FRAME_SIZE <= size <= most:
            said = f"max-frame-size {size} is not between {MIN_MAX_FRAME_SIZE} and {most}"
            raise errors.RemoteProtocolError(errors.FrameError, said, 1, 6)

    def _end(self) -> None:
        self.state = ConnectionState.CLOSED
        self._deaf = self._halted = True
        self._held.clear()
        self.attachments.clear()
        self.names.clear()

    def _step_attachment(self, speaker: Role, channel: int, control: Control) -> None:
        state = self.attachments.get(channel, AttachmentState.DETACHED)
        after = ATTACHMENT_TRANSITIONS[state].get((speaker, type(control)))
        if after is None:
            said = f"unexpected {control.NAME} on channel {channel} in state {state.name.lower()}"
            raise _in_session(errors.IllegalState, said, channel, type(control))
        if isinstance(control, _NAMED):
            if state is AttachmentState.DETACHED:
                self.names[channel] = control.name
            elif control.name != self.names[channel]:
                if not (type(control) is k.SessionDetached and not control.name):
                    return  # rule 7 of `states`
        if after is AttachmentState.DETACHED:
            self.attachments.pop(channel, None)
            self.names.pop(channel, None)
        else:
            self.attachments[channel] = after
            self._refused.discard(channel)
        if after not in USABLE[self._peer] and (channel, COMMAND) in self._assemblies:
            self._assemblies[channel, COMMAND].drop()

    # -- sending -------------------------------------------------------------------------------------------------

    def send_header(self) -> None:
        """Send the protocol header, the client's first eight bytes. The server's are sent when these have come."""
        if self.role is not Role.CLIENT or self.state is not ConnectionState.AWAIT_HEADER:
            raise errors.LocalProtocolError("the protocol header is sent once, by the client, first")
        self.state = ConnectionState.AWAIT_START
        self._outgoing.append(PROTOCOL_HEADER)

    def send_control(self, channel: int, control: Control) -> None:
        """Send a control. Raises LocalProtocolError when it may not be sent now or a field does not fit."""
        payload = encode_control(control)
        if type(control) not in MAY_CONTROL[self.role]:
            raise errors.LocalProtocolError(f"a {self.role.name.lower()} does not send {control.NAME}")
        largest = self._max_sent
        try:
            if control.KEY[0] == 1:
                self._step_connection(self.role, channel, control)
            else:
                self._check_open(channel, control.NAME)
                self._step_attachment(self.role, channel, control)
        except errors.RemoteProtocolError as error:
            raise errors.LocalProtocolError(f"{control.NAME}: {error.answer.detail}") from None
        self._outgoing.append(control_frames(channel, payload, largest))

    def send_command(self, channel: int, command: Command) -> None:
        """Send a command without content. Raises LocalProtocolError when it may not be sent now or does not fit."""
        self._check_command(channel, command)
        if type(command) in c.CARRIES_CONTENT:
            raise errors.LocalProtocolError(f"{command.NAME} carries content: send_content sends it")
        self._outgoing.append(command_frames(channel, encode_command(command), self._max_sent))

    def send_content(
        self, channel: int, command: Command, header: bytes | Sequence[Struct] = b"", body: bytes = b""
    ) -> None:
        """Send a transfer with its header and body. Raises as `send_command` does.

        The header is a list of structs, or the bytes of `Content.header` or `content.encode_header`.
        """
        self._check_command(channel, command)
        if type(command) not in c.CARRIES_CONTENT:
            raise errors.LocalProtocolError(f"{command.NAME} carries no content: send_command sends it")
        raw = header if isinstance(header, bytes) else encode_header(header)
        payload = encode_command(command)
        content = encode_content(channel, raw, body, self._max_sent)
        self._outgoing += (command_frames(channel, payload, self._max_sent, bool(content)), content)

    def send_pieces(self, pieces: Sequence[bytes]) -> None:
        """Send encoded frames, for the hot paths: of commands and contents on attached channels, none too long."""
        self._outgoing += pieces

    def send_heartbeat(self) -> None:
        """Send a heartbeat. Raises LocalProtocolError before tune-ok and once the connection is closing."""
        self.send_control(0, k.ConnectionHeartbeat())

    @property
    def pending(self) -> int:
        """The number of pieces for the transport: 0 when there is nothing to send."""
        return len(self._outgoing)

    def data_to_send(self) -> bytes:
        """Everything sent since the last call, as bytes for the transport."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def _check_open(self, channel: int, name: str) -> None:
        if self.state is not ConnectionState.OPEN:
            raise errors.LocalProtocolError(f"{name}: the connection is {self.state.name.lower()}")
        if channel >= self.channel_max:
            raise errors.LocalProtocolError(f"{name}: channel {channel} is not below {self.channel_max}")

    def _check_command(self, channel: int, command: Command) -> None:
        self._check_open(channel, command.NAME)
        if type(command) not in MAY_SEND[self.role]:
            raise errors.LocalProtocolError(f"a {self.role.name.lower()} does not send {command.NAME}")
        if self.attachments.get(channel) not in USABLE[self.role]:
            raise errors.LocalProtocolError(f"{command.NAME}: channel {channel} has no session")


def _in_session(
    cls: type[errors.AmqpError], said: str, channel: int, compound: type[Control | Command]
) -> errors.RemoteProtocolError:
    return errors.RemoteProtocolError(cls, said, compound.KEY[0], compound.KEY[1], channel, "channel")
