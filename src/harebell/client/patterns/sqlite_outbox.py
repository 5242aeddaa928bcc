"""An outbox in SQLite: publications are rows, which the program's transaction commits with its own.

The program inserts on its own connection (`put`, from any thread that may use it). The relay reads and deletes on a
connection of the outbox's, in a thread of the loop's executor. Rows hold a message as it goes over the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.client.patterns.outbox import OutboxEntry
from harebell.client.patterns.outbox_rows import prepared
from harebell.protocol.v091 import Properties

__all__ = ["SQLiteOutbox"]

T = TypeVar("T")

BUSY: Final = 30.0  # seconds to wait for the program's transactions
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS "{table}" (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        exchange TEXT NOT NULL,
        routing_key TEXT NOT NULL,
        mandatory INTEGER NOT NULL,
        properties BLOB NOT NULL,
        body BLOB NOT NULL,
        error TEXT
    )""",
    'CREATE INDEX IF NOT EXISTS "{table}_waiting" ON "{table}" (number) WHERE error IS NULL',
    """CREATE TABLE IF NOT EXISTS "{table}_lease" (
        one INTEGER PRIMARY KEY CHECK (one = 1), relay TEXT NOT NULL, until REAL NOT NULL
    )""",
)


class SQLiteOutbox:
    """An outbox in a SQLite database, beside the program's own tables.

    path   of the database file; its tables are created where they are missing
    table  name of the outbox's table; another one has this name and _lease

    InvalidArgument for a database in memory, which no relay could see, and for a table's name that is none.
    """

    def __init__(self, path: str | os.PathLike[str], *, table: str = "harebell_outbox") -> None:
        name = os.fspath(path)
        if name in ("", ":memory:"):
            raise errors.InvalidArgument(
                f"path is {name!r}: the outbox needs a database file, which its relay can open"
            )
        if not (table.isidentifier() and table.isascii()):
            raise errors.InvalidArgument(f"table is {table!r}: letters, digits and underscores are needed")
        if table.lower().startswith("sqlite_"):
            raise errors.InvalidArgument(f"table is {table!r}: names that begin with sqlite_ are SQLite's own")
        self._path = name
        self._table = table
        self._lock = threading.Lock()  # the executor has several threads
        self._opened: sqlite3.Connection | None = None
        self._work(lambda db: [db.execute(statement.format(table=table)) for statement in _SCHEMA])

    # -- the program's side --------------------------------------------------------------------------------------------

    def put(
        self,
        db: sqlite3.Connection,
        body: Message | bytes,
        routing_key: str = "",
        *,
        exchange: str = "",
        mandatory: bool = True,
        key: str | None = None,
    ) -> int:
        """Put a publication into the outbox, as a part of the transaction of `db`; its number there.

        db         the program's connection to the same database; it commits, or rolls back
        body       a Message, or bytes. It is made persistent where its delivery mode is not given
        mandatory  have the relay report it as refused when it reaches no queue
        key        by which a queue with `x-message-deduplication` knows it again; left out, one of its own

        LocalProtocolError when `db` commits each statement by itself, and no transaction has begun: it would not be
        undone with the rest. InvalidArgument and LocalProtocolError for a message that does not fit the wire.
        """
        if not db.in_transaction and (db.isolation_level is None or getattr(db, "autocommit", None) is True):
            raise errors.LocalProtocolError(
                "outbox.put: no transaction has begun on this connection, which commits each statement by itself: "
                'execute "BEGIN" first'
            )
        raw, body_bytes = prepared(body, key)
        cursor = db.execute(
            f'INSERT INTO "{self._table}" (exchange, routing_key, mandatory, properties, body) VALUES (?, ?, ?, ?, ?)',
            (exchange, routing_key, int(mandatory), raw, body_bytes),
        )
        assert cursor.lastrowid is not None  # of an INSERT
        return cursor.lastrowid

    def waiting(self) -> int:
        """How many publications wait to be published."""
        return int(self._work(lambda db: _one(db, f'SELECT count(*) FROM "{self._table}" WHERE error IS NULL')))

    def refusals(self) -> list[tuple[OutboxEntry, str]]:
        """The publications that can't be published, oldest first, each with the text of its error."""
        rows = self._work(lambda db: db.execute(f"{self._select} WHERE error IS NOT NULL ORDER BY number").fetchall())
        return [(_entry(row), row[6]) for row in rows]

    def retry(self, numbers: Iterable[int] | None = None) -> int:
        """Have refused ones published again, all or these; how many."""
        return self._change(f'UPDATE "{self._table}" SET error = NULL WHERE error IS NOT NULL', numbers)

    def discard(self, numbers: Iterable[int] | None = None) -> int:
        """Drop refused ones, all or these; how many."""
        return self._change(f'DELETE FROM "{self._table}" WHERE error IS NOT NULL', numbers)

    def close(self) -> None:
        """Close the outbox's own connection; the next call opens it again."""
        with self._lock:
            self._drop()

    # -- the relay's side ----------------------------------------------------------------------------------------------

    async def hold(self, relay: str, seconds: float) -> bool:
        """Give the lease to this relay, or with 0 take it back. By the clock of this machine."""

        def work(db: sqlite3.Connection) -> bool:
            now = time.time()
            changed = db.execute(
                f'INSERT INTO "{self._table}_lease" VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE '
                "SET relay = excluded.relay, until = excluded.until WHERE relay = excluded.relay OR until <= ?",
                (relay, now + seconds, now),
            )
            return changed.rowcount > 0

        return await asyncio.to_thread(self._work, work)

    async def oldest(self, count: int) -> Sequence[OutboxEntry]:
        """So many of those that wait, oldest first."""
        sql = f"{self._select} WHERE error IS NULL ORDER BY number LIMIT ?"
        rows = await asyncio.to_thread(self._work, lambda db: db.execute(sql, (count,)).fetchall())
        return [_entry(row) for row in rows]

    async def confirmed(self, numbers: Sequence[int]) -> None:
        """Delete these."""
        sql = f'DELETE FROM "{self._table}" WHERE number = ?'
        await asyncio.to_thread(self._work, lambda db: db.executemany(sql, [(number,) for number in numbers]))

    async def refused(self, number: int, error: errors.HarebellError) -> None:
        """Keep this one with its error: see `refusals`."""
        sql = f'UPDATE "{self._table}" SET error = ? WHERE number = ?'
        text = f"{type(error).__name__}: {error}"
        await asyncio.to_thread(self._work, lambda db: db.execute(sql, (text, number)))

    # -- the database --------------------------------------------------------------------------------------------------

    @property
    def _select(self) -> str:
        return f'SELECT number, exchange, routing_key, mandatory, properties, body, error FROM "{self._table}"'

    def _change(self, sql: str, numbers: Iterable[int] | None) -> int:
        if numbers is None:
            return self._work(lambda db: db.execute(sql).rowcount)
        rows = [(number,) for number in numbers]
        return self._work(lambda db: max(db.executemany(f"{sql} AND number = ?", rows).rowcount, 0))

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do this on the outbox's own connection, as one transaction."""
        with self._lock:
            if self._opened is None:
                self._opened = sqlite3.connect(self._path, timeout=BUSY, isolation_level=None, check_same_thread=False)
            db = self._opened
            try:
                db.execute("BEGIN IMMEDIATE")
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                # A transaction that stayed open would lock the program's database. Closing alone does not end it while
                # a cursor of it lives, as in this error's traceback.
                with contextlib.suppress(sqlite3.Error):
                    db.rollback()
                self._drop()
                raise
            return result

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


def _one(db: sqlite3.Connection, sql: str) -> int:
    return int(db.execute(sql).fetchone()[0])


def _entry(row: tuple[int, str, str, int, bytes, bytes, str | None]) -> OutboxEntry:
    number, exchange, routing_key, mandatory, properties, body, _ = row
    message = Message(body, properties=Properties.decode(properties))
    return OutboxEntry(number, Publication(message, exchange, routing_key, bool(mandatory)))
