"""The outbox in PostgreSQL: what is put is a part of the program's transaction, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import builtins
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harebell import errors
from harebell.client.messages import Message
from harebell.client.patterns.postgres_outbox import PostgresOutbox
from tests.fixtures.postgres import PostgresServer

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'harebell[postgres]'")


GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "outbox.md"


@pytest.fixture
def outbox(postgres_database: str) -> Iterator[PostgresOutbox]:
    outbox = PostgresOutbox(postgres_database)
    yield outbox
    outbox.close()


@pytest.fixture
def db(postgres_database: str) -> Iterator[Any]:
    db = psycopg.connect(postgres_database)
    yield db
    db.close()


async def numbers(outbox: PostgresOutbox) -> list[int]:
    return [entry.number for entry in await outbox.oldest(100)]


async def test_a_row_keeps_all_of_a_publication(outbox: PostgresOutbox, db: Any) -> None:
    """NUL, which PostgreSQL's text refuses, is in the body, in a header, in the routing key and in an error."""
    given = Message(b"\x00\xff", headers={"n\0": "\0", "x-deduplication-header": "k"}, delivery_mode=1, priority=3)
    assert outbox.put(db, given, "key\0\N{SNOWMAN}", exchange="ex", mandatory=False, key="unused") == 1
    db.row_factory = psycopg.rows.dict_row
    assert outbox.put(db, b"plain") == 2  # whatever the program's rows look like
    db.commit()
    first, second = await outbox.oldest(10)
    assert (first.publication.exchange, first.publication.routing_key) == ("ex", "key\0\N{SNOWMAN}")
    assert first.publication.mandatory is False
    assert isinstance(first.publication.message, Message)
    assert first.publication.message.body == b"\x00\xff"
    assert first.publication.message.properties == given.properties
    assert isinstance(second.publication.message, Message)
    assert second.publication.message.properties.delivery_mode == 2
    assert len(str(second.publication.message.headers["x-deduplication-header"])) == 32
    await outbox.confirmed([1])
    await outbox.refused(2, errors.NotFound("no exchange '\0\N{SNOWMAN}\ud800'"))
    assert (outbox.waiting(), await outbox.oldest(10)) == (0, [])
    [(entry, text)] = outbox.refusals()
    assert (entry.number, text.startswith("NotFound: ")) == (2, True)
    assert "\\x00\\u2603\\ud800" in text
    assert (outbox.retry([1]), outbox.retry([2]), outbox.discard()) == (0, 1, 0)
    assert await numbers(outbox) == [2]


async def test_a_lower_number_may_commit_later(outbox: PostgresOutbox, db: Any, postgres_database: str) -> None:
    """And is not lost, though higher ones have been read and confirmed before."""
    assert outbox.put(db, b"slow") == 1
    with psycopg.connect(postgres_database) as quick:
        assert outbox.put(quick, b"quick") == 2
    assert await numbers(outbox) == [2]
    await outbox.confirmed([2])
    assert await numbers(outbox) == []
    db.commit()
    assert await numbers(outbox) == [1]


async def test_on_a_connection_of_asyncio(outbox: PostgresOutbox, postgres_database: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_database, autocommit=True) as db:
        with pytest.raises(errors.LocalProtocolError, match=r"db\.transaction"):
            await outbox.put_async(db, b"m")
        async with db.transaction():
            assert await outbox.put_async(db, b"kept") == 1
            with pytest.raises(ZeroDivisionError):
                async with db.transaction():  # a savepoint
                    await outbox.put_async(db, b"undone")
                    raise ZeroDivisionError
    assert await numbers(outbox) == [1]


def test_a_connection_that_commits_each_statement_needs_a_transaction(outbox: PostgresOutbox, db: Any) -> None:
    db.autocommit = True
    with pytest.raises(errors.LocalProtocolError, match=r"db\.transaction"):
        outbox.put(db, b"m")
    with db.transaction():
        outbox.put(db, b"m")
    assert outbox.waiting() == 1


def test_what_fits_no_wire_never_gets_in(outbox: PostgresOutbox, db: Any) -> None:
    """And does not abort the program's transaction."""
    message = Message(b"m")
    message.properties.priority = 300
    with pytest.raises(errors.LocalProtocolError, match="priority"):
        outbox.put(db, message)
    with pytest.raises(errors.InvalidArgument, match="must be bytes"):
        outbox.put(db, "text")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="surrogates not allowed"):
        outbox.put(db, b"m", "\ud800")
    outbox.put(db, b"fits")
    db.commit()
    assert outbox.waiting() == 1


def test_an_aborted_transaction_takes_nothing(outbox: PostgresOutbox, db: Any) -> None:
    outbox.put(db, b"m")
    with pytest.raises(psycopg.errors.UndefinedTable):
        db.execute("SELECT * FROM none_such")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        outbox.put(db, b"m")
    db.commit()  # PostgreSQL makes it a rollback
    assert outbox.waiting() == 0


async def test_a_lease_ends_by_itself(outbox: PostgresOutbox, db: Any) -> None:
    assert await outbox.hold("a", 3600)
    assert await outbox.hold("a", 3600)
    assert not await outbox.hold("b", 3600)
    db.execute("UPDATE harebell_outbox_lease SET until = now() - interval '1 second'")
    db.commit()
    assert await outbox.hold("b", 3600)
    assert not await outbox.hold("a", 0)
    assert await outbox.hold("b", 0)
    assert await outbox.hold("a", 3600)


def test_many_at_once_create_it_once(postgres_database: str) -> None:
    failures: list[Exception] = []
    barrier = threading.Barrier(6)

    def create() -> None:
        barrier.wait()
        try:
            PostgresOutbox(postgres_database, table="Order").close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    outbox = PostgresOutbox(postgres_database, table="Order")  # a word of SQL, with a capital
    assert outbox.waiting() == 0
    outbox.close()


def test_a_role_that_may_not_create_tables_uses_those_there_are(
    outbox: PostgresOutbox, db: Any, postgres_database: str
) -> None:
    role = f"r{postgres_database.rpartition('=')[2]}"
    db.execute(f"CREATE ROLE {role} LOGIN")
    db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON harebell_outbox, harebell_outbox_lease TO {role}")
    db.commit()
    theirs = PostgresOutbox(postgres_database.replace("user=harebell", f"user={role}"))
    assert theirs.waiting() == 0
    theirs.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_of_the_server(
    postgres: PostgresServer, outbox: PostgresOutbox, postgres_database: str, how: signal.Signals
) -> None:
    """While it is away its absence is told; then the next call finds what was committed, and nothing else."""
    committed, opened = psycopg.connect(postgres_database), psycopg.connect(postgres_database)
    outbox.put(committed, b"committed")
    committed.commit()
    outbox.put(opened, b"open")
    postgres.stop(how)
    try:
        with pytest.raises(psycopg.OperationalError):
            await outbox.oldest(10)
    finally:
        postgres.start()
    with pytest.raises(psycopg.OperationalError):
        opened.commit()
    assert await numbers(outbox) == [1]
    postgres.stop(how)
    postgres.start()
    assert outbox.waiting() == 1  # a connection that ended unnoticed between two calls is none of the caller's business
    for connection in (committed, opened):
        connection.close()


async def test_a_broken_call_leaves_no_transaction(outbox: PostgresOutbox, db: Any) -> None:
    db.execute("ALTER TABLE harebell_outbox RENAME TO away")
    db.commit()
    with pytest.raises(psycopg.errors.UndefinedTable):
        await outbox.oldest(1)
    db.execute("ALTER TABLE away RENAME TO harebell_outbox")
    db.commit()
    assert await asyncio.gather(*(outbox.oldest(1) for _ in range(8))) == [[]] * 8


@pytest.mark.parametrize("table", ["a; DROP TABLE b", "", 'a"b', "a" * 56])
def test_a_table_is_a_name(table: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="letters, digits and underscores"):
        PostgresOutbox("host=/nowhere", table=table)


def test_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    actual = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "psycopg":
            raise ImportError("No module named 'psycopg'")
        return actual(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(errors.MissingDependency, match=r"pip install 'harebell\[postgres\]'"):
        PostgresOutbox("")


def test_the_example_of_the_guide(outbox: PostgresOutbox, db: Any, postgres_database: str) -> None:
    (example,) = re.findall(r"```python\n([^`]*PostgresOutbox[^`]*)```", GUIDE.read_text())
    assert example.count("host=db.example dbname=shop user=shop") == 2
    db.execute("CREATE TABLE orders (what text)")
    db.commit()
    names: dict[str, Any] = {}
    exec(example.replace("host=db.example dbname=shop user=shop", postgres_database), names)
    names["outbox"].close()
    assert db.execute("SELECT what FROM orders").fetchall() == [("tea",)]
    assert outbox.waiting() == 1
