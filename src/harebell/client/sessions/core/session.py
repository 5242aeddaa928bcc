"""A session over every transport that carries it: what it has sent and received, and what waits for the broker.

The states of its commands are `protocol.v010.session.Session`'s. When a transport ends, the commands that are not
complete stay; on the next one the session is attached again, asks what the broker expects, sends that again, and goes
on. Calls that issue a command meanwhile wait at the gate.

Rules:
1. A command that has a number stays in the session: a caller that is cancelled, or whose deadline has passed, leaves it
   there, and the broker executes it once.
2. Attaching again takes the session by force: the connection that still has it is most likely the lost one. A session
   that is told of such a takeover, by another one, has ended; it does not take itself back.
3. A transfer of the broker's is complete when its delivery is settled, or, where there is nothing to settle, when it is
   taken: that is what the window counts.
4. Settlements and completions are gathered for a turn of the loop.
5. When the broker has lost the state nothing is issued until the program has decided (`start_over`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, Final, cast

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.seconds import seconds_of
from harebell.client.sessions.calls import Call, Rejection, Sent, Waiting
from harebell.client.sessions.core import refusals
from harebell.client.sessions.core.deliveries import Deliveries
from harebell.client.sessions.core.gate import Gate
from harebell.client.sessions.core.home import Home
from harebell.client.sessions.core.transport import SessionTransport
from harebell.client.sessions.messages import BaseDelivery
from harebell.client.sessions.statistics import Tally
from harebell.client.transport.deadlines import EXPIRED
from harebell.protocol.v010 import (
    AttachmentState,
    Command,
    Content,
    Control,
    OversizedContent,
    Struct,
    commands as c,
    controls as k,
    encode_content,
)
from harebell.protocol.v010.codec import unpack_struct
from harebell.protocol.v010.domains import DetachCode, ErrorCode, RejectCode
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v010.sending import SendingHalf
from harebell.protocol.v010.serial import wide, wide_ranges
from harebell.protocol.v010.session import Again, Session as State

__all__ = ["SessionCore"]

logger = logging.getLogger("harebell.client")

MOST_COMMANDS: Final = 65_536  # incomplete commands: as many as a broker of ours takes
ENOUGH_COMMANDS: Final = 49_152  # ..., above which callers wait; settlements do not
RESERVE: Final = 64  # commands that are issued together, at most
LEAVABLE: Final = (AttachmentState.ATTACHED, AttachmentState.ATTACHING_BY_CLIENT)
MOST_BYTES: Final = 64 << 20  # bytes of incomplete commands, above which callers wait


class SessionCore:
    """One session.

    reason      why it has ended; None before that
    lost        set while the broker has no state of it and the program has not decided
    generation  of its state: deliveries of an earlier one cannot be settled
    granted     seconds that the session outlives its connection; None before the broker has said so
    resumed     whether the broker had the session when it was first attached
    attempts    how often it was attached, or it was tried; `attached_once`: it was
    selected    tx.select was issued; `transaction`: the deliveries accepted in the one that is open
    branch      that of a distributed transaction that is worked in; `dtx_selected`: dtx.select was issued
    """

    def __init__(self, home: Home, name: str, timeout: int, *, force: bool) -> None:
        self._home = home
        self.loop = home.loop
        self.name = name
        self.wire_name = name.encode()
        self.reason: errors.HarebellError | None = None
        self.lost: errors.SessionStateLost | None = None
        self.generation = 0
        self.granted: int | None = None
        self.resumed = False
        self.selected = False
        self.transaction: list[BaseDelivery] | None = None
        self.dtx_selected = False
        self.branch: object | None = None
        self._timeout = timeout
        self._force = force
        self.attempts = 0
        self.attached_once = False
        self._published = self._refused = self._resent = self._reattached = self._losses = 0
        self._state: State[Sent] = State(self.wire_name, SendingHalf(max_commands=MOST_COMMANDS, max_bytes=1 << 62))
        self._transport: SessionTransport | None = None
        self._channel = 0
        self._lost_here = False  # on this attachment the broker has said that it has no state
        self._waiting: dict[int, Waiting] = {}
        self.deliveries = Deliveries(self)
        self._deferred: deque[tuple[Sent, Waiting | None]] = deque()  # to be issued as soon as there is room
        self._gate = Gate(self.loop, self.check, self._may_issue)
        self._changed: list[asyncio.Future[object]] = []
        self._detaching: asyncio.Future[object] | None = None

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether commands can be sent this moment."""
        return self._transport is not None and self._state.ready and self.reason is None and self.lost is None

    @property
    def incomplete(self) -> int:
        """How many commands were sent and are not complete."""
        return self._state.sending.incomplete

    @property
    def timeout(self) -> float:
        """Seconds of a call that does not say otherwise."""
        return self._home.timeout

    def tally(self) -> Tally:
        """What it has done so far."""
        deliveries = self.deliveries
        return Tally(
            published=self._published,
            refused=self._refused,
            incomplete=self.incomplete,
            resent=self._resent,
            delivered=deliveries.received,
            accepted=deliveries.accepted,
            released=deliveries.released,
            rejected=deliveries.rejected,
            held=deliveries.held,
            buffered=deliveries.buffered,
            reattached=self._reattached,
            lost=self._losses,
        )

    @property
    def attached(self) -> bool:
        transport = self._transport
        return transport is not None and transport.engine.attachments.get(self._channel) is AttachmentState.ATTACHED

    def check(self) -> None:
        """Raise ChannelClosed when the session has ended, SessionStateLost when its state is lost."""
        lost = self.reason or self.lost
        if isinstance(lost, errors.SessionStateLost | errors.LocalProtocolError):
            raise copy_of(lost)
        if self.reason is not None:
            raise errors.ChannelClosed(f"session '{self.name}' has ended: {self.reason}") from self.reason

    # -- attaching ---------------------------------------------------------------------------------------------------

    def attach(self, transport: SessionTransport, channel: int) -> None:
        """Ask for the session on that channel of an open transport."""
        self._transport, self._channel = transport, channel
        self.attempts += 1
        transport.channels[channel] = self
        transport.engine.send_control(channel, k.SessionAttach(self.wire_name, self._force or self.attached_once))
        transport.flush()

    def transport_lost(self, reason: errors.HarebellError) -> None:
        """The transport has ended: wait for another one."""
        self._transport = None
        self._lost_here = False
        self._state.detached()
        self._change()
        if self._detaching is not None and not self._detaching.done():
            self._detaching.set_result(False)

    def _attached(self) -> None:
        self._reattached += self.attached_once
        self.attached_once = True
        self._control(k.SessionRequestTimeout(self._timeout))
        for control in self._state.attached():
            self._control(control)

    def _detached(self, code: int) -> None:
        """The broker has detached the session, or does not attach it."""
        self._leave()
        if self.reason is not None:
            return
        if self._detaching is not None and not self._detaching.done():
            self.end(refusals.closed(self.name), ours=True)
            self._detaching.set_result(True)
            return
        if code == DetachCode.SESSION_BUSY and not self.attached_once and self.attempts > 1:
            self._home.attach_later(self)  # an attach was cut: the lost connection has the session
            return
        self.end(refusals.detached(self.name, code))

    def _leave(self) -> None:
        if self._transport is not None:
            self._transport.channels.pop(self._channel, None)
            self._transport = None
        self._state.detached()

    async def opened(self, deadline: float) -> None:
        """Wait until the session is attached and usable. Raises what has ended it, DeadlineExceeded."""
        while not (self.usable or self.lost is not None):
            if self.reason is not None:
                raise copy_of(self.reason)
            await self._change_by(deadline, f"session.attach '{self.name}'")

    # -- the loss of the state ---------------------------------------------------------------------------------------

    def _state_lost(self) -> None:
        self._lost_here = True
        if self.lost is None:
            self._losses += 1
            self.lost = refusals.state_lost(self.name, len(self._state.sending.unsafe()), self.deliveries.held)
            self._forget(self.lost, ours=False)
        self._home.returned(self, self.lost)
        self._change()

    def _continued(self, error: errors.RemoteProtocolError) -> None:
        """The broker expects what was never sent: another program has gone on with the session, by its name."""
        unknown = len(self._state.sending.unsafe())
        self._say_detach(keep=True)
        self.end(refusals.continued(self.name, unknown, self.deliveries.held, error))

    def _forget(self, reason: errors.HarebellError, *, ours: bool) -> None:
        """Nothing that was begun goes on; iterations end without an error where this client has left the session."""
        waiting, self._waiting = self._waiting, {}
        for each in (*waiting.values(), *(late for _, late in self._deferred if late is not None)):
            each.failed(reason)
        self._deferred.clear()
        self.deliveries.end(None if ours else reason)
        self.selected, self.transaction = False, None
        self.dtx_selected, self.branch = False, None

    async def start_over(self, deadline: float) -> None:
        """Go on after the loss of the state, with a new one. LocalProtocolError when it is not lost."""
        if self.lost is None:
            self.check()
            raise errors.LocalProtocolError(f"session '{self.name}' has not lost its state")
        while not self._lost_here:
            if self.reason is not None:
                self.check()
            await self._change_by(deadline, "start_over")
        self.lost = None
        self._lost_here = False
        self.generation += 1
        controls, _ = self._state.start_over()
        for control in controls:
            self._control(control)
        self._change()

    # -- waiting ---------------------------------------------------------------------------------------------------

    def deadline(self, timeout: float | None) -> float:
        """When a call that begins now has to be done, in the loop's time; None is the connection's timeout."""
        return self.loop.time() + seconds_of(timeout, self._home.timeout)

    async def wait(self, future: asyncio.Future[Any], deadline: float, what: str) -> object:
        """The future's result. DeadlineExceeded."""
        key = self._home.deadlines.add(future, deadline)
        try:
            result: object = await future
        finally:
            self._home.deadlines.remove(key, future)
        if result is EXPIRED:
            state = "" if self._transport is not None else ", the connection is lost"
            raise errors.DeadlineExceeded(f"{what}: no answer from {self._home.peers} in time{state}")
        return result

    async def _change_by(self, deadline: float, what: str) -> None:
        """Wait for a change of the session's state."""
        future: asyncio.Future[object] = self.loop.create_future()
        self._changed.append(future)
        try:
            await self.wait(future, deadline, what)
        finally:
            if future in self._changed:
                self._changed.remove(future)

    def _change(self) -> None:
        """The session's state has changed: it may have become usable, or ended."""
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)
        self._gate.open()

    def enter_nowait(self) -> bool:
        """Whether commands may be issued at once; what was deferred is issued then. Else `enter` waits, or says why."""
        if not self._gate.free:
            return False
        if self._deferred:
            self._issue_deferred()
        return True

    async def enter(self, deadline: float, what: str) -> None:
        """Wait until a command may be issued. Raises as `check`, and DeadlineExceeded: nothing was sent then."""
        await self._gate.enter(partial(self.wait, deadline=deadline, what=f"{what} was held back"))
        self._issue_deferred()

    def _may_issue(self) -> bool:
        sending = self._state.sending
        return (
            self.usable
            and sending.incomplete < ENOUGH_COMMANDS
            and sending.pending_bytes < MOST_BYTES
            and self._transport is not None
            and not self._transport.writing_paused
        )

    def writable(self) -> None:
        self._gate.open()

    # -- issuing -----------------------------------------------------------------------------------------------------

    async def call(self, what: str, *commands: Sent, timeout: float | None = None, call: Call | None = None) -> Call:
        """Issue commands, and wait for the completion of the last. Raises what ended the session, DeadlineExceeded.

        All are issued, or none: then `call`, which may be given, has no number.
        """
        deadline = self.deadline(timeout)
        if not self.enter_nowait():
            await self.enter(deadline, what)
        self.settle()
        for command in commands[:-1]:
            self.issue(command)
        call = Call(self.loop) if call is None else call
        call.number = self.issue(commands[-1], call)
        await self.answered(call, deadline, what)
        return call

    async def synced(self, deadline: float, what: str) -> None:
        """Wait until everything so far is complete. Raises as `call`."""
        await self.call(what, Sent(c.ExecutionSync(sync=True)), timeout=max(0.0, deadline - self.loop.time()))

    async def answered(self, call: Call, deadline: float, what: str) -> None:
        """Wait for the completion of a command that was issued. Raises as `call`."""
        if self._transport is not None:
            self._transport.ask()
        error = await self.wait(call.future, deadline, what)
        if isinstance(error, errors.HarebellError):
            raise error

    def issue(self, sent: Sent, waiting: Waiting | None = None) -> int:
        """Send a command now; `enter` has said that it may be. Returns its number."""
        number = self._state.sending.send(sent, sent.size)
        if waiting is not None:
            self._waiting[number] = waiting
        self._put(sent)
        return number

    def publish(self, sent: Sent, waiting: Waiting) -> int:
        """Send a message now, as `issue` does. Returns its number."""
        self._published += 1
        return self.issue(sent, waiting)

    def flush(self) -> None:
        """Have the output written with the loop's next turn."""
        if self._transport is not None:
            self._transport.flush()

    def defer(self, command: Command, waiting: Waiting | None = None) -> None:
        """Issue a command as soon as there is room, behind all settlements so far, and before what is issued later."""
        self.deliveries.gather(self._state.receiving.complete)
        for settlement in self.deliveries.settlements.commands():
            self._deferred.append((Sent(settlement), None))
        self._deferred.append((Sent(command), waiting))
        self.flush()

    def settle(self) -> None:
        """Complete what was settled, and issue what was deferred, and the settlements, where there is room."""
        self.deliveries.gather(self._state.receiving.complete)
        if self.usable:
            self._issue_deferred()
            if self.deliveries.settlements and self._room():
                for command in self.deliveries.settlements.commands():
                    self.issue(Sent(command))

    def _room(self) -> bool:
        """Whether there is room for what cannot wait."""
        return self._state.sending.incomplete < MOST_COMMANDS - RESERVE

    def _issue_deferred(self) -> None:
        while self._deferred and self._room():
            self.issue(*self._deferred.popleft())

    def before_write(self) -> None:
        self.settle()
        if self.usable:
            for control in self._state.due(idle=bool(self._state.receiving.fresh)):
                self._control(control)

    def _put(self, sent: Sent) -> None:
        transport = self._transport
        if transport is None:
            return  # the broker has ended the session in the same piece of input
        number, most = self._channel, transport.engine.max_frame_size
        content = encode_content(number, sent.header, sent.body, most) if sent.header or sent.body else b""
        transport.engine.send_pieces((command_frames(number, sent.payload, most, bool(content)), content))

    def _control(self, control: Control) -> None:
        """Send a control of the attached session; where it is not any more, nobody would read it."""
        if self.attached:
            self._say(control)

    def _say(self, control: Control) -> None:
        if self._transport is not None:
            self._transport.engine.send_control(self._channel, control)
            self._transport.flush()

    def check_transaction(self, what: str) -> None:
        """Raise LocalProtocolError where the session is transactional and no transaction is open."""
        if self.selected and self.transaction is None:
            raise errors.LocalProtocolError(
                f"{what}: session '{self.name}' is transactional: do it inside session.transaction(), or in another "
                "session"
            )

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, event: object) -> None:
        if isinstance(event, Control):
            self._receive_control(event)
        elif self.reason is not None:
            return
        elif isinstance(event, Content):
            number = self._state.receiving.receive(event.sync)
            if number is not None:
                self.deliveries.receive(number, event)
        elif isinstance(event, Command):
            self._execute(event)
        else:
            limit = cast(OversizedContent, event).limit
            raise errors.RemoteProtocolError(
                errors.ResourceError, f"a message of more than {limit} bytes", 4, 1, self._channel, "channel"
            )

    def _execute(self, command: Command) -> None:
        number = self._state.receiving.receive(command.sync or type(command) is c.ExecutionSync)
        if number is None:
            return
        match command:
            case c.ExecutionResult():
                self._result(command)
            case c.ExecutionException():
                self.end(refusals.exception(self.name, command))
                return
            case c.MessageReject():
                self._rejected(command.transfers, Rejection(command.code, command.text or "rejected"))
            case c.MessageRelease():
                self._rejected(command.transfers, Rejection(RejectCode.UNSPECIFIED, "the broker released it"))
            case c.ExecutionSync():
                self._state.receiving.complete_in_order(number)
                return
            case c.MessageAccept():
                pass  # the completion of the transfers says it
            case _:
                raise errors.RemoteProtocolError(
                    errors.NotImplemented,
                    f"{command.NAME} from the broker is not implemented",
                    command.KEY[0],
                    command.KEY[1],
                    self._channel,
                    "channel",
                )
        self._state.receiving.complete(number)

    def _result(self, command: c.ExecutionResult) -> None:
        waiting = self._waiting.get(wide(command.command_id, self._state.sending.next))
        if waiting is not None and command.value is not None:
            result = unpack_struct(command.value, self._channel)
            if isinstance(result, Struct):
                waiting.resulted(result)

    def _rejected(self, transfers: tuple[tuple[int, int], ...], rejection: Rejection) -> None:
        try:
            pairs = wide_ranges(transfers, self._state.sending.next)
        except ValueError as error:
            raise errors.RemoteProtocolError(
                errors.WrongArgument, f"message.reject: {error}", 4, 3, self._channel, "channel"
            ) from None
        for low, high in pairs:
            for number in range(max(low, self._state.sending.mark), min(high, self._state.sending.next - 1) + 1):
                waiting = self._waiting.get(number)
                if waiting is not None:
                    self._refused += 1
                    waiting.rejected(number, rejection)

    def _receive_control(self, control: Control) -> None:
        match control:
            case k.SessionDetach():
                self._say(k.SessionDetached(self.wire_name, DetachCode.NORMAL))
                self._detached(DetachCode.NORMAL)
            case k.SessionDetached():
                self._detached(control.code)
            case _ if self.reason is not None:
                return
            case k.SessionAttached():
                self._attached()
            case k.SessionTimeout():
                self.granted = control.timeout
                if self.granted == 0 < self._timeout and self._detaching is None:
                    logger.warning("the broker does not keep session '%s' over a lost connection", self.name)
            case k.SessionRequestTimeout():
                self._control(k.SessionTimeout(0))  # this end lasts as long as its process
            case _:
                self._react(control)

    def _react(self, control: Control) -> None:
        if isinstance(control, k.SessionExpected) and not self._state.has_state:
            self.resumed = bool(control.commands)
        was_ready = self._state.ready
        try:
            reaction = self._state.receive_control(control)
        except errors.RemoteProtocolError as error:
            if not isinstance(control, k.SessionExpected):
                raise
            self._continued(error)
            return
        if reaction.lost:
            self._state_lost()
            return
        for said in reaction.to_send:
            if isinstance(said, Again):
                self._resent += 1
                self._put(said.item)
            else:
                self._control(said)
        waiting = self._waiting
        for low, high in reaction.complete:
            if not waiting:
                break
            for number in range(low, high + 1):
                each = waiting.pop(number, None)
                if each is not None:
                    each.completed(number)
        if self._state.ready and not was_ready:
            self._home.returned(self)
            self._change()
        else:
            self._gate.open()

    # -- the end -----------------------------------------------------------------------------------------------------

    def violated(self, error: errors.RemoteProtocolError) -> None:
        """The broker broke the protocol: tell it, and end the session."""
        if self.attached and self._state.ready and self.reason is None:
            answer = error.answer
            code = answer.reply_code if answer.reply_code in tuple(ErrorCode) else ErrorCode.INTERNAL_ERROR
            self.issue(Sent(c.ExecutionException(code, description=answer.reply_text)))
            self._control(k.SessionDetach(self.wire_name))
        self.end(error)

    def end(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        """The session is over, for this reason; `ours`: this client has left it."""
        if self.reason is None:
            self.reason = reason
            self._forget(reason, ours=ours)
            self._home.forget(self, reason, ours=ours)
            self._change()

    async def detach(self, deadline: float, *, keep: bool) -> None:
        """Leave the session, and end it unless it is to be kept; over as many transports as it takes."""
        while self.reason is None:
            said = self._detaching is not None and not self._detaching.done()  # by another call
            if said or not self.attached or not (self._state.ready or self._lost_here):
                await self._change_by(deadline, "session.detach")
                continue
            self.settle()
            self._detaching = self.loop.create_future()
            self._say_detach(keep=keep)
            await self.wait(self._detaching, deadline, "session.detach")

    def hang_up(self, *, keep: bool) -> None:
        """Leave the session without waiting for the answer."""
        if self.reason is None:
            if self._transport is not None:
                self.settle()
                self._say_detach(keep=keep)
            self.end(refusals.closed(self.name), ours=True)

    def _say_detach(self, *, keep: bool) -> None:
        if self.usable:
            for control in self._state.due(idle=True):
                self._control(control)
        if self._transport is not None and self._transport.engine.attachments.get(self._channel) in LEAVABLE:
            if not keep:
                self._say(k.SessionRequestTimeout(0))
            self._say(k.SessionDetach(self.wire_name))
