"""A TCP proxy that breaks connections on demand, for tests of software that should survive it.

    async with FaultProxy("127.0.0.1", 5672) as proxy:
        connection = await connect(f"amqp://{proxy.host}:{proxy.port}")
        proxy.stall("to_client")        # the server's bytes stop; the connection stays up
        proxy.resume()
        proxy.cut()                     # every connection ends; new ones are accepted

`cut_after` and `cut_after_frames` cut at a byte and at a frame of AMQP 0-9-1; the proxy does not interpret the frames.
Faults apply to all connections of the proxy, open ones and later ones, until they are ended. Bytes are never changed
or reordered. Not a benchmark tool: every byte crosses Python.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self

from harebell.errors import InvalidArgument, LocalProtocolError

Direction = Literal["to_server", "to_client", "both"]
"""Which way the bytes go that a proxy delays, holds back or cuts."""

__all__ = ["Direction", "FaultProxy"]

READ_SIZE: Final = 64 * 1024  # bytes taken from one side before the other side has to accept them
PIECES_UNDER_WAY: Final = 16  # reads of one direction that may wait for their delay, or for the receiver
SLICES_PER_SECOND: Final = 20  # a throttled direction moves in steps of a twentieth of a second
BACKLOG: Final = 100  # connections that wait to be accepted
ACCEPT_PAUSE: Final = 0.1  # seconds until it tries again to accept one
FRAME_HEADER: Final = 7  # bytes: type, channel, size of the payload (AMQP 0-9-1, 4.2.3); one byte ends the frame
# SO_LINGER's C structure {int onoff = 1; int linger = 0}: close() then sends RST instead of FIN
LINGER_NONE: Final = (1).to_bytes(4, sys.byteorder) + (0).to_bytes(4, sys.byteorder)


_Piece = tuple[float, bytes | ConnectionError]  # time of arrival and content; b"" is an end of stream


class _Lane:
    """The faults of one direction, shared by all connections, and the counts of forwarded bytes and frames."""

    __slots__ = ("budget", "changed", "delay", "forwarded", "frame_budget", "frames", "inside", "rate", "stalled")

    def __init__(self) -> None:
        self.stalled = False
        self.delay = 0.0
        self.rate: float | None = None
        self.budget: int | None = None
        self.frame_budget: int | None = None
        self.inside = 0  # bytes to forward after the last frame of the budget
        self.forwarded = 0
        self.frames = 0
        self.changed = asyncio.Event()

    def notify(self) -> None:
        """Wake every pump that waits on this lane; each then reads the new state."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def wait_open(self) -> None:
        while self.stalled:
            await self.changed.wait()

    async def wait_due(self, came: float) -> None:
        """Wait until bytes that arrived at loop time `came` have been held for the current delay."""
        loop = asyncio.get_running_loop()
        while self.delay and loop.time() < came + self.delay:
            try:
                async with asyncio.timeout_at(came + self.delay):
                    await self.changed.wait()
            except TimeoutError:
                return

    async def pace(self, sent: int) -> None:
        """Wait for the time that `sent` bytes take at the limit, or until the lane's faults change."""
        if self.rate is None:
            return
        try:
            async with asyncio.timeout(sent / self.rate):
                await self.changed.wait()
        except TimeoutError:
            pass

    def allowance(self, available: int) -> int:
        """How many of the available bytes may go in the next step."""
        if self.rate is not None:
            available = min(available, max(1, int(self.rate / SLICES_PER_SECOND)))
        if self.budget is not None:
            available = min(available, self.budget)
        return available

    def went(self, count: int, ended: int) -> None:
        """Count forwarded bytes, and the frames that ended with them."""
        self.forwarded += count
        self.frames += ended
        if self.budget is not None:
            self.budget -= count
        if self.frame_budget is not None and ended:
            self.frame_budget -= ended
            if self.frame_budget == 0:
                self.frame_budget, self.budget = None, self.inside


class _Framing:
    """The position within frames of one direction of one connection. The protocol header counts as a frame."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def step(self, data: bytes, one: bool) -> tuple[int, int]:
        """(bytes for the next step, frames that end in them): of all these bytes, or of `one` frame."""
        used = ended = 0
        while used < len(data) and not (one and ended):
            if not self._left:
                head = self._head + data[used : used + FRAME_HEADER - len(self._head)]
                used += len(head) - len(self._head)
                self._head = head
                if len(head) < FRAME_HEADER:
                    break
                self._left = 1 if head.startswith(b"AMQP") else int.from_bytes(head[3:], "big") + 1
                self._head = b""
            body = min(self._left, len(data) - used)
            used += body
            self._left -= body
            ended += not self._left
        return used, ended


class _Link:
    """One client's connection and its counterpart at the server."""

    __slots__ = ("client_reader", "client_writer", "framing", "server_reader", "server_writer", "shut")

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.client_reader, self.client_writer = client
        self.server_reader, self.server_writer = server
        self.framing = {"to_server": _Framing(), "to_client": _Framing()}
        self.shut: set[str] = set()

    def end(self, reset: bool) -> None:
        for writer in (self.client_writer, self.server_writer):
            _end(writer, reset)

    def shut_down(self, direction: str) -> None:
        """Send FIN to the receiver of this direction; later bytes from its sender are discarded."""
        if direction in self.shut:
            return
        self.shut.add(direction)
        writer = self.server_writer if direction == "to_server" else self.client_writer
        if not writer.transport.is_closing():
            try:
                writer.write_eof()
            except OSError:  # the receiver has reset the connection; the transport has not noticed yet
                _end(writer, reset=True)


def _reset(sock: socket.socket) -> None:
    """Close it with RST, if it is open."""
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        sock.close()


def _end(writer: asyncio.StreamWriter, reset: bool) -> None:
    if reset:
        sock = writer.get_extra_info("socket")
        if not writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        writer.transport.abort()
    else:
        writer.close()


class FaultProxy:
    """A listener on `listen_host`:`listen_port` (0: a free port) that forwards to `host`:`port`.

    Use it as an async context manager, or call `start` and `aclose`. All methods belong to the event loop that
    started it. `target` may be set to another (host, port) at any time: later connections use it.
    """

    def __init__(self, host: str, port: int, *, listen_host: str = "127.0.0.1", listen_port: int = 0) -> None:
        self.target = (host, port)
        self.host = listen_host
        self.port = listen_port
        self.accepted = 0
        self.refusing = False
        self._listener: socket.socket | None = None
        self._lanes: dict[str, _Lane] = {"to_server": _Lane(), "to_client": _Lane()}
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()  # whose sockets may be open
        self._connections_changed = asyncio.Event()

    async def start(self) -> None:
        """Listen; `port` then holds the real port. Raises OSError when the address is in use."""
        if self._listener is not None:
            raise LocalProtocolError("this proxy is already listening")
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._accept_from(listener)

    async def aclose(self) -> None:
        """Stop listening, end every connection, and wait until all tasks of the proxy have ended."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()
        self.cut(reset=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # of tasks that were cancelled while these closed
            _end(writer, reset=True)
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        self._writers.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def connections(self) -> int:
        """The number of connections open through the proxy."""
        return len(self._links)

    def forwarded(self, direction: Literal["to_server", "to_client"]) -> int:
        """The number of bytes forwarded in this direction, over all connections."""
        return self._lanes[direction].forwarded

    def frames(self, direction: Literal["to_server", "to_client"]) -> int:
        """The number of whole frames forwarded in this direction; a protocol header counts as one."""
        return self._lanes[direction].frames

    async def wait_connections(self, count: int) -> None:
        """Wait until exactly `count` connections are open through the proxy. It has no deadline of its own."""
        while len(self._links) != count:
            await self._connections_changed.wait()

    def cut(self, *, reset: bool = False) -> int:
        """End every open connection at both sides and return how many; the proxy still accepts new ones.

        With `reset` both sides see a connection reset and bytes on their way are lost; without it, an end of stream
        (which TCP makes a reset too, when the kernel still holds unread bytes).
        """
        links = list(self._links)
        for link in links:
            link.end(reset)
            self._forget(link)
        return len(links)

    def cut_after(self, count: int, direction: Literal["to_server", "to_client"]) -> None:
        """Forward `count` more bytes in this direction, then reset the connection that sends the next one.

        Applies once: later connections are not cut. With a count in the middle of a frame the receiver has an
        incomplete frame. Raises InvalidArgument for a negative count.
        """
        if count < 0:
            raise InvalidArgument(f"cannot cut after {count} bytes: give zero or more")
        self._budget(direction, count, None, 0)

    def cut_after_frames(self, count: int, direction: Literal["to_server", "to_client"], *, inside: int = 0) -> None:
        """Forward `count` more frames in this direction and `inside` bytes of the next one; then cut as `cut_after`.

        A partly forwarded frame is the first one; a protocol header counts as one. The proxy cannot see frames inside
        TLS. Raises InvalidArgument for a negative number.
        """
        if count < 0 or inside < 0:
            raise InvalidArgument(f"cannot cut after {count} frames and {inside} bytes: give zero or more")
        if count:
            self._budget(direction, None, count, inside)
        else:
            self._budget(direction, inside, None, 0)

    def no_cut(self, direction: Direction = "both") -> None:
        """Cancel a `cut_after` or `cut_after_frames` that has not cut yet."""
        for name in self._names_of(direction):
            self._budget(name, None, None, 0)

    def stall(self, direction: Direction = "both") -> None:
        """Forward nothing more in this direction; the connections stay up and the senders feel back-pressure."""
        for lane in self._lanes_of(direction):
            lane.stalled = True
            lane.notify()

    def resume(self, direction: Direction = "both") -> None:
        """End a stall; the proxy forwards the bytes that waited, nothing is lost."""
        for lane in self._lanes_of(direction):
            lane.stalled = False
            lane.notify()

    @contextmanager
    def stalled(self, direction: Direction = "both") -> Iterator[None]:
        """Stall for the length of a `with` block."""
        self.stall(direction)
        try:
            yield
        finally:
            self.resume(direction)

    def throttle(self, bytes_per_second: float | None, direction: Direction = "both") -> None:
        """Forward at most so many bytes a second and connection; None ends the limit at once.

        Raises InvalidArgument for zero or less; use `stall` for that.
        """
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise InvalidArgument(f"a rate of {bytes_per_second} bytes/s moves nothing: use stall()")
        for lane in self._lanes_of(direction):
            lane.rate = bytes_per_second
            lane.notify()

    def delay(self, seconds: float, direction: Direction = "both") -> None:
        """Forward bytes so many seconds after their arrival: latency without a limit on bandwidth. 0 ends it.

        Raises InvalidArgument for less than zero.
        """
        if seconds < 0:
            raise InvalidArgument(f"a delay of {seconds} s would hand on bytes before they came")
        for lane in self._lanes_of(direction):
            lane.delay = seconds
            lane.notify()

    def half_close(self, direction: Direction) -> None:
        """Send an end of stream to the receiver of this direction, on every open connection.

        The other direction stays open. Later bytes from the sender are read and discarded.
        """
        for name in self._names_of(direction):
            for link in self._links:
                link.shut_down(name)

    def refuse(self) -> None:
        """Reset every new connection as soon as it is accepted, like a balancer without a live server."""
        self.refusing = True

    def accept(self) -> None:
        """Forward new connections again, after `refuse`."""
        self.refusing = False

    def _names_of(self, direction: Direction) -> tuple[str, ...]:
        if direction == "both":
            return ("to_server", "to_client")
        if direction not in self._lanes:
            raise InvalidArgument(f"no direction {direction!r}: use 'to_server', 'to_client' or 'both'")
        return (direction,)

    def _lanes_of(self, direction: Direction) -> list[_Lane]:
        return [self._lanes[name] for name in self._names_of(direction)]

    def _budget(self, direction: str, count: int | None, frames: int | None, inside: int) -> None:
        lane = self._lanes[direction]
        lane.budget, lane.frame_budget, lane.inside = count, frames, inside
        lane.notify()

    def _forget(self, link: _Link) -> None:
        self._links.discard(link)
        self._announce()

    def _announce(self) -> None:
        self._connections_changed.set()
        self._connections_changed = asyncio.Event()

    def _accept_from(self, listener: socket.socket) -> None:
        """Accept what comes. Not by asyncio's server, which drops what it has accepted when it is closed meanwhile."""
        if listener is self._listener:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            client, _ = listener.accept()
        except BlockingIOError:  # the client has gone
            return
        except OSError:  # no descriptor is free
            loop.remove_reader(listener)
            loop.call_later(ACCEPT_PAUSE, self._accept_from, listener)
            return
        self.accepted += 1
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is forwarded has gone before a cut
        task = loop.create_task(self._forward(client))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, client))

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        """The task of an accepted connection has ended, perhaps cancelled before it began."""
        self._tasks.discard(task)
        _reset(client)

    async def _forward(self, client: socket.socket) -> None:
        if self.refusing:
            return  # `_ended` resets it
        reader, writer = await asyncio.open_connection(sock=client)
        self._writers.add(writer)
        writers = [writer]
        try:
            try:
                server = await asyncio.open_connection(*self.target)
            except OSError:
                _end(writer, reset=True)  # the client sees the failure that the proxy saw
            except asyncio.CancelledError:
                _end(writer, reset=True)
                raise
            else:
                writers.append(server[1])
                self._writers.add(server[1])
                await self._join(reader, writer, server)
        finally:
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)
            self._writers.difference_update(writers)

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        link = _Link((reader, writer), server)
        self._links.add(link)
        self._announce()
        try:
            async with asyncio.TaskGroup() as pumps:
                self._pump(pumps, link, "to_server", link.client_reader, link.server_writer)
                self._pump(pumps, link, "to_client", link.server_reader, link.client_writer)
        except* ConnectionError:
            link.end(reset=True)  # one side was reset: reset the other too
        finally:
            link.end(reset=False)
            self._forget(link)

    def _pump(
        self,
        pumps: asyncio.TaskGroup,
        link: _Link,
        direction: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        pieces: asyncio.Queue[_Piece] = asyncio.Queue(PIECES_UNDER_WAY)
        pumps.create_task(_take(reader, pieces))
        pumps.create_task(self._hand_on(link, direction, pieces, writer))

    async def _hand_on(
        self, link: _Link, direction: str, pieces: asyncio.Queue[_Piece], writer: asyncio.StreamWriter
    ) -> None:
        lane, framing = self._lanes[direction], link.framing[direction]
        while True:
            came, data = await pieces.get()
            if isinstance(data, ConnectionError):
                raise data
            if not data:
                break
            await lane.wait_due(came)
            while data and direction not in link.shut:
                await lane.wait_open()
                if lane.budget == 0:
                    lane.budget = None
                    link.end(reset=True)
                    self._forget(link)
                    raise ConnectionResetError("the cut that was asked for")
                count, ended = framing.step(data[: lane.allowance(len(data))], lane.frame_budget is not None)
                writer.write(data[:count])
                await writer.drain()
                data = data[count:]
                lane.went(count, ended)
                await lane.pace(count)
        await lane.wait_open()  # an end of stream waits during a stall, like the bytes before it
        link.shut_down(direction)


async def _take(reader: asyncio.StreamReader, pieces: asyncio.Queue[_Piece]) -> None:
    """Read one side to its end; a reset is queued behind the bytes read before it."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data: bytes | ConnectionError = await reader.read(READ_SIZE)
        except ConnectionError as error:
            data = error
        await pieces.put((loop.time(), data))
        if not isinstance(data, bytes) or not data:
            return
