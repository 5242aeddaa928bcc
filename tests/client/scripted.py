"""A broker that does what a test tells it: an engine in the server's role behind a socket.

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.QueueDeclare)
        peer.send(number, m.QueueDeclareOk("q", 0, 0))

    async with scripted(script) as url: ...

Leaving the block waits for the script to end, and raises what it raised: a script that was not followed fails the test.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from harebell.protocol.v091 import Content, Engine, Properties, Role, methods as m
from harebell.protocol.v091.codec import encode_method

E = TypeVar("E")

SECONDS = 20.0  # for a script to end once its test has


class HungUp(Exception):
    """The client closed its end while the script waited for it to speak."""


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.engine = Engine(Role.SERVER)
        self.start_ok = m.ConnectionStartOk()
        self.tune_ok = m.ConnectionTuneOk()
        self._events: deque[tuple[int, object]] = deque()

    async def next(self) -> tuple[int, object]:
        """(channel number, method or content): what the client says next."""
        while not self._events:
            data = await self.reader.read(65536)
            if not data:
                raise HungUp
            self.engine.receive_data(data)
            self._events.extend(self.engine.events())
        return self._events.popleft()

    def has_read(self, kind: type[object]) -> bool:
        """Whether the client has said this behind what `next` gave last."""
        return any(isinstance(event, kind) for _, event in self._events)

    async def expect(self, kind: type[E]) -> E:
        _, event = await self.next()
        assert isinstance(event, kind), f"the client sent {event!r}, expected was {kind.__name__}"
        return event

    async def header(self) -> None:
        self.engine.receive_data(await self.reader.readexactly(8))

    def send(self, channel: int, method: m.Method) -> None:
        self.engine.send_method(channel, method)
        self.writer.write(self.engine.data_to_send())

    def send_unchecked(self, channel: int, method: m.Method) -> None:
        """What a broker may have said before it read what we know it was sent."""
        self.writer.write(encode_method(channel, method))

    def send_content(self, channel: int, method: m.Method, body: bytes, properties: Properties | None = None) -> None:
        self.engine.send_content(channel, method, properties or Properties(), body)
        self.writer.write(self.engine.data_to_send())

    async def handshake(self, *, mechanisms: bytes = b"PLAIN AMQPLAIN", heartbeat: int = 0) -> None:
        await self.header()
        self.send(0, m.ConnectionStart(0, 9, {"product": "Script"}, mechanisms, b"en_US"))
        self.start_ok = await self.expect(m.ConnectionStartOk)
        self.send(0, m.ConnectionTune(2047, 131072, heartbeat))
        self.tune_ok = await self.expect(m.ConnectionTuneOk)
        await self.expect(m.ConnectionOpen)
        self.send(0, m.ConnectionOpenOk())

    async def channel(self) -> int:
        number, event = await self.next()
        assert isinstance(event, m.ChannelOpen)
        self.send(number, m.ChannelOpenOk())
        return number

    async def confirming(self) -> int:
        """A channel with confirms on."""
        number = await self.channel()
        await self.expect(m.ConfirmSelect)
        self.send(number, m.ConfirmSelectOk())
        return number

    async def goodbye(self) -> None:
        """Answer closes until the client has gone; whatever else it says is ignored."""
        try:
            while True:
                number, event = await self.next()
                if isinstance(event, m.ConnectionClose):
                    self.send(0, m.ConnectionCloseOk())
                    return
                if isinstance(event, m.ChannelClose):
                    self.send(number, m.ChannelCloseOk())
                if isinstance(event, m.BasicCancel):
                    self.send(number, m.BasicCancelOk(event.consumer_tag))
        except HungUp:
            pass


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def scripted(script: Script, *, receive_buffer: int = 65536) -> AsyncIterator[str]:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            await script(peer)
        except BaseException as error:
            if not ended.done():
                ended.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            if not ended.done():
                ended.set_result(None)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=receive_buffer)
    port = cast(int, server.sockets[0].getsockname()[1])
    try:
        yield f"amqp://guest:guest@127.0.0.1:{port}/"
        async with asyncio.timeout(SECONDS):
            await ended
    except BaseException as error:
        if ended.done() and (cause := ended.exception()) is not None and cause is not error:
            raise cause from error  # the script's failure explains the test's
        raise
    finally:
        server.close()
        ended.cancel()


__all__ = ["Content", "HungUp", "Peer", "m", "scripted"]
