"""A session that only publishes, under numbers that its program gives: each is executed once, by whichever process.

The number of a message is that of its command. So a program that starts again, on another machine too, publishes what
it published before under the same numbers, and the broker drops what it has executed.

Rules:
1. Attaching takes the session by force: the process that had it is gone, or shall be. One that is told of a takeover
   has ended.
2. Numbers that the broker has not received are sent in ascending order; one that is not sent is announced as a gap.
   What it misses of those before, after a restart, may be sent in any order.
3. The broker is never told that what it has completed is known (session.known-completed): the next process has to hear
   it, too.
4. A rejection is complete when the program has acted on it: until then the next process hears of it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.sessions.calls import Rejection
from harebell.client.sessions.core import refusals
from harebell.client.sessions.core.home import Home
from harebell.client.sessions.core.transport import SessionTransport
from harebell.client.sessions.statistics import Tally
from harebell.client.transport.deadlines import EXPIRED
from harebell.protocol.v010 import AttachmentState, Command, Control, commands as c, controls as k
from harebell.protocol.v010.bulk import encode_transfers
from harebell.protocol.v010.domains import DetachCode, RejectCode
from harebell.protocol.v010.ranges import Marks
from harebell.protocol.v010.receiving import ReceivingHalf
from harebell.protocol.v010.serial import narrow, narrow_ranges, wide_ranges
from harebell.protocol.v010.values import Ranges

__all__ = ["NumberedCore", "Run"]

MOST_NUMBERS: Final = 1 << 31  # a serial number of 32 bits has to tell older numbers from newer ones
OVERHEAD: Final = 64  # bytes that a message costs beside its own


class Run:
    """Messages under numbers that follow each other.

    first     number of the first one; `stop`: one more than that of the last
    commands  the payload of their commands: of all, or of each
    """

    __slots__ = ("_bodies", "_commands", "_headers", "first", "size", "stop")

    def __init__(
        self, first: int, commands: bytes | Sequence[bytes], headers: Sequence[bytes], bodies: Sequence[bytes]
    ) -> None:
        self.first = first
        self.stop = first + len(bodies)
        self._commands = commands
        self._headers = headers
        self._bodies = bodies
        self.size = sum(map(len, bodies)) + sum(map(len, headers)) + OVERHEAD * len(bodies)

    def __len__(self) -> int:
        return self.stop - self.first

    def frames(self, channel: int, most: int, low: int, high: int) -> list[bytes]:
        """The frames of those from `low` to `high`; the last one asks for its completion."""
        start, stop, commands = low - self.first, high + 1 - self.first, self._commands
        headers, bodies = self._headers[start:stop], self._bodies[start:stop]
        each: bytes | Sequence[bytes] = commands if isinstance(commands, bytes) else commands[start:stop]
        last = _with_sync(each if isinstance(each, bytes) else each[-1])
        found = encode_transfers(channel, each, headers, bodies, most)
        found[-1:] = encode_transfers(channel, last, headers[-1:], bodies[-1:], most)
        return found


def _with_sync(command: bytes) -> bytes:
    """The payload of the same command with the flag sync of session.header."""
    return command[:3] + b"\1" + command[4:]


class NumberedCore:
    """One session.

    executed    the numbers that are complete, or will never be used
    next        one more than the highest number that the broker or this process knows of
    resumed     whether the broker had the session when it was first attached
    granted     seconds that the broker keeps it without a connection; None before it has said so
    rejections  those that were not acted on, by number
    pending     how many messages were sent and are not complete; `pending_bytes` of them
    progress    grows with whatever the broker does
    lost        set when the broker has no state of it any more; `reason`: why it has ended
    """

    def __init__(self, home: Home, name: str, timeout: int, *, force: bool) -> None:
        self._home = home
        self.loop = home.loop
        self.name = name
        self.wire_name = name.encode()
        self.reason: errors.HarebellError | None = None
        self.lost: errors.SessionStateLost | None = None
        self.granted: int | None = None
        self.resumed = False
        self.attached_once = False
        self.executed = Marks()
        self.next = 0
        self.rejections: dict[int, Rejection] = {}
        self.pending = self.pending_bytes = self.progress = 0
        self._timeout, self._force = timeout, force
        self._transport: SessionTransport | None = None
        self._channel = 0
        self._expected = self._reported = False  # the broker has said, on this attachment, what it expects; has done
        self._at: int | None = None  # the number that the next command on the wire has
        self._begun = False  # the broker has had a command-point
        self._runs: list[Run] = []  # not complete
        self._receiving = ReceivingHalf()
        self._rejecting: dict[int, int] = {}  # the broker's command that rejects a number
        self._changed: list[asyncio.Future[object]] = []
        self._detaching: asyncio.Future[object] | None = None
        self._published = self._refused = self._resent = self._reattached = 0

    # -- as its connection knows it ----------------------------------------------------------------------------------

    def tally(self) -> Tally:
        return Tally(
            published=self._published,
            refused=self._refused,
            incomplete=self.pending,
            resent=self._resent,
            reattached=self._reattached,
            lost=self.lost is not None,
        )

    def attach(self, transport: SessionTransport, channel: int) -> None:
        """Ask for the session on that channel of an open transport."""
        self._transport, self._channel = transport, channel
        transport.channels[channel] = self
        transport.engine.send_control(channel, k.SessionAttach(self.wire_name, self._force or self.attached_once))
        transport.flush()

    def transport_lost(self, reason: errors.HarebellError) -> None:
        """The transport has ended: wait for another one."""
        self._transport = None
        self._forget_attachment()
        if self._detaching is not None and not self._detaching.done():
            self._detaching.set_result(False)
        self._change()

    def end(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        """The session is over, for this reason; `ours`: this client has left it."""
        if self.reason is None:
            self.reason = reason
            self._runs.clear()
            self._home.forget(self, reason, ours=ours)
            self._change()

    def writable(self) -> None:
        self._change()

    def before_write(self) -> None:
        receiving = self._receiving
        if self.usable and (receiving.due or receiving.fresh):
            for ranges in receiving.completed():
                self._say(k.SessionCompleted(ranges or None))

    def violated(self, error: errors.RemoteProtocolError) -> None:
        """The broker broke the protocol: leave the session, which stays."""
        self._say(k.SessionDetach(self.wire_name))
        self.end(error)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        transport = self._transport
        return transport is not None and transport.engine.attachments.get(self._channel) is AttachmentState.ATTACHED

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None

    @property
    def usable(self) -> bool:
        """Whether messages can be sent this moment."""
        return self.attached and self._expected and self._reported and self.reason is None and self.lost is None

    def check(self) -> None:
        """Raise what has ended the session, or SessionStateLost."""
        if self.lost is not None:
            raise copy_of(self.lost)
        if self.reason is not None:
            raise copy_of(self.reason)

    # -- publishing --------------------------------------------------------------------------------------------------

    async def opened(self, seconds: float) -> None:
        """Wait until the broker has said what it has executed. Raises what has ended the session, DeadlineExceeded."""
        await self.wait(lambda: self.usable, seconds, f"session.attach '{self.name}'")

    async def put(self, run: Run, seconds: float) -> None:
        """Send a run as soon as that is possible. Raises as `opened`; LocalProtocolError for a number out of turn."""
        if run.stop > MOST_NUMBERS:
            raise errors.LocalProtocolError(f"number {run.stop - 1}: {MOST_NUMBERS} numbers at most are possible")
        if run.first > self.next:
            raise errors.LocalProtocolError(f"number {run.first}: {self.next} comes first, or a gap up to there")
        await self.wait(self._writable, seconds, "message.transfer was held back")
        self._runs.append(run)
        self._published += len(run)
        self._count()
        self.next = max(self.next, run.stop)
        self._send(run, run.first, run.stop - 1)
        assert self._transport is not None
        self._transport.flush_now()

    async def gap(self, numbers: Ranges, seconds: float) -> None:
        """Announce that these numbers will not be used, or are known to be done. Raises as `opened`."""
        await self.wait(self._writable, seconds, "session.gap was held back")
        self._gap(numbers)

    async def settled(self, incomplete: int, seconds: float) -> None:
        """Wait until at most so many messages are incomplete. Raises as `opened`; seconds without any progress."""
        await self.wait(lambda: self.pending <= incomplete, seconds, "message.transfer")

    async def done(self, number: int, seconds: float) -> None:
        """Wait until that number is complete. Raises as `settled`."""
        await self.wait(lambda: number in self.executed, seconds, "message.transfer")

    def acted_on(self, number: int) -> None:
        """The program has done what it does about a rejection: the broker may forget it."""
        del self.rejections[number]
        command = self._rejecting.pop(number)
        if command not in self._rejecting.values():
            self._receiving.complete(command)
            if self._transport is not None:
                self._transport.flush()

    async def wait(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until that holds. Raises what has ended the session, DeadlineExceeded after seconds without progress."""
        progress, deadline = self.progress, self.loop.time() + seconds
        while True:
            self.check()
            if holds():
                return
            if self.progress != progress:
                progress, deadline = self.progress, self.loop.time() + seconds
            future: asyncio.Future[object] = self.loop.create_future()
            self._changed.append(future)
            key = self._home.deadlines.add(future, deadline)
            try:
                result = await future
            finally:
                self._home.deadlines.remove(key, future)
                if future in self._changed:
                    self._changed.remove(future)
            if result is EXPIRED and self.progress == progress:
                state = "" if self._transport is not None else ", the connection is lost"
                raise errors.DeadlineExceeded(f"{what}: nothing from {self._home.peers} for {seconds:g} s{state}")

    def _writable(self) -> bool:
        return self.usable and self._transport is not None and not self._transport.writing_paused

    def _change(self) -> None:
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)

    def _count(self) -> None:
        missing = self.executed.missing
        self.pending = sum([high + 1 - low for run in self._runs for low, high in missing(run.first, run.stop - 1)])
        self.pending_bytes = sum([run.size for run in self._runs])

    def _send(self, run: Run, low: int, high: int) -> None:
        transport = self._transport
        assert transport is not None
        if self._at != low:
            self._say(k.SessionCommandPoint(narrow(low), 0))
            self._begun = True
        transport.engine.send_pieces(run.frames(self._channel, transport.engine.max_frame_size, low, high))
        self._at = high + 1

    def _gap(self, numbers: Ranges) -> None:
        if not self._begun:  # a session knows of no numbers before its first command-point
            self._say(k.SessionCommandPoint(0, 0))
            self._begun = True
        self._say(k.SessionGap(narrow_ranges(list(numbers))))
        for low, high in numbers:
            self.executed.add(low, high)
            self.next = max(self.next, high + 1)
        self._at = None

    def _say(self, control: Control) -> None:
        if self.attached and self._transport is not None:
            self._transport.engine.send_control(self._channel, control)
            self._transport.flush()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, event: object) -> None:
        self.progress += 1
        if isinstance(event, Control):
            self._receive_control(event)
        elif isinstance(event, Command):
            self._execute(event)
        else:
            raise errors.RemoteProtocolError(
                errors.NotAllowed, "a message for a session that subscribes to none", 4, 1, self._channel, "channel"
            )

    def _receive_control(self, control: Control) -> None:
        receiving = self._receiving
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
                self._change()
            case k.SessionRequestTimeout():
                self._say(k.SessionTimeout(0))  # this end lasts as long as its process
            case k.SessionExpected():
                self._resume(control.commands)
            case k.SessionCompleted():
                self._completed(control)
            case k.SessionFlush():
                self._flush(control)
            case k.SessionCommandPoint():
                receiving.command_point(control.command_id, control.command_offset)
            case k.SessionKnownCompleted():
                receiving.known_completed(control.commands or ())
            case k.SessionGap():
                receiving.gap(control.commands or ())

    def _attached(self) -> None:
        self._reattached += self.attached_once
        self.attached_once = True
        self._receiving.detached(0)  # it expects the broker's first command: else that would begin anew
        self._say(k.SessionRequestTimeout(self._timeout))
        self._say(k.SessionFlush(expected=True, completed=True))

    def _flush(self, control: k.SessionFlush) -> None:
        receiving = self._receiving
        if control.expected:
            self._say(k.SessionExpected(receiving.expected()))
        if control.confirmed:
            self._say(k.SessionConfirmed(None))
        if control.completed:
            receiving.due = True

    def _resume(self, ranges: Ranges) -> None:
        """The broker has said what it expects: send again what it misses."""
        first_time = self._reattached == 0
        if not ranges:
            if self.next:
                self._lose()
                return
            self._expected = True
            return
        pairs = wide_ranges(ranges, self.next)
        self._begun = True
        if first_time:
            self.resumed = True
        elif pairs[-1][0] > self.next:
            self._say(k.SessionDetach(self.wire_name))
            self.end(refusals.continued(self.name, self.pending, 0, ValueError(f"it expects {pairs[-1][0]}")))
            return
        self.next = max(self.next, pairs[-1][0])
        self._expected = True
        for index, (low, high) in enumerate(pairs):
            self._send_again(low, self.next - 1 if index == len(pairs) - 1 else min(high, self.next - 1))
        self._home.returned(self)

    def _send_again(self, low: int, high: int) -> None:
        """Send what is to be sent of the numbers from `low` to `high`, which the broker expects."""
        gaps = self.executed.present(low, high)
        if gaps:
            self._gap(tuple(gaps))
        for run in sorted(self._runs, key=lambda run: run.first):
            for start, end in self.executed.missing(max(low, run.first), min(high, run.stop - 1)):
                self._resent += end + 1 - start
                self._send(run, start, end)

    def _completed(self, control: k.SessionCompleted) -> None:
        try:
            pairs = wide_ranges(control.commands or (), self.next)
        except ValueError as error:
            raise self._malformed(f"session.completed: {error}") from None
        for low, high in pairs:
            self.executed.add(max(low, 0), high)
            self.next = max(self.next, high + 1)  # an earlier process may have announced a gap that far ahead
        missing = self.executed.missing
        self._runs = [run for run in self._runs if missing(run.first, run.stop - 1)]
        self._count()
        if control.timely_reply:
            self._say(k.SessionKnownCompleted(None))  # rule 3
        self._reported = True
        self._change()

    def _execute(self, command: Command) -> None:
        number = self._receiving.receive(command.sync or type(command) is c.ExecutionSync)
        if number is None:
            return
        match command:
            case c.ExecutionException():
                self.end(refusals.exception(self.name, command))
                return
            case c.MessageReject():
                self._rejected(number, command.transfers, Rejection(command.code, command.text or "rejected"))
            case c.MessageRelease():
                said = Rejection(RejectCode.UNSPECIFIED, "the broker released it")
                self._rejected(number, command.transfers, said)
            case c.ExecutionSync():
                self._receiving.complete_in_order(number)
            case _:  # accepts; results of what another process has asked
                self._receiving.complete(number)

    def _rejected(self, command: int, transfers: Ranges, rejection: Rejection) -> None:
        try:
            pairs = wide_ranges(transfers, self.next)
        except ValueError as error:
            raise self._malformed(f"message.reject: {error}") from None
        for low, high in pairs:
            for number in range(max(low, 0), min(high, self.next - 1) + 1):
                self._refused += 1
                self.rejections[number] = rejection
                self._rejecting[number] = command
        if command not in self._rejecting.values():
            self._receiving.complete(command)
        self._change()

    def _malformed(self, said: str) -> errors.RemoteProtocolError:
        return errors.RemoteProtocolError(errors.WrongArgument, said, 2, channel=self._channel, scope="channel")

    # -- the end -----------------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        self.lost = refusals.state_lost(self.name, self.pending, 0)
        self._home.returned(self, self.lost)
        self._change()

    def _forget_attachment(self) -> None:
        self._expected = self._reported = False
        self._at = None
        self._receiving.detached()

    def _detached(self, code: int) -> None:
        if self._transport is not None:
            self._transport.channels.pop(self._channel, None)
            self._transport = None
        self._forget_attachment()
        if self._detaching is not None and not self._detaching.done():
            self.end(refusals.closed(self.name), ours=True)
            self._detaching.set_result(True)
        else:
            self.end(refusals.detached(self.name, code))

    async def detach(self, seconds: float, *, keep: bool) -> None:
        """Leave the session, and end it unless it is to be kept; over as many transports as it takes."""
        while self.reason is None and self.lost is None:
            await self.wait(lambda: self.attached, seconds, "session.detach")
            self.before_write()
            self._detaching = self.loop.create_future()
            self._say_detach(keep=keep)
            key = self._home.deadlines.add(self._detaching, self.loop.time() + seconds)
            try:
                if await self._detaching is EXPIRED:
                    raise errors.DeadlineExceeded(f"session.detach: nothing from {self._home.peers} for {seconds:g} s")
            finally:
                self._home.deadlines.remove(key, self._detaching)

    def hang_up(self, *, keep: bool) -> None:
        """Leave the session without waiting for the answer."""
        if self.reason is None:
            self._say_detach(keep=keep)
            self.end(refusals.closed(self.name), ours=True)

    def _say_detach(self, *, keep: bool) -> None:
        if not keep:
            self._say(k.SessionRequestTimeout(0))
        self._say(k.SessionDetach(self.wire_name))
