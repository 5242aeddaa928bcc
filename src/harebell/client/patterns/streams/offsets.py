"""Where a reader of a stream was, stored under its name: in a folder, or in queues of the broker.

A position is the number of the last message that was settled, with all before it. Anything with the methods of
`Offsets` will do: a table of the program's own database, written in the transaction that has the messages' effect,
makes that effect happen once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.messages import Message
from harebell.client.patterns.source import ChannelSource
from harebell.protocol.v091 import Table
from harebell.synced_files import make_folder, replace_file

__all__ = ["FileOffsets", "Offsets", "QueueOffsets"]


class Offsets(Protocol):
    """Stores positions."""

    async def load(self, queue: str, name: str) -> int | None:
        """The number of the last message that this reader has settled; None for a reader that is not known."""
        ...

    async def store(self, queue: str, name: str, offset: int) -> None:
        """It is this one now."""
        ...


class FileOffsets:
    """Positions in a folder, one file for each queue and name; it is made where it is missing.

    A position is on the disk when `store` returns. One process at a time reads under one name.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    async def load(self, queue: str, name: str) -> int | None:
        return await asyncio.to_thread(self._load, self._file(queue, name))

    async def store(self, queue: str, name: str, offset: int) -> None:
        await asyncio.to_thread(self._store, self._file(queue, name), offset)

    def _file(self, queue: str, name: str) -> Path:
        return self._folder / quote(queue, safe="") / f"{quote(name, safe='')}.offset"

    def _load(self, file: Path) -> int | None:
        try:
            text = file.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        if not text.isdecimal():
            raise errors.InvalidArgument(f"{file} has {text[:40]!r}, and no number of a message: remove it, or mend it")
        return int(text)

    def _store(self, file: Path, offset: int) -> None:
        make_folder(file.parent)
        replace_file(file, [f"{offset}\n"])


class QueueOffsets:
    """Positions in durable queues of the broker, one for each queue and name, with one message each.

    connection  what they are declared and published on; on a channel of their own, which ends with it
    prefix      how their names begin: PREFIX.QUEUE.NAME

    A position is confirmed by the broker when `store` returns. One process at a time reads under one name.
    """

    def __init__(self, connection: ChannelSource, prefix: str = "stream-offset") -> None:
        self._connection = connection
        self._prefix = prefix
        self._channel: Channel | None = None
        self._declared: set[str] = set()
        self._turn = asyncio.Lock()

    async def load(self, queue: str, name: str) -> int | None:
        async with self._turn:
            channel, stored_in = await self._ready(queue, name)
            delivery = await channel.get(stored_in)
            if delivery is None:
                return None
            body = delivery.body
            delivery.reject(requeue=True)
            await channel.queue_inspect(stored_in)  # it is back once this is answered, or soon after
            if not body.isdigit():
                raise errors.InvalidArgument(f"queue {stored_in!r} has {body[:40]!r}, and no number of a message")
            return int(body)

    async def store(self, queue: str, name: str, offset: int) -> None:
        async with self._turn:
            channel, stored_in = await self._ready(queue, name)
            await channel.publish(Message(b"%d" % offset, delivery_mode=2), "", stored_in, mandatory=True)

    async def _ready(self, queue: str, name: str) -> tuple[Channel, str]:
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel()
            await self._channel.confirm_select(on_orphan="retry")
        stored_in = f"{self._prefix}.{queue}.{name}"
        if stored_in not in self._declared:
            only_one: Table = {"x-max-length": 1}  # the last: a new one drives the old one out
            await self._channel.queue_declare(stored_in, durable=True, arguments=only_one)
            self._declared.add(stored_in)
        return self._channel, stored_in
