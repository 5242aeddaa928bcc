"""The transport: the core as an asyncio.BufferedProtocol.

Output is gathered during a turn of the loop and written once at its end. Only a request whose answer will be awaited is
written at once, when nothing was written since the last read: a program that asks one thing at a time saves a turn of
the loop by that, and of many requests in one turn only the first is written so. When the transport holds more than it
likes (pause_writing) publishers wait; requests and acks, which are small and bounded by what was received, do not.
Reading stops when consumers have not taken what already came (MAX_BUFFERED_BYTES, MAX_BUFFERED_MESSAGES), but only
while nothing waits for an answer on this connection: a reply behind unread deliveries would never come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.connection import ConnectionCore
from harebell.client.core.slots import Reply, Slot, copy_of
from harebell.client.transport.deadlines import EXPIRED, Deadlines
from harebell.client.url import ConnectionParameters
from harebell.defaults import GOODBYE_SECONDS
from harebell.protocol.v091 import methods as m

__all__ = ["AsyncCore", "FutureSlot"]

MAX_BUFFERED_BYTES: Final = 64 << 20  # of bodies of one consumer that the program has not taken
MAX_BUFFERED_MESSAGES: Final = 50_000
READ_SIZE: Final = 262_144  # bytes a read: a batch for the engine; what no read reaches takes no memory
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


class AsyncCore(ConnectionCore, asyncio.BufferedProtocol):
    """One connection on one transport."""

    def __init__(self, parameters: ConnectionParameters, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(parameters)
        self.loop = loop
        self.timeout = parameters.timeout
        self.deadlines = Deadlines(loop)
        self.opened: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()  # the transport has ended
        self.overfull: set[object] = set()  # subscriptions with more than enough in their buffers
        self.writing_paused = False
        self.reading_paused = False
        self._transport: asyncio.Transport | None = None
        # For each read of a plain Protocol asyncio's own loop makes a buffer as large: 15 us where mmap has to do it.
        self._received = memoryview(bytearray(READ_SIZE))
        self.flush_due = False  # the loop's next turn writes what was gathered
        self._quiet = False  # nothing was written since the last read
        self._gate: list[asyncio.Future[None]] = []
        self._last_sent = self._last_received = 0.0
        self._suspected = False
        self._heart: asyncio.TimerHandle | None = None
        self._goodbye: asyncio.TimerHandle | None = None
        self.on_end: Callable[[errors.HarebellError], None] | None = None  # it has ended without our doing
        self.on_blocking: Callable[[str | None], None] | None = None

    # -- asyncio.BufferedProtocol ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._last_sent = self._last_received = self.loop.time()
        self.start()

    def get_buffer(self, sizehint: int) -> bytearray:
        return cast(bytearray, self._received)  # not one: asyncio's TLS fills slices of it

    def buffer_updated(self, nbytes: int) -> None:
        self._last_received = self.loop.time()
        self._quiet = True
        self.receive(bytes(self._received[:nbytes]))
        if self.overfull and not self.reading_paused and not self._answer_awaited():
            self._pause_reading()

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        self.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost(f"the connection broke: {exc}" if exc else "the broker closed the connection without a word", exc)
        self.engine.data_to_send()  # unsent for ever
        for timer in (self._heart, self._goodbye):
            if timer is not None:
                timer.cancel()
        self.deadlines.close()
        if not self.gone.done():
            self.gone.set_result(None)

    # -- hooks of the core -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        if not self.flush_due:
            self.loop.call_soon(self._flush)
            self.flush_due = True  # last: an interrupt before it costs one flush too many, not all that follow

    def expecting(self) -> None:
        if self.reading_paused:
            self.resume_reading()  # buffer_updated pauses again once the answer is there

    def ask(self) -> None:
        if self.reading_paused:
            self.expecting()
        if self._quiet and not self.flush_due:
            self.flush_now()
        else:
            self.flush()

    def flush_now(self) -> None:
        """Write what was gathered, in this turn of the loop."""
        transport, engine = self._transport, self.engine
        if transport is None or transport.is_closing():
            engine.data_to_send()
        elif engine.pending:
            self._quiet = False
            transport.write(engine.data_to_send())
            self._last_sent = self.loop.time()

    def _flush(self) -> None:
        self.flush_due = False
        self.flush_now()

    def resumed(self) -> None:
        if not self.opened.done() and (self.handshake.done or self.reason is not None):
            self.opened.set_result(None)
            if self.handshake.done and self.handshake.heartbeat:
                self._heart = self.loop.call_later(self.handshake.heartbeat / 2, self._beat)
        if self._gate:
            gate, self._gate = self._gate, []
            for waiter in gate:
                if not waiter.done():
                    waiter.set_result(None)

    def closed(self) -> None:
        transport = self._transport
        if transport is not None and self._goodbye is None:
            self.flush_now()
            transport.close()
            self.resume_reading()  # asyncio reports the end of a connection by reading
            self._goodbye = self.loop.call_later(GOODBYE_SECONDS, transport.abort)

    def ending(self, reason: errors.HarebellError) -> None:
        if self.on_end is not None:
            self.on_end(reason)

    def blocking(self) -> None:
        if self.on_blocking is not None:
            self.on_blocking(self.blocked)

    def abort(self) -> None:
        """Drop the transport without another word."""
        if self._transport is not None:
            self._transport.abort()

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
        seconds = self.timeout if timeout is None else timeout
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

    # -- back-pressure on reading ------------------------------------------------------------------------------------

    def _answer_awaited(self) -> bool:
        return bool(self.slots) or any(channel.slots or channel.publishes.waiters for channel in self.channels.values())

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.reading_paused:
            self.reading_paused = False
            self._last_received = self.loop.time()
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # -- heartbeats (specification 4.2.7) ----------------------------------------------------------------------------

    def _beat(self) -> None:
        """Send one when nothing was sent for half the interval; give up when nothing came for two of them."""
        heartbeat, now = self.handshake.heartbeat, self.loop.time()
        if self._transport is None or self.reason is not None:
            return
        delay = heartbeat / 2
        if now - self._last_sent >= heartbeat / 2 - 0.05 and not self.flush_due:
            self.engine.send_heartbeat()
            self.flush_now()
        if now - self._last_received < 2 * heartbeat or self.reading_paused:
            self._suspected = False
        elif self._suspected:
            self.lost(f"nothing came from the broker for {2 * heartbeat} s, two heartbeats")
            self.abort()
            return
        else:
            # The loop itself may have been held up; what came meanwhile is read in its next turns.
            self._suspected = True
            delay = min(delay, 0.2)
        self._heart = self.loop.call_later(delay, self._beat)


def _abandon(slot: FutureSlot, abandon: Callable[[Slot], None] | None) -> None:
    if abandon is not None:
        abandon(slot)
    else:
        slot.abandoned = True
