"""The outbox in SQLite: what is put is a part of the program's transaction, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from harebell import errors
from harebell.client.messages import Message
from harebell.client.patterns import sqlite_outbox
from harebell.client.patterns.sqlite_outbox import SQLiteOutbox


async def test_a_row_keeps_all_of_a_publication(tmp_path: Path) -> None:
    outbox = SQLiteOutbox(tmp_path / "a.db", table="events")
    db = sqlite3.connect(tmp_path / "a.db")
    with db:
        given = Message(b"\x00\xff", headers={"n": 1, "x-deduplication-header": "k"}, delivery_mode=1, priority=3)
        assert outbox.put(db, given, "key", exchange="ex", mandatory=False, key="unused") == 1
        assert outbox.put(db, b"plain") == 2
    first, second = await outbox.oldest(10)
    assert (first.number, first.publication.exchange, first.publication.routing_key) == (1, "ex", "key")
    assert first.publication.mandatory is False
    assert isinstance(first.publication.message, Message)
    assert first.publication.message.body == b"\x00\xff"
    assert first.publication.message.properties == given.properties
    assert isinstance(second.publication.message, Message)
    assert second.publication.message.properties.delivery_mode == 2
    assert len(str(second.publication.message.headers["x-deduplication-header"])) == 32
    assert second.publication.mandatory is True
    assert "OutboxEntry(2, Publication(" in repr(second)
    assert [entry.number for entry in await outbox.oldest(1)] == [1]
    await outbox.confirmed([1])
    await outbox.refused(2, errors.NotFound("no exchange 'ex'"))
    assert (outbox.waiting(), await outbox.oldest(10)) == (0, [])
    [(entry, text)] = outbox.refusals()
    assert (entry.number, text.startswith("NotFound: ")) == (2, True)
    outbox.close()
    outbox.close()
    assert outbox.discard() == 1  # it opens again
    with db:
        assert outbox.put(db, b"m") == 3  # no number is used twice
    outbox.close()
    db.close()


def test_a_connection_that_commits_each_statement_needs_a_transaction(tmp_path: Path) -> None:
    outbox = SQLiteOutbox(tmp_path / "a.db")
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    with pytest.raises(errors.LocalProtocolError, match='execute "BEGIN" first'):
        outbox.put(db, b"m")
    db.execute("BEGIN")
    outbox.put(db, b"m")
    db.execute("ROLLBACK")
    assert outbox.waiting() == 0
    db.close()
    if sys.version_info >= (3, 12):
        db = sqlite3.connect(tmp_path / "a.db", autocommit=True)
        with pytest.raises(errors.LocalProtocolError, match='execute "BEGIN" first'):
            outbox.put(db, b"m")
        db.close()
    outbox.close()


def test_what_fits_no_wire_never_gets_in(tmp_path: Path) -> None:
    outbox = SQLiteOutbox(tmp_path / "a.db")
    db = sqlite3.connect(tmp_path / "a.db")
    message = Message(b"m")
    message.properties.priority = 300
    with pytest.raises(errors.LocalProtocolError, match="priority"), db:
        outbox.put(db, message)
    with pytest.raises(errors.InvalidArgument, match="must be bytes"), db:
        outbox.put(db, "text")  # type: ignore[arg-type]
    assert outbox.waiting() == 0
    db.close()
    outbox.close()


async def test_a_lease_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = SQLiteOutbox(tmp_path / "a.db")
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    assert await outbox.hold("a", 10)
    assert await outbox.hold("a", 10)
    assert not await outbox.hold("b", 10)
    now = 1011.0
    assert await outbox.hold("b", 10)
    assert not await outbox.hold("a", 0)
    assert await outbox.hold("b", 0)
    assert await outbox.hold("a", 10)
    outbox.close()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_database_that_no_relay_could_open_is_refused(path: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="needs a database file"):
        SQLiteOutbox(path)


def test_a_table_is_a_name(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="letters, digits and underscores"):
        SQLiteOutbox(tmp_path / "a.db", table="a; DROP TABLE b")
    with pytest.raises(errors.InvalidArgument, match="SQLite's own"):
        SQLiteOutbox(tmp_path / "a.db", table="SQLite_events")


async def test_any_name_of_a_table_can_be_used(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "a.db")
    for table in ("order", "table", "a" * 300):
        outbox = SQLiteOutbox(tmp_path / "a.db", table=table)
        with db:
            for n in range(1, 4):
                assert outbox.put(db, b"m") == n
        assert outbox.waiting() == len(await outbox.oldest(10)) == 3
        assert await outbox.hold("a", 10)
        await outbox.confirmed([1])
        for n in (2, 3):
            await outbox.refused(n, errors.NotFound("no exchange"))
        assert [entry.number for entry, _ in outbox.refusals()] == [2, 3]
        assert (outbox.retry([2]), outbox.discard([3])) == (1, 1)
        outbox.close()
    db.close()


async def test_a_commit_that_fails_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_outbox, "BUSY", 0.01)
    outbox = SQLiteOutbox(tmp_path / "a.db")
    program, reader = (sqlite3.connect(tmp_path / "a.db", timeout=0) for _ in range(2))
    with program:
        outbox.put(program, b"1")
        outbox.put(program, b"2")
        outbox.put(program, b"3")
    outbox.close()  # it opens again with the shorter wait
    await outbox.refused(3, errors.NotFound("no exchange"))
    writes = (
        lambda: outbox.hold("a", 10), lambda: outbox.confirmed([1]), lambda: outbox.refused(2, errors.NotFound("none")),
        lambda: asyncio.to_thread(outbox.retry), lambda: asyncio.to_thread(outbox.discard),
    )  # fmt: skip
    for write in writes:
        unfinished = reader.execute("SELECT number FROM harebell_outbox")
        unfinished.fetchone()  # a shared lock, until all are read
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await write()
        unfinished.close()
        with program:
            outbox.put(program, b"m")
    assert outbox.waiting() == 2 + len(writes)  # nothing was changed
    assert await outbox.hold("b", 10)
    outbox.close()
    program.close()
    reader.close()
