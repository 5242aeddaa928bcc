"""Stored positions, in files and in queues; the second against both brokers."""

from __future__ import annotations

import itertools
import logging
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message
from harebell.client.patterns.streams.offsets import FileOffsets, Offsets, QueueOffsets


async def check(offsets: Offsets, again: Offsets, queue: str) -> None:
    assert await offsets.load(queue, "a") is None
    for offset in (0, 7, 123_456_789_012):
        await offsets.store(queue, "a", offset)
        assert await again.load(queue, "a") == offset
    await again.store(queue, "a", 3)
    assert [await offsets.load(queue, "a") for _ in range(3)] == [3, 3, 3]
    assert await offsets.load(queue, "b") is None
    assert await offsets.load(f"{queue}.other", "a") is None


async def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "offsets"
    await check(FileOffsets(folder), FileOffsets(str(folder)), "a/queue with .. in it")
    assert [file.read_text() for file in folder.rglob("*.offset")] == ["3\n"]
    assert {file.relative_to(folder).parts[0] for file in folder.rglob("*.offset")} == {
        "a%2Fqueue%20with%20..%20in%20it"
    }


async def test_a_file_with_something_else(tmp_path: Path) -> None:
    offsets = FileOffsets(tmp_path)
    await offsets.store("q", "n", 1)
    next(tmp_path.rglob("*.offset")).write_text("-1\n")
    with pytest.raises(errors.InvalidArgument, match=r"n.offset has '-1', and no number"):
        await offsets.load("q", "n")


async def test_queues(connection: Connection, other: Channel, name: str) -> None:
    one, again = QueueOffsets(connection, f"{name}.at"), QueueOffsets(connection, f"{name}.at")
    await check(one, again, name)
    await connection.test().force_reconnect()
    await one.store(name, "a", 5)
    assert await one.load(name, "a") == 5
    assert await other.message_count(f"{name}.at.{name}.a") == 1
    await other.confirm_select()
    await other.publish(b"what", "", f"{name}.at.{name}.a")
    with pytest.raises(errors.InvalidArgument, match="and no number of a message"):
        await one.load(name, "a")
    for queue, reader in ((name, "a"), (name, "b"), (f"{name}.other", "a")):
        await other.queue_delete(f"{name}.at.{queue}.{reader}")


QUEUES = [
    "a", "a.b", "a.b.c", ".", "..", "...", "a/b", "a%2Fb", "a%2Eb", "/", "%", "%2E", " ", "x\ny", "\0", "é" * 100,
    "q" * 255, "q" * 254, ("é" * 127) + "e", "a%~b",
]  # fmt: skip
NAMES = [
    "c", "b.c", "b.c.d", "b%2Ec", "b%252Ec", "b%25c", ".", "..", "...", "%2E", "%", "a%b", "n" * 255, "n" * 250,
    "é" * 90,
]  # fmt: skip
NO_OFFSETS: list[Any] = [-1, 1.5, None, "5", b"5", True, 2**63, math.nan, Decimal(5), [5]]
NO_NUMBERS = [
    b"", b"\n", b"x", b"-1\n", b"7 8", b"\xff", b"\xff\n", b"1e3", b"+7", b"\xd9\xa3\n", b"9" * 30, b"9" * 5000,
    b"7.0", b"0x7",
]  # fmt: skip


async def test_two_names_are_two_files_of_the_folder(tmp_path: Path) -> None:
    """Whatever a queue and a name are called."""
    folder = tmp_path / "outer" / "offsets"
    offsets = FileOffsets(folder)
    pairs = list(itertools.product(QUEUES, NAMES))
    for at, (queue, name) in enumerate(pairs):
        assert await offsets.load(queue, name) is None, (queue, name)
        await offsets.store(queue, name, at)
    assert [await FileOffsets(folder).load(queue, name) for queue, name in pairs] == list(range(len(pairs)))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == len(pairs)
    assert all(file.parent.parent == folder for file in files)


async def test_names_that_files_cannot_have_are_refused(tmp_path: Path) -> None:
    wrong: list[Any] = ["", None, 5, b"q", "\ud800"]
    for each in wrong:
        for queue, name in ((each, "n"), ("q", each)):
            with pytest.raises(errors.InvalidArgument, match=r"(queue|name) (is )?"):
                await FileOffsets(tmp_path).load(queue, name)
            with pytest.raises(errors.InvalidArgument, match=r"(queue|name) (is )?"):
                await FileOffsets(tmp_path).store(queue, name, 5)
    assert list(tmp_path.iterdir()) == []
    folders: list[Any] = [None, 5, b"folder"]
    for folder in folders:
        with pytest.raises(errors.InvalidArgument, match="the path of a folder"):
            FileOffsets(folder)


@pytest.mark.parametrize("content", NO_NUMBERS)
async def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    offsets = FileOffsets(tmp_path)
    await offsets.store("q", "n", 1)
    next(tmp_path.rglob("*.offset")).write_bytes(content)
    with pytest.raises(errors.InvalidArgument, match=r"n\.offset has .*no number of a message: remove it, or mend it"):
        await offsets.load("q", "n")
    await offsets.store("q", "n", 2)
    assert await offsets.load("q", "n") == 2


@pytest.mark.parametrize("offset", NO_OFFSETS)
async def test_what_is_no_number_takes_no_place_of_one(
    tmp_path: Path, connection: Connection, other: Channel, name: str, offset: Any
) -> None:
    every: list[Offsets] = [FileOffsets(tmp_path), QueueOffsets(connection, name)]
    for offsets in every:
        await offsets.store("q", "n", 7)
        with pytest.raises(errors.InvalidArgument, match=r"offset is .*: the number of a message is needed"):
            await offsets.store("q", "n", offset)
        assert await offsets.load("q", "n") == 7
        await offsets.store("q", "n", 2**63 - 1)
        assert await offsets.load("q", "n") == 2**63 - 1
    await other.queue_delete(f"{name}.q.n")


async def test_two_names_are_two_queues(connection: Connection, other: Channel, name: str) -> None:
    """Names of queues have at most 255 bytes, and no control of a file system."""
    offsets = QueueOffsets(connection, name)
    pairs = list(
        itertools.product(["a", "a.b", "a.b.c", "a%2Eb", ".", "%"], [each for each in NAMES if len(each) < 50])
    )
    for at, (queue, reader) in enumerate(pairs):
        await offsets.store(queue, reader, at)
    assert [await QueueOffsets(connection, name).load(queue, reader) for queue, reader in pairs] == list(
        range(len(pairs))
    )
    for queue, reader in pairs:
        word = reader if reader in ("c", "%", "a%b") else reader.replace("%", "%25").replace(".", "%2E")
        await other.queue_delete(f"{name}.{queue}.{word}")


async def test_a_position_under_an_old_name_is_read_where_it_can_be_of_nobody_else(
    connection: Connection, other: Channel, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream, old = f"{name}.s", f"{name}.at.{name}.s.b.c"
    offsets = QueueOffsets(connection, f"{name}.at")
    assert await offsets.load(stream, "b.c") is None
    await other.queue_declare(old, durable=True, arguments={"x-max-length": 1})
    assert await offsets.load(stream, "b.c") is None
    await other.confirm_select()
    await other.publish(Message(b"9", delivery_mode=2), "", old)
    assert [await offsets.load(stream, "b.c") for _ in range(2)] == [9, 9]
    await other.queue_declare(f"{stream}.b", exclusive=True)  # where a reader may be called "c"
    with caplog.at_level(logging.WARNING, "harebell.client"):
        assert await offsets.load(stream, "b.c") is None
    assert f"queue '{old}' holds position 9" in caplog.text
    assert await offsets.load(f"{stream}.b", "c") == 9
    await offsets.store(stream, "b.c", 11)
    assert (await offsets.load(stream, "b.c"), await offsets.load(f"{stream}.b", "c")) == (11, 9)
    for queue in (old, f"{name}.at.{stream}.b%2Ec"):
        await other.queue_delete(queue)


async def test_a_prefix_is_text(connection: Connection) -> None:
    wrong: list[Any] = ["", None, 5, b"p"]
    for prefix in wrong:
        with pytest.raises(errors.InvalidArgument, match="prefix is"):
            QueueOffsets(connection, prefix)
