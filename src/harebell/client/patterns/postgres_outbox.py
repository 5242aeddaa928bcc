"""An outbox in PostgreSQL: publications are rows, which the program's transaction commits with its own.

Rules:
1. The program inserts on its own connection of psycopg (`put`, or `put_async`). The relay reads and deletes on a
   connection of the outbox's, in a thread of the loop's executor, so that it runs on every event loop.
2. Numbers come from a sequence when a row is inserted, and transactions commit in another order. The relay remembers no
   number: it reads the lowest rows that it can see, so that one that commits late is read then.
3. The lease is by the clock of the database, which relays on several machines share.
4. Texts are bytea in UTF-8: PostgreSQL's text takes no NUL, and not every character in every encoding of a database.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.client.patterns.outbox import OutboxEntry
from harebell.client.patterns.outbox_rows import prepared
from harebell.protocol.v091 import Properties

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresOutbox"]

T = TypeVar("T")

LONGEST_NAME: Final = 55  # bytes; PostgreSQL cuts names at 63, and "_waiting" is appended
_SCHEMA: Final = (
    """CREATE TABLE "{table}" (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        exchange bytea NOT NULL,
        routing_key bytea NOT NULL,
        mandatory boolean NOT NULL,
        properties bytea NOT NULL,
        body bytea NOT NULL,
        error text
    )""",
    'CREATE INDEX "{table}_waiting" ON "{table}" (number) WHERE error IS NULL',
    """CREATE TABLE "{table}_lease" (
        one integer PRIMARY KEY CHECK (one = 1), relay text NOT NULL, until timestamptz NOT NULL
    )""",
)


class PostgresOutbox:
    """An outbox in a PostgreSQL database, beside the program's own tables. Needs psycopg: `harebell[postgres]`.

    conninfo  of the database, as psycopg.connect takes it
    table     name of the outbox's table; another one has this name and _lease. Both are created where they are missing

    MissingDependency without psycopg; InvalidArgument for a table's name that is none or has more than 55 letters. Here
    and elsewhere psycopg's own errors when the database is away or refuses.
    """

    def __init__(self, conninfo: str, *, table: str = "harebell_outbox") -> None:
        if not (table.isidentifier() and table.isascii() and len(table) <= LONGEST_NAME):
            raise errors.InvalidArgument(
                f"table is {table!r}: letters, digits and underscores are needed, at most {LONGEST_NAME}"
            )
        try:
            import psycopg
        except ImportError as error:
            raise errors.MissingDependency(
                f"PostgresOutbox needs the package psycopg: pip install 'harebell[postgres]' ({error})"
            ) from error
        self._lost = psycopg.OperationalError
        self._connect: Callable[..., psycopg.Connection[Any]] = psycopg.connect
        self._conninfo = conninfo
        self._table = table
        self._lock = threading.Lock()  # the executor has several threads
        self._opened: psycopg.Connection[Any] | None = None
        self._work(self._create)

    # -- the program's side --------------------------------------------------------------------------------------------

    def put(
        self,
        db: psycopg.Connection[Any],
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
        _check_transaction(db)
        row = _row(body, routing_key, exchange, mandatory, key)
        with db.cursor(row_factory=_plain_rows) as cursor:
            return _number(cursor.execute(self._insert, row).fetchone())

    async def put_async(
        self,
        db: psycopg.AsyncConnection[Any],
        body: Message | bytes,
        routing_key: str = "",
        *,
        exchange: str = "",
        mandatory: bool = True,
        key: str | None = None,
    ) -> int:
        """The same as `put`, on a connection of psycopg's for asyncio."""
        _check_transaction(db)
        row = _row(body, routing_key, exchange, mandatory, key)
        async with db.cursor(row_factory=_plain_rows) as cursor:
            await cursor.execute(self._insert, row)
            return _number(await cursor.fetchone())

    def waiting(self) -> int:
        """How many publications wait to be published."""
        sql = self._sql('SELECT count(*) FROM "{table}" WHERE error IS NULL')
        return self._work(lambda db: _number(db.execute(sql).fetchone()))

    def refusals(self) -> list[tuple[OutboxEntry, str]]:
        """The publications that can't be published, oldest first, each with the text of its error."""
        sql = self._sql(f"{_SELECT} WHERE error IS NOT NULL ORDER BY number")
        return [(_entry(row), row[6]) for row in self._work(lambda db: db.execute(sql).fetchall())]

    def retry(self, numbers: Iterable[int] | None = None) -> int:
        """Have refused ones published again, all or these; how many."""
        return self._change('UPDATE "{table}" SET error = NULL WHERE error IS NOT NULL', numbers)

    def discard(self, numbers: Iterable[int] | None = None) -> int:
        """Drop refused ones, all or these; how many."""
        return self._change('DELETE FROM "{table}" WHERE error IS NOT NULL', numbers)

    def close(self) -> None:
        """Close the outbox's own connection; the next call opens it again."""
        with self._lock:
            self._drop()

    # -- the relay's side ----------------------------------------------------------------------------------------------

    async def hold(self, relay: str, seconds: float) -> bool:
        """Give the lease to this relay, or with 0 take it back. By the clock of the database."""
        sql = self._sql(
            'INSERT INTO "{table}_lease" AS held VALUES (1, %s, clock_timestamp() + make_interval(secs => %s)) '
            "ON CONFLICT (one) DO UPDATE SET relay = excluded.relay, until = excluded.until "
            "WHERE held.relay = excluded.relay OR held.until <= clock_timestamp()"
        )
        return await asyncio.to_thread(self._work, lambda db: db.execute(sql, (relay, seconds)).rowcount > 0)

    async def oldest(self, count: int) -> Sequence[OutboxEntry]:
        """So many of those that wait, oldest first."""
        sql = self._sql(f"{_SELECT} WHERE error IS NULL ORDER BY number LIMIT %s")
        rows = await asyncio.to_thread(self._work, lambda db: db.execute(sql, (count,)).fetchall())
        return [_entry(row) for row in rows]

    async def confirmed(self, numbers: Sequence[int]) -> None:
        """Delete these."""
        sql = self._sql('DELETE FROM "{table}" WHERE number = ANY(%s)')
        await asyncio.to_thread(self._work, lambda db: db.execute(sql, (list(numbers),)))

    async def refused(self, number: int, error: errors.HarebellError) -> None:
        """Keep this one with its error: see `refusals`."""
        sql = self._sql('UPDATE "{table}" SET error = %s WHERE number = %s')
        text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")
        await asyncio.to_thread(self._work, lambda db: db.execute(sql, (text, number)))

    # -- the database --------------------------------------------------------------------------------------------------

    @property
    def _insert(self) -> bytes:
        return self._sql(
            'INSERT INTO "{table}" (exchange, routing_key, mandatory, properties, body) '
            "VALUES (%s, %s, %s, %s, %s) RETURNING number"
        )

    def _sql(self, text: str) -> bytes:
        """This statement, with the table's name in it, which is an identifier in ASCII."""
        return text.format(table=self._table).encode()

    def _create(self, db: psycopg.Connection[Any]) -> None:
        """Create the tables where they are missing; a role that may not create any can use those there are."""
        db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"harebell {self._table}",))
        (there,) = db.execute("SELECT to_regclass(%s)", (f'"{self._table}"',)).fetchone() or (None,)
        if there is None:
            for statement in _SCHEMA:
                db.execute(self._sql(statement))

    def _change(self, sql: str, numbers: Iterable[int] | None) -> int:
        if numbers is None:
            return self._work(lambda db: db.execute(self._sql(sql)).rowcount)
        chosen = list(numbers)
        return self._work(lambda db: db.execute(self._sql(f"{sql} AND number = ANY(%s)"), (chosen,)).rowcount)

    def _work(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do this on the outbox's own connection, as one transaction."""
        with self._lock:
            db = self._begin()
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                self._drop()  # the server rolls back; the connection may be dead, too
                raise
            return result

    def _begin(self) -> psycopg.Connection[Any]:
        """The connection, in a transaction. One that the server has ended since the last call is opened again."""
        # A read of the program's own default could be serializable, and fail beside another relay.
        begin = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
        if self._opened is not None:
            try:
                self._opened.execute(begin)
            except self._lost:
                self._drop()
            else:
                return self._opened
        # No prepared statements: a pooler between here and the server may not know them.
        self._opened = self._connect(self._conninfo, autocommit=True, prepare_threshold=None)
        self._opened.execute(begin)
        return self._opened

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


_SELECT: Final = 'SELECT number, exchange, routing_key, mandatory, properties, body, error FROM "{table}"'


def _plain_rows(cursor: Any) -> Any:
    """Rows as tuples, whatever the program's connection makes of them."""
    from psycopg.rows import tuple_row

    return tuple_row(cursor)


def _check_transaction(db: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    from psycopg.pq import TransactionStatus

    if db.autocommit and db.info.transaction_status == TransactionStatus.IDLE:
        raise errors.LocalProtocolError(
            "outbox.put: no transaction has begun on this connection, which commits each statement by itself: "
            "put it inside `with db.transaction():`"
        )


def _row(
    body: Message | bytes, routing_key: str, exchange: str, mandatory: bool, key: str | None
) -> tuple[bytes, bytes, bool, bytes, bytes]:
    try:
        texts = exchange.encode(), routing_key.encode()
    except UnicodeEncodeError as error:
        raise errors.InvalidArgument(f"exchange {exchange!r}, routing key {routing_key!r}: {error}") from error
    return (*texts, mandatory, *prepared(body, key))


def _number(row: tuple[Any, ...] | None) -> int:
    assert row is not None  # of count(*) and of RETURNING
    return int(row[0])


def _entry(row: tuple[Any, ...]) -> OutboxEntry:
    number, exchange, routing_key, mandatory, properties, body, _ = row
    message = Message(body, properties=Properties.decode(properties))
    return OutboxEntry(number, Publication(message, exchange.decode(), routing_key.decode(), mandatory))
