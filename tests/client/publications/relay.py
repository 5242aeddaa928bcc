"""A relay before a broker that withholds confirms: what was written has arrived, and no answer comes.

Behind it a FaultProxy cuts and stalls. The relay reads the frames of the broker, of which it drops basic.ack,
basic.nack and tx.commit-ok while it withholds; everything else passes, in its order.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

__all__ = ["Relay"]

# basic.ack, basic.nack, tx.commit-ok
CONFIRMS: Final = (b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78", b"\x00\x5a\x00\x15")
CLOSES: Final = (b"\x00\x14\x00\x28", b"\x00\x0a\x00\x32")  # channel.close, connection.close


class Relay:
    """A listener on a free port of 127.0.0.1 that forwards to a broker.

    withholding  whether confirms are dropped; no longer once the broker has closed a channel or the connection
    withheld     how many were
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.port = 0
        self.withholding = False
        self.withheld = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            from_broker, to_broker = await asyncio.open_connection(*self.target)
            writers.append(to_broker)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._bytes(reader, to_broker))
                pumps.create_task(self._frames(from_broker, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in writers:
                each.transport.abort()
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)

    async def _bytes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(7)
            rest = await reader.readexactly(int.from_bytes(head[3:], "big") + 1)
            if self.withholding and head[0] == 1 and rest[:4] in CONFIRMS:
                self.withheld += 1
                continue
            if head[0] == 1 and rest[:4] in CLOSES:
                self.withholding = False
            writer.write(head + rest)
            await writer.drain()
