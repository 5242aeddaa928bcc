"""One transport as an asyncio.BufferedProtocol, for either dialect: reads, writes, heartbeats, the end.

Output is gathered during a turn of the loop and written once at its end. Only a request whose answer will be awaited is
written at once, when nothing was written since the last read: a program that asks one thing at a time saves a turn of
the loop by that, and of many requests in one turn only the first is written so.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Final, Protocol, cast

from harebell import errors
from harebell.client.transport.forks import watch
from harebell.defaults import GOODBYE_SECONDS

__all__ = ["LARGE_BODY", "Wire", "WireEngine"]

READ_SIZE: Final = 262_144  # bytes a read: a batch for the engine

# Bytes of a body that is written at once: to gather such ones is to copy them into memory that is new each time, which
# costs more than a call of the system.
LARGE_BODY: Final = 16 << 10

# What a read is received into, for all connections of a loop: a loop fills it and says so at once, and what has come is
# copied then. One for each connection would be most of its memory; a plain Protocol has asyncio's own loop make one for
# each read, which costs 15 us where mmap has to do it.
_RECEIVED: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview]] = weakref.WeakKeyDictionary()


def _received(loop: asyncio.AbstractEventLoop) -> memoryview:
    buffer = _RECEIVED.get(loop)
    if buffer is None:
        buffer = _RECEIVED[loop] = memoryview(bytearray(READ_SIZE))
    return buffer


class WireEngine(Protocol):
    """The engine of a dialect, as a transport uses it."""

    @property
    def pending(self) -> int: ...
    def data_to_send(self) -> bytes: ...
    def send_heartbeat(self) -> None: ...


class Wire(asyncio.BufferedProtocol):
    """The reads and writes of one connection; what they mean is the subclass's.

    opened          done once the handshake is, or the connection has failed
    gone            done once the transport has ended
    writing_paused  the transport holds more than it likes
    quiet           nothing was written since the last read
    flush_due       the loop's next turn writes what was gathered
    stepped         a thread that is not the loop's publishes, and flushes by itself
    large           it has published a large body, and should write it at once
    """

    engine: WireEngine
    reason: errors.HarebellError | None  # why it is closed; None before that

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.opened: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.writing_paused = False
        self.reading_paused = False
        self.flush_due = False
        self.stepped = False
        self.large = False
        self._transport: asyncio.Transport | None = None
        self._inherited: asyncio.Transport | None = None
        self._plain_file = -1  # the descriptor of a socket that takes the output as it is
        self._received = _received(loop)
        self.quiet = False
        self._last_sent = self._last_received = 0.0
        self._suspected = False
        self._heartbeat = 0
        self._heart: asyncio.TimerHandle | None = None
        self._goodbye: asyncio.TimerHandle | None = None

    # -- what the subclass does --------------------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """What the handshake waits for, for the text of an error."""
        raise NotImplementedError

    def made(self) -> None:
        """The transport is there: begin the handshake."""
        raise NotImplementedError

    def read(self, data: bytes) -> None:
        """Process what came."""
        raise NotImplementedError

    def broke(self, text: str, cause: BaseException | None = None) -> None:
        """The connection is lost, by this cause; a second loss changes nothing."""
        raise NotImplementedError

    def writable(self) -> None:
        """The transport takes output again."""
        raise NotImplementedError

    # -- asyncio.BufferedProtocol ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        watch(self)
        self._last_sent = self._last_received = self.loop.time()
        if transport.get_extra_info("sslcontext") is None and (sock := transport.get_extra_info("socket")) is not None:
            self._plain_file = sock.fileno()
        self.made()

    def get_buffer(self, sizehint: int) -> bytearray:
        return cast(bytearray, self._received)  # not one: asyncio's TLS fills slices of it

    def buffer_updated(self, nbytes: int) -> None:
        self._last_received = self.loop.time()
        self.quiet = True
        self.read(bytes(self._received[:nbytes]))

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        self.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.broke(f"the connection broke: {exc}" if exc else "the broker closed the connection without a word", exc)
        self.engine.data_to_send()  # unsent for ever
        for timer in (self._heart, self._goodbye):
            if timer is not None:
                timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    def forked(self, error: errors.LocalProtocolError) -> None:
        """In a child of the process that made it: nothing more is written, and the socket is left alone."""
        self.reason = self.reason or error
        self._inherited, self._transport = self._transport, None  # collected, it would close what the parent may use

    # -- writing -----------------------------------------------------------------------------------------------------

    def flush(self, size: int = 0) -> None:
        """Write what was gathered, in the loop's next turn; now if the last body, of `size` bytes, is a large one."""
        if size >= LARGE_BODY:
            if self.stepped:
                self.large = True
            else:
                self.flush_now()
        elif not self.flush_due:
            self.loop.call_soon(self._flush)
            self.flush_due = True  # last: an interrupt before it costs one flush too many, not all that follow

    def ask(self, size: int = 0) -> None:
        """As `flush`, for a request whose answer will be awaited."""
        if self.quiet and not self.flush_due:
            self.flush_now()
        else:
            self.flush(size)

    def flush_now(self) -> None:
        """Write what was gathered, in this turn of the loop."""
        transport, engine = self._transport, self.engine
        if transport is None or transport.is_closing():
            engine.data_to_send()
        elif engine.pending:
            self.quiet = False
            transport.write(engine.data_to_send())
            self._last_sent = self.loop.time()

    def idle_file(self) -> int:
        """The descriptor of the socket, where output may be written to it at once; -1 where it has to wait its turn."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return -1
        return self._plain_file

    def wrote(self) -> None:
        """Something was written to that file."""
        self.quiet = False
        self._last_sent = self.loop.time()

    def _flush(self) -> None:
        self.flush_due = False
        self.flush_now()

    # -- the end -----------------------------------------------------------------------------------------------------

    def closed(self) -> None:
        """Close the transport once everything is written."""
        transport = self._transport
        if transport is not None and self._goodbye is None:
            self.flush_now()
            transport.close()
            self.resume_reading()  # asyncio reports the end of a connection by reading
            self._goodbye = self.loop.call_later(GOODBYE_SECONDS, transport.abort)

    def abort(self) -> None:
        """Drop the transport without another word."""
        if self._transport is not None:
            self._transport.abort()

    def dismiss(self) -> None:
        """The opening has failed or was given up: drop the transport, and what was to be written.

        uvloop has closed it by then, where `create_connection` was cancelled, and does not say so.
        """
        self.abort()
        self._transport = None

    # -- back-pressure on reading ------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.reading_paused:
            self.reading_paused = False
            self._last_received = self.loop.time()
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # -- heartbeats (specification of 0-9-1, 4.2.7; of 0-10, connection.heartbeat) -----------------------------------

    def beat(self, heartbeat: int) -> None:
        """Send and expect heartbeats of so many seconds from now on; 0 is none."""
        self._heartbeat = heartbeat
        if heartbeat:
            self._heart = self.loop.call_later(heartbeat / 2, self._beat)

    def _beat(self) -> None:
        """Send one when nothing was sent for half the interval; give up when nothing came for two of them."""
        heartbeat, now = self._heartbeat, self.loop.time()
        if self._transport is None or self.reason is not None:
            return
        delay = heartbeat / 2
        if now - self._last_sent >= heartbeat / 2 - 0.05 and not self.flush_due:
            self.engine.send_heartbeat()
            self.flush_now()
        if now - self._last_received < 2 * heartbeat or self.reading_paused:
            self._suspected = False
        elif self._suspected:
            self.broke(f"nothing came from the broker for {2 * heartbeat} s, two heartbeats")
            self.abort()
            return
        else:
            # The loop itself may have been held up; what came meanwhile is read in its next turns.
            self._suspected = True
            delay = min(delay, 0.2)
        self._heart = self.loop.call_later(delay, self._beat)
