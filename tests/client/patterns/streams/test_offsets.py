"""Stored positions, in files and in queues; the second against both brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
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
