"""The broker's side of a connection of AMQP 0-10: login, sessions on channels, errors; bytes in, bytes out.

The engine splits each piece of input into events, which their sessions process one by one. An error of one session ends
that session (`Session.fail`); an error of the connection closes it. A session whose connection is closed or lost waits
for another one, for the time that it was granted (`sessions`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from harebell.broker.connections.base import CLOSING_TIMEOUT, BaseConnection
from harebell.broker.connections.deferred_input import DeferredInput
from harebell.broker.connections.phase import Phase
from harebell.broker.connections.transport import Transport
from harebell.broker.node import Node
from harebell.broker.rules.limits import channel_refusal
from harebell.broker.slices import SLICE, Work
from harebell.broker.v010.handshake import Handshake
from harebell.broker.v010.link import Happening
from harebell.broker.v010.refusals import close_code
from harebell.broker.v010.session import Session
from harebell.broker.v010.sessions import Sessions
from harebell.errors import AmqpError, RemoteProtocolError, ResourceError
from harebell.protocol.v010 import (
    AttachmentState,
    Command,
    ConnectionState,
    Content,
    Control,
    Engine,
    OversizedContent,
    Role,
    controls as k,
)
from harebell.protocol.v010.domains import DetachCode
from harebell.protocol.v010.frames import LARGEST_FRAME, control_frames
from harebell.protocol.v010.transfers import Transfers

__all__ = ["MAX_NAME", "Connection"]

log = logging.getLogger("harebell.broker.connection")

MAX_NAME: Final = 1024  # bytes of a session's name: the broker has the names of all sessions that last

_PUBLICATIONS: Final[Mapping[type[Any], Callable[[Any], int]]] = {
    Content: lambda content: len(content.frames),
    Transfers: lambda transfers: transfers.size,
}


class Connection(BaseConnection[Happening]):
    """One client's connection. `channels` are the sessions that are attached to it, by channel."""

    protocol = "{0,10}"
    heartbeat_frame = control_frames(0, k.ConnectionHeartbeat().encode(), LARGEST_FRAME)

    def __init__(self, node: Node, transport: Transport, sessions: Sessions) -> None:
        limits = node.limits
        self.engine = Engine(
            Role.SERVER,
            max_frame_size=min(limits.frame_max, LARGEST_FRAME),
            channel_max=limits.channel_max,
            max_message_size=limits.max_message_size,
        )
        super().__init__(node, transport, self.engine, DeferredInput(_PUBLICATIONS, k.ConnectionClose))
        self.channels: dict[int, Session] = {}
        self._sessions = sessions
        self._handshake = Handshake(self, transport)
        self._reporting: set[int] = set()  # channels whose sessions have something to report
        self._slice_ends = 0.0  # when the commands of this input have had their time; 0: none has come

    # -- input ---------------------------------------------------------------------------------------------------

    def take_in(self, data: bytes, at: int, most: int) -> tuple[bytes, int]:
        """As `BaseConnection.take_in`. What is wrong in one session is an event of that session."""
        whole, stop = data, min(at + most, len(data))  # this engine takes whole buffers: a part is cut from the read
        engine, failure, data = self.engine, None, data[at:stop]
        found: list[tuple[int, Happening]] = []
        self.partial_size += len(data)
        while True:
            try:
                engine.receive_data(data)
            except RemoteProtocolError as error:
                found += engine.grouped_events()
                if error.scope != "channel" or engine.deaf:
                    failure = error
                    break
                found.append((error.channel, error))
                data = b""
            else:
                found += engine.grouped_events()
                break
        events: Sequence[tuple[int, Happening]] = found
        if events:
            self.read_size += self.partial_size
            self.partial_size = 0
        if self.busy or self.choked or self.awaits_letters or self.node.alarms:
            events = self.sift(events)
        self.process(events)
        if failure is not None:
            self._fail(failure)
        elif engine.state is ConnectionState.AWAIT_START:
            engine.send_control(0, self._handshake.start())
        if engine.pending:
            self.has_output(0)
        return whole, stop

    def process_events(self, events: Sequence[tuple[int, Happening]]) -> None:
        rest = self.events = iter(events)
        self._slice_ends = 0.0
        while (found := self._process()) is not None:
            number, transfers = found
            self.events = chain(((number, content) for content in transfers.contents()), rest)
            self.channels[number].publisher.spend_effort()

    def _process(self) -> tuple[int, Transfers] | None:
        """Process the events up to transfers that have to be executed one by one, which are returned."""
        channels, stopwatch = self.channels, self.batch.slices.stopwatch
        for number, event in self.events:
            session = channels.get(number)
            try:
                if type(event) is Transfers:
                    if session is not None and not session.publish_run(event):
                        return number, event
                    continue
                if type(event) is Content:
                    if session is not None:  # else an error ended it earlier in this batch
                        session.publish(event)
                    continue
                late = self.batch.letters.waits  # those of a transfer or a rejection before this command
                if not self._slice_ends:
                    self._slice_ends = stopwatch() + SLICE
                elif stopwatch() > self._slice_ends:
                    late = True
                if late:
                    self.waiting.add(((number, event),))
                    self.take_turns()
                    return None
                if self.batch.scheduled:  # what was published before goes to subscribers first, as if sent with a pause
                    self.batch.deliver()
                self._handle(number, session, event)
            except AmqpError as error:
                self.refuse(number, error, event)
            except OSError as error:
                self.batch.fail(error)
        return None

    def _handle(self, number: int, session: Session | None, event: Happening) -> None:
        if isinstance(event, Control):
            if event.KEY[0] == 1:
                self._handle_connection(event)
            elif self.phase is Phase.OPEN:
                self._handle_session(number, session, event)
        elif session is None or self.phase is not Phase.OPEN:
            return  # an error ended it earlier in this batch
        elif isinstance(event, RemoteProtocolError):
            session.fail(event.answer)
        elif isinstance(event, (Command, OversizedContent)):
            session.execute(event)

    def _handle_connection(self, control: Control) -> None:
        match control:
            case k.ConnectionClose():
                self.work(0, control, self._closing())
            case k.ConnectionCloseOk():
                self.end()
            case _:
                self._handshake.handle(control)

    def _handle_session(self, number: int, session: Session | None, control: Control) -> None:
        match control:
            case k.SessionAttach():
                self._attach(number, session, control)
            case k.SessionDetach() if session is not None and control.name == session.session_name:
                self.work(number, control, self._detaching(number, session))
            case k.SessionDetach():
                self._answer(number, k.SessionDetached(control.name, DetachCode.NORMAL))
            case k.SessionDetached():
                if session is not None and control.name in (b"", session.session_name):
                    self.leave(number)
                    self.work(number, control, self._sessions.leave(session))
            case _ if session is None:
                return
            case k.SessionRequestTimeout():
                granted = self._sessions.grant(session, control.timeout)
                if session.listens:
                    self._answer(number, k.SessionTimeout(granted))
            case k.SessionTimeout() | k.SessionAttached():
                return  # the broker asks for neither
            case _:
                try:
                    session.receive_control(control)
                except RemoteProtocolError as error:
                    session.fail(error.answer)

    # -- attaching -----------------------------------------------------------------------------------------------

    def _attach(self, number: int, present: Session | None, control: k.SessionAttach) -> None:
        if present is not None:
            if present.session_name == control.name:
                self._answer(number, k.SessionAttached(control.name))
            else:
                self._answer(number, k.SessionDetached(control.name, DetachCode.TRANSPORT_BUSY))
            return
        session = self._sessions.find(self, control.name)
        if session is not None and session.attached and not control.force:
            self._answer(number, k.SessionDetached(control.name, DetachCode.SESSION_BUSY))
        elif session is not None and session.working:
            self.work(number, control, self._attaching(number, session, control))
        else:
            self._attach_now(number, session, control.name)

    def _attaching(self, number: int, session: Session, control: k.SessionAttach) -> Work:
        """Attach a session when the commands are executed that it executes in slices."""
        while session.working:
            yield
        self._attach_now(number, self._sessions.find(self, control.name), control.name)

    def _attach_now(self, number: int, session: Session | None, name: bytes) -> None:
        attachment = self.engine.attachments.get(number)
        if attachment is not AttachmentState.ATTACHING_BY_CLIENT or self.phase is not Phase.OPEN:
            return  # the client has given up
        refusal = self._refusal(name) if session is None else None
        self.engine.send_control(number, k.SessionAttached(name))
        self.has_output(0)
        if session is None:
            session = self._sessions.add(self, number, name)
            self.node.churn.channel_created += 1
            self.node.events.channel_created(session)
        else:
            if session.attached:
                session.connection.expel(session.number, name)
            self._sessions.revive(session)
        self.channels[number] = session
        session.attach(self, number)
        if refusal is not None:
            session.fail(refusal)

    def _refusal(self, name: bytes) -> ResourceError | None:
        """Why a new session is refused, right after it is attached."""
        if len(name) > MAX_NAME:
            return ResourceError(f"the name of a session has at most {MAX_NAME} bytes, not {len(name)}")
        refusal = channel_refusal(self.node, self)
        return None if refusal is None else ResourceError(refusal.detail)

    def expel(self, number: int, name: bytes) -> None:
        """Tell the client that another connection has taken its session."""
        session = self.channels.get(number)
        self.leave(number)
        if session is not None:
            session.detach()
        self._answer(number, k.SessionDetached(name, DetachCode.SESSION_BUSY))

    def _detaching(self, number: int, session: Session) -> Work:
        self.leave(number)
        yield from self._sessions.leave(session)
        self._answer(number, k.SessionDetached(session.session_name, DetachCode.NORMAL))

    def _answer(self, number: int, control: Control) -> None:
        """Send a control of a session, unless the connection is closing."""
        if self.engine.state is ConnectionState.OPEN:
            self.engine.send_control(number, control)
            self.has_output(0)

    def leave(self, number: int, *, ended: bool = False) -> None:
        session = self.channels.pop(number, None)
        self._reporting.discard(number)
        if session is not None and ended:
            self._sessions.forget(session)

    def reports(self, number: int) -> None:
        self._reporting.add(number)
        self.has_output(0)

    # -- as the node and the net use it --------------------------------------------------------------------------

    @property
    def frame_max(self) -> int:
        return self.engine.max_frame_size

    @property
    def channel_max(self) -> int:
        return self.engine.channel_max

    def give_back_overdue(self, now: int, default: int, least: int) -> Work:
        """End sessions with deliveries that were not settled within their queue's consumer timeout."""
        for session in tuple(self.channels.values()):
            yield from session.give_back_overdue(now, default, least)
            yield

    def forget(self) -> None:
        self.node.forget_connection(self)

    def has_channel(self, number: int) -> bool:
        return number in self.channels

    def schedule_consumers(self) -> None:
        for session in self.channels.values():
            session.schedule()

    def notify_blocked(self, blocked: bool) -> None:
        """Do nothing: AMQP 0-10 has no word for it. Transfers of the client complete when the alarm is over."""

    def pieces(self, size: int) -> Sequence[bytes]:
        reporting, self._reporting = self._reporting, set()
        for number in reporting:
            session = self.channels.get(number)
            if session is not None:
                session.report()
        return (self.engine.data_to_send(),)

    # -- errors and the end --------------------------------------------------------------------------------------

    def refuse(self, number: int, error: AmqpError, event: Happening) -> None:
        """Close the connection because of an error in the handshake. A session answers its own errors."""
        self.close(error)

    def close(self, error: AmqpError) -> None:
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        log.warning("%s: connection closed: %s", self.transport.peer, error)
        if self.engine.state.value <= ConnectionState.AWAIT_START.value:
            self.release()
            self.end()  # the broker may send nothing before connection.start
            return
        if self.engine.state is not ConnectionState.CLOSED:
            self.engine.send_control(0, k.ConnectionClose(close_code(error), error.reply_text))
        self.phase = Phase.CLOSING
        self.release()
        self.pause_or_resume()  # the client's close-ok must be read
        self.transport.close(CLOSING_TIMEOUT)
        self.has_output(0)

    def _fail(self, error: RemoteProtocolError) -> None:
        """Answer an error that the engine found. Where no close-ok can follow, the answer ends the connection."""
        if self.engine.state is ConnectionState.CLOSED:
            log.warning("%s: %s", self.transport.peer, error)
            self.release()
            self.end()
        else:
            self.close(error.answer)
            if self.engine.deaf:
                self.end()

    def _closing(self) -> Work:
        """Answer connection.close when sessions that do not last have ended: the client may declare anew at once."""
        self.phase = Phase.CLOSING
        yield from self.releasing()
        self.engine.send_control(0, k.ConnectionCloseOk())
        self.end()

    def releasing(self) -> Work:
        waiting = {number for number, _ in self.waiting.take()}
        for content in self.engine.interrupted():
            session = self.channels.get(content.channel)
            if session is not None and content.channel not in waiting:  # else commands before it are lost
                session.cut_off(content)
        sessions = tuple(self.channels.values())
        self.channels.clear()
        for session in sessions:
            yield from self._sessions.leave(session)
