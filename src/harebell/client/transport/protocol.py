"""The transport of a connection of AMQP 0-9-1: the core on a `Wire`.

When the transport holds more than it likes (pause_writing) publishers wait; requests and acks, which are small and
bounded by what was received, do not. Reading stops when consumers have not taken what already came
(MAX_BUFFERED_BYTES, MAX_BUFFERED_MESSAGES), but only while nothing waits for an answer on this connection: a reply
behind unread deliveries would never come.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final, cast

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.connection import ConnectionCore
from harebell.client.core.slots import Reply, Slot, copy_of
from harebell.client.seconds import seconds_of
from harebell.client.transport.deadlines import EXPIRED, Deadlines
from harebell.client.transport.wire import Wire
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import Engine, methods as m

__all__ = ["AsyncCore", "FutureSlot"]

MAX_BUFFERED_BYTES: Final = 64 << 20  # of bodies of one consumer that the program has not taken
MAX_BUFFERED_MESSAGES: Final = 50_000
MAX_GATHERED: Final = 1024  # pieces of output gathered before they are written within a turn


class FutureSlot(Slot):
    """A slot that a task awaits. The future's result is the reply or the error; it never holds an exception."""

    __slots__ = ("future",)

    def __init__(self, request: m.Method, future: asyncio.Future[object]) -> None:
        super().__init__(request)
        self.future = future

    def resolve(self, reply: Reply) -> None:
        super().resolve(reply)
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: errors.HarebellError) -> None:
        super().fail(error)
        if not self.future.done():
            self.future.set_result(error)


class AsyncCore(Wire, ConnectionCore):
    """One connection on one transport."""

    engine: Engine

    def __init__(self, parameters: ConnectionParameters, loop: asyncio.AbstractEventLoop) -> None:
        ConnectionCore.__init__(self, parameters)
        Wire.__init__(self, loop)
        self.timeout = parameters.timeout
        self.deadlines = Deadlines(loop)
        self.overfull: set[object] = set()  # subscriptions with more than enough in their buffers
        self._gate: list[asyncio.Future[None]] = []
        self.on_end: Callable[[errors.HarebellError], None] | None = None  # it has ended without our doing
        self.on_blocking: Callable[[str | None], None] | None = None

    # -- hooks of the wire -------------------------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        return self.handshake.stage

    def made(self) -> None:
        self.start()

    def read(self, data: bytes) -> None:
        self.receive(data)
        if self.overfull and not self.reading_paused and not self._answer_awaited():
            self.pause_reading()

    def broke(self, text: str, cause: BaseException | None = None) -> None:
        self.lost(text, cause)

    def writable(self) -> None:
        self.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.deadlines.close()

    # -- hooks of the core -------------------------------------------------------------------------------------------

    def expecting(self) -> None:
        if self.reading_paused:
            self.resume_reading()  # `read` pauses again once the answer is there

    def ask(self, size: int = 0) -> None:
        if self.reading_paused:
            self.expecting()
        super().ask(size)

    def write_stepping(self) -> None:
        """Write what was gathered, by a thread that is not the loop's, in which a signal's handler may raise anywhere.

        asyncio's transport does not outlive that: it would write something twice, not at all, or give up.
        """
        engine, self.large = self.engine, False
        if not engine.pending:
            return
        file = self.idle_file()
        if file < 0:
            self.flush()
            return
        piece, written = engine.gather()
        try:
            # One operation of C: a handler runs before or after it, and raises nothing between its two halves.
            written += map(os.write, (file,), (piece,))
        except OSError as error:
            if error.errno is None:
                raise  # a handler's own
        engine.leave_out_written()
        self.wrote()
        if engine.pending:
            self.flush()

    def resumed(self) -> None:
        if not self.opened.done() and (self.handshake.done or self.reason is not None):
            self.opened.set_result(None)
            if self.handshake.done:
                self.beat(self.handshake.heartbeat)
        if self._gate:
            gate, self._gate = self._gate, []
            for waiter in gate:
                if not waiter.done():
                    waiter.set_result(None)

    def ending(self, reason: errors.HarebellError) -> None:
        if self.on_end is not None:
            self.on_end(reason)

    def blocking(self) -> None:
        if self.on_blocking is not None:
            self.on_blocking(self.blocked)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def reply(
        self,
        slot: FutureSlot,
        timeout: float | None,
        abandon: Callable[[Slot], None] | None = None,
        deadline: float | None = None,
    ) -> Reply:
        """The slot's reply. Raises what the broker said, DeadlineExceeded; a caller that is cancelled abandons it.

        deadline  in the loop's time, for a call that began before this
        """
        seconds = seconds_of(timeout, self.timeout)
        key = self.deadlines.add(slot.future, self.loop.time() + seconds if deadline is None else deadline)
        try:
            result = await slot.future
        except asyncio.CancelledError:
            _abandon(slot, abandon)
            raise
        finally:
            self.deadlines.remove(key, slot.future)
        if result is EXPIRED:
            _abandon(slot, abandon)
            raise errors.DeadlineExceeded(self.late(slot.request.NAME, seconds))
        if isinstance(result, errors.HarebellError):
            raise result
        return cast(Reply, result)

    def late(self, what: str, seconds: float) -> str:
        why = f"; the broker takes no publishes now: {self.blocked}" if self.blocked is not None else ""
        return f"{what}: no answer from {self.parameters.peer} within {seconds:g} s{why}"

    def may_publish(self, channel: ChannelCore) -> bool:
        return not self.writing_paused and self.blocked is None and channel.active

    async def publishing(self, channel: ChannelCore, seconds: float, deadline: float) -> None:
        """Wait until publishes may be written. DeadlineExceeded, or the reason why the channel closed meanwhile.

        deadline  in the loop's time; it was `seconds` away when the waiting began
        """
        channel.check_open()
        while channel.reason is None and not self.may_publish(channel):
            waiter: asyncio.Future[Any] = self.loop.create_future()
            self._gate.append(waiter)
            key = self.deadlines.add(waiter, deadline)
            result: object = EXPIRED
            try:
                result = await waiter
            finally:
                self.deadlines.remove(key, waiter)
                if result is EXPIRED:  # or cancelled: the gate forgets this one
                    self._gate = [other for other in self._gate if other is not waiter]
            if result is EXPIRED and not self.may_publish(channel):
                raise errors.DeadlineExceeded(self.late("basic.publish was held back", seconds))
        if channel.reason is not None:
            raise copy_of(channel.reason)

    async def change(self) -> None:
        """Wait until publishers should try again."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._gate.append(waiter)
        try:
            await waiter
        finally:
            self._gate = [other for other in self._gate if other is not waiter]

    def _answer_awaited(self) -> bool:
        return bool(self.slots) or any(channel.slots or channel.publishes.waiters for channel in self.channels.values())


def _abandon(slot: FutureSlot, abandon: Callable[[Slot], None] | None) -> None:
    if abandon is not None:
        abandon(slot)
    else:
        slot.abandoned = True
