"""One AMQP connection with channel 1 open, that does nothing by itself: what it is told goes out, what comes is shown.

It does not connect again and repeats nothing, so whoever uses it knows what was sent over it and what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from harebell.errors import RemoteProtocolError
from harebell.protocol.v091 import Content, Engine, Properties, Role, methods as m
from tests.wire import CAPABILITIES, content_frames

__all__ = ["Ended", "Peer"]

M = TypeVar("M", bound=m.Method)
FRAME_MAX = 131_072
PATIENCE = 120.0  # seconds for an answer: a broker that is silent for longer hangs


class Ended(Exception):
    """The connection is gone, or the broker closed it (`closed` of the peer says with what)."""


class Peer(asyncio.Protocol):
    """`receive` is called with each delivery (Content) and each method that answers no call."""

    def __init__(self) -> None:
        self.receive: Callable[[m.Method | Content], None] = lambda event: None
        self.ended = asyncio.Event()
        self.closed = ""
        self._engine = Engine(Role.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._awaited: tuple[type[m.Method], asyncio.Future[m.Method]] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def connect(cls, port: int) -> Peer:
        """Logged in as guest; Ended when that does not work."""
        try:
            _, peer = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        except OSError as error:
            raise Ended(str(error)) from error
        try:
            peer._engine.send_header()
            await peer._exchange(m.ConnectionStart)
            start_ok = m.ConnectionStartOk({"capabilities": CAPABILITIES}, "PLAIN", b"\0guest\0guest", "en_US")
            await peer.call(start_ok, m.ConnectionTune, channel=0)
            peer._engine.send_method(0, m.ConnectionTuneOk(2047, FRAME_MAX, 0))
            await peer.call(m.ConnectionOpen("/"), m.ConnectionOpenOk, channel=0)
            await peer.call(m.ChannelOpen(), m.ChannelOpenOk)
        except BaseException:
            peer.close()
            raise
        return peer

    def send(self, method: m.Method, channel: int = 1) -> None:
        """Dropped when the connection is gone."""
        if not self.ended.is_set():
            self._engine.send_method(channel, method)
            self._flush()

    def publish(self, exchange: str, routing_key: str, body: bytes, properties: Properties) -> None:
        self._write(content_frames(1, m.BasicPublish(exchange, routing_key), properties, body, FRAME_MAX))

    async def call(self, method: m.Method, answer: type[M], channel: int = 1) -> M:
        """Send, and the answer. Ended when there is none to come."""
        self._engine.send_method(channel, method)
        return await self._exchange(answer)

    async def _exchange(self, answer: type[M]) -> M:
        if self.ended.is_set():
            raise Ended(self.closed)
        future: asyncio.Future[m.Method] = asyncio.get_running_loop().create_future()
        self._awaited = (answer, future)
        self._flush()
        async with asyncio.timeout(PATIENCE):
            return cast("M", await future)

    async def drain(self) -> None:
        """Until the socket takes more, or the connection is gone."""
        await self._writable.wait()

    async def sleep(self, seconds: float) -> None:
        """For so long, or until the connection is gone: then Ended."""
        try:
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        except TimeoutError:
            return
        raise Ended(self.closed)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self.ended.is_set():
            return
        try:
            self._engine.receive_data(data)
        except RemoteProtocolError as error:
            self.closed = f"the broker broke the protocol: {error}"
        for _, event in self._engine.events():
            if isinstance(event, Content):
                self.receive(event)
            elif isinstance(event, m.Method):
                self._method(event)
        self._flush()
        if self.closed:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _method(self, method: m.Method) -> None:
        if isinstance(method, m.ConnectionClose | m.ChannelClose):
            self.closed = f"{method.reply_code} {method.reply_text}"
        elif self._awaited is not None and type(method) is self._awaited[0]:
            future, self._awaited = self._awaited[1], None
            if not future.done():
                future.set_result(method)
        else:
            self.receive(method)

    def _flush(self) -> None:
        if data := self._engine.data_to_send():
            self._write(data)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _end(self) -> None:
        self.ended.set()
        self._writable.set()
        if self._awaited is not None:
            future, self._awaited = self._awaited[1], None
            if not future.done():
                future.set_exception(Ended(self.closed))
