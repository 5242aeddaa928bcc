"""Where a reader of a stream was, stored under its name: in a folder, or in queues of the broker.

A position is the number of the last message that was settled, with all before it. Anything with the methods of
`Offsets` will do: a table of the program's own database, written in the transaction that has the messages' effect,
makes that effect happen once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from numbers import Integral
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from harebell import errors
from harebell.client.callbacks import check_callable
from harebell.client.channel import Channel
from harebell.client.messages import Message
from harebell.client.patterns.source import ChannelSource
from harebell.protocol.v091 import Table
from harebell.synced_files import make_folder, replace_file

__all__ = ["FileOffsets", "Offsets", "QueueOffsets", "check_offsets"]

logger = logging.getLogger("harebell.client")

MOST: Final = 2**63 - 1  # of a message's number: AMQP's longlong, as brokers write it in x-stream-offset
MOST_FOLDER: Final = 255  # bytes of a folder's name, on nearly all file systems
MOST_FILE: Final = 236  # of a file's, without ".offset" and what a file has behind that while it is written
SHOWN: Final = 100  # characters of a longer name that stay readable


class Offsets(Protocol):
    """Stores positions."""

    async def load(self, queue: str, name: str) -> int | None:
        """The number of the last message that this reader has settled; None for a reader that is not known."""
        ...

    async def store(self, queue: str, name: str, offset: int) -> None:
        """It is this one now."""
        ...


def check_offsets(offsets: object) -> None:
    """InvalidArgument for what is no `Offsets`: a program would read for a while before its first position is lost."""
    if offsets is None:
        return
    if isinstance(offsets, type) or not (hasattr(offsets, "load") and hasattr(offsets, "store")):
        raise errors.InvalidArgument(
            f"offsets is {offsets!r}: give an object with load(queue, name) and store(queue, name, offset), as "
            "FileOffsets(folder) or QueueOffsets(connection)"
        )
    check_callable("load of the offsets", offsets.load, "queue", "name")
    check_callable("store of the offsets", offsets.store, "queue", "name", "offset")


def _check_names(queue: object, name: object) -> None:
    for what, text in (("queue", queue), ("name", name)):
        if not isinstance(text, str) or not text:
            raise errors.InvalidArgument(
                f"{what} is {text!r}: a position is stored by the name of a queue and of a reader"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise errors.InvalidArgument(f"{what} {text!r} has no UTF-8 form: {error.reason}") from None


def _number(offset: object) -> int:
    """The number of a message, checked before it takes the place of a good one."""
    number = int(offset) if isinstance(offset, Integral) and not isinstance(offset, bool) else -1
    if not 0 <= number <= MOST:
        raise errors.InvalidArgument(f"offset is {offset!r}: the number of a message is needed, from 0 to {MOST}")
    return number


def _read(where: str, stored: bytes, more: str = "") -> int:
    """The number that was stored there."""
    digits = stored.strip()
    if digits.isdigit() and len(digits) <= len(str(MOST)) and int(digits) <= MOST:
        return int(digits)
    shown = stored[:40].decode("utf-8", "backslashreplace").strip()
    raise errors.InvalidArgument(f"{where} has {shown!r}, and no number of a message{more}")


class FileOffsets:
    """Positions in a folder, one file for each queue and name; it is made where it is missing.

    A position is on the disk when `store` returns. One process at a time reads under one name.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise errors.InvalidArgument(f"folder is {folder!r}: the path of a folder is needed")
        self._folder = Path(folder)

    async def load(self, queue: str, name: str) -> int | None:
        return await asyncio.to_thread(self._load, self._file(queue, name))

    async def store(self, queue: str, name: str, offset: int) -> None:
        await asyncio.to_thread(self._store, self._file(queue, name), _number(offset))

    def _file(self, queue: str, name: str) -> Path:
        _check_names(queue, name)
        return self._folder / _name_of(queue, MOST_FOLDER) / f"{_name_of(name, MOST_FILE)}.offset"

    def _load(self, file: Path) -> int | None:
        try:
            stored = file.read_bytes()
        except FileNotFoundError:
            return None
        return _read(str(file), stored, ": remove it, or mend it")

    def _store(self, file: Path, offset: int) -> None:
        make_folder(file.parent)
        replace_file(file, [f"{offset}\n"])


def _name_of(text: str, most: int) -> str:
    """The name of the text's file or folder. Two texts have two names.

    "%" comes before two hexadecimal digits in all that `quote` gives, so "%~" marks what is not its own.
    """
    quoted = quote(text, safe="")
    if quoted in (".", ".."):
        return quoted.replace(".", "%2E")
    if len(quoted) <= most:
        return quoted
    return f"{quoted[:SHOWN]}%~{hashlib.sha256(text.encode()).hexdigest()}"


class QueueOffsets:
    """Positions in durable queues of the broker, one for each queue and name, with one message each.

    connection  what they are declared and published on; on a channel of their own, which ends with it
    prefix      how their names begin: PREFIX.QUEUE.NAME, where NAME has "%2E" for each ".", and then "%25" for each "%"

    A position is confirmed by the broker when `store` returns. One process at a time reads under one name.
    """

    def __init__(self, connection: ChannelSource, prefix: str = "stream-offset") -> None:
        if not isinstance(prefix, str) or not prefix:
            raise errors.InvalidArgument(f"prefix is {prefix!r}: text is needed, with which names of queues begin")
        self._connection = connection
        self._prefix = prefix
        self._channel: Channel | None = None
        self._declared: set[str] = set()
        self._turn = asyncio.Lock()

    async def load(self, queue: str, name: str) -> int | None:
        _check_names(queue, name)
        async with self._turn:
            channel, stored_in = await self._ready(queue, name)
            position = await self._look(channel, stored_in)
            if position is None and "." in name:
                return await self._before(channel, queue, name)
            return position

    async def _look(self, channel: Channel, stored_in: str) -> int | None:
        delivery = await channel.get(stored_in)
        if delivery is None:
            return None
        delivery.reject(requeue=True)
        await channel.queue_inspect(stored_in)  # it is back once this is answered, or soon after
        return _read(f"queue {stored_in!r}", delivery.body)

    async def _before(self, channel: Channel, queue: str, name: str) -> int | None:
        """What was stored before the "." of a name were encoded, unless it may be of another queue and name."""
        parts = name.split(".")
        others = [".".join([queue, *parts[:at]]) for at in range(1, len(parts))]
        old = f"{self._prefix}.{queue}.{name}"
        if not await self._is_there(old):
            return None
        position = await self._look(channel, old)
        for other in others:
            if position is not None and await self._is_there(other):
                logger.warning(
                    "queue %r holds position %d of a reader of stream %r named %r, or of one of %r: it is not used; "
                    "store it once more for its reader", old, position, queue, name, other,
                )  # fmt: skip
                return None
        return position

    async def _is_there(self, queue: str) -> bool:
        async with self._connection.channel() as asking:  # the broker closes it where there is none
            try:
                await asking.queue_inspect(queue)
            except errors.NotFound:
                return False
            except errors.ChannelError:  # another connection's own, or one that this user may not see
                return True
        return True

    async def store(self, queue: str, name: str, offset: int) -> None:
        _check_names(queue, name)
        number = _number(offset)
        async with self._turn:
            channel, stored_in = await self._ready(queue, name)
            await channel.publish(Message(b"%d" % number, delivery_mode=2), "", stored_in, mandatory=True)

    async def _ready(self, queue: str, name: str) -> tuple[Channel, str]:
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel()
            await self._channel.confirm_select(on_orphan="retry")
        stored_in = f"{self._prefix}.{queue}.{_last_word(name)}"
        if stored_in not in self._declared:
            only_one: Table = {"x-max-length": 1}  # the last: a new one drives the old one out
            await self._channel.queue_declare(stored_in, durable=True, arguments=only_one)
            self._declared.add(stored_in)
        return self._channel, stored_in


def _last_word(name: str) -> str:
    """The name as one word, so that the queue is all that stands before it: two pairs have two queues.

    What has no "." stays as it is, unless it looks encoded.
    """
    if "." in name or "%2E" in name or "%25" in name:
        return name.replace("%", "%25").replace(".", "%2E")
    return name
