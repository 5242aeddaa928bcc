"""Attempts at a partition that exactly once is promised for, without Spark: retried, overtaken, late, in any order."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage

from harebell import errors
from harebell.broker import Broker
from harebell.broker.node import DEFAULT_LIMITS
from harebell.client.blocking import sessions
from harebell.spark.options import sink_options
from harebell.spark.sink import session_publisher, writer
from harebell.spark.sink.ledger import Place
from harebell.spark.sink.session_publisher import clean_up, has_sessions
from harebell.spark.sink.writer import Published, resolved
from harebell.testing import EmbeddedBroker
from harebell.testing.rabbitmq import RabbitMQ
from tests.spark.sink.attempts import BODIES, Died, attempt, batches, bodies_in, cut_short, rows_of

ROWS = 3000
_names = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(lambda: Broker(data=folder)) as server:
        yield server


@pytest.fixture
def control(server: EmbeddedBroker) -> Iterator[sessions.Session]:
    with sessions.connect(server.url, timeout=60) as connection, connection.session() as session:
        yield session


@pytest.fixture
def queue(control: sessions.Session) -> str:
    name = f"target.{next(_names)}"
    control.queue_declare(name, durable=True)
    return name


@pytest.fixture
def place(queue: str) -> Place:
    return Place(f"query-{queue}", 7, 3)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_publisher, "BLOCK_ROWS", 400)
    monkeypatch.setattr(session_publisher, "WATCH_SECONDS", 0.01)


def later(place: Place) -> Place:
    return Place(place.query, place.batch + 1, place.partition)


def test_a_second_attempt_finds_everything_there(server: EmbeddedBroker, queue: str, place: Place) -> None:
    rows = rows_of(ROWS)
    assert attempt(server.url, queue, place, batches(rows)) == {"confirmed": ROWS}
    assert attempt(server.url, queue, place, batches(rows, 250)) == {"confirmed": ROWS, "recognised": ROWS}
    assert bodies_in(server.url, queue) == rows


@pytest.mark.parametrize("order", ["same", "reversed", "shuffled"])
@pytest.mark.parametrize("dies", [[1], [399, 400, 401], [2999], [1700, 900, 2500]])
def test_attempts_that_die(server: EmbeddedBroker, queue: str, place: Place, dies: list[int], order: str) -> None:
    rows = rows_of(ROWS)
    for number, rows_read in enumerate([*dies, None]):
        mine = list(rows)
        if order == "reversed" and number % 2:
            mine.reverse()
        elif order == "shuffled":
            random.Random(number).shuffle(mine)
        found = batches(mine, 700 - 150 * number)
        if rows_read is not None:
            with pytest.raises(Died):
                attempt(server.url, queue, place, cut_short(found, rows_read))
        else:
            assert attempt(server.url, queue, place, found)["confirmed"] == ROWS
    there = bodies_in(server.url, queue)
    assert sorted(there) == sorted(rows)
    if order == "same":
        assert there == rows


def test_equal_rows_are_as_many_as_they_are(server: EmbeddedBroker, queue: str, place: Place) -> None:
    rows = [b"a", b"b", b"a", b"a", b"c", b"b"] * 200
    with pytest.raises(Died):
        attempt(server.url, queue, place, cut_short(batches(rows, 100), 500))
    assert attempt(server.url, queue, place, batches(sorted(rows), 77))["confirmed"] == len(rows)
    assert sorted(bodies_in(server.url, queue)) == sorted(rows)


def test_rows_that_have_an_id_are_known_by_it_alone(server: EmbeddedBroker, queue: str, place: Place) -> None:
    ids: list[str | None] = [None if number % 10 == 9 else f"id {number}" for number in range(1000)]
    for attempts in range(3):
        rows = [
            b"fixed %d" % number if name is None else b"%d %d" % (attempts, number) for number, name in enumerate(ids)
        ]
        found = batches(rows, 300, ids)
        if attempts < 2:
            with pytest.raises(Died):
                attempt(server.url, queue, place, cut_short(found, 450 * (attempts + 1)))
        else:
            attempt(server.url, queue, place, found)
    there = bodies_in(server.url, queue)
    assert [int(body.split()[1]) for body in there] == list(range(1000))
    assert len({body.split()[0] for body in there}) > 2


def test_generated_ids_are_those_of_the_first_attempt(
    server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place
) -> None:
    rows = rows_of(1000)
    with pytest.raises(Died):
        attempt(server.url, queue, place, cut_short(batches(rows), 500), ids="auto")
    random.Random(1).shuffle(rows)
    attempt(server.url, queue, place, batches(rows), ids="auto")
    ids = [copy.properties.message_id for copy in control.copies(queue)]
    assert sorted(ids, key=str) == sorted(f"prefix/{number}" for number in range(1000))


def test_a_later_batch_ends_the_earlier_one(
    server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place
) -> None:
    rows = rows_of(1000)
    attempt(server.url, queue, place, batches(rows))
    assert control.message_count(place.ledger) == 2
    attempt(server.url, queue, later(place), batches(rows[:100]))
    assert control.message_count(place.ledger) == 1
    with control.connection.session(place.session, timeout=0, force=True) as session:
        assert not session.resumed
    with pytest.raises(errors.SessionStateLost, match="is over: batch 8 has begun"):
        attempt(server.url, queue, place, batches(rows))
    assert bodies_in(server.url, queue) == [*rows, *rows[:100]]


def test_no_rows_open_nothing(queue: str, place: Place) -> None:
    assert attempt("amqp://127.0.0.1:1/", queue, place, batches([])) == {}


def test_an_attempt_that_is_overtaken_waits_for_the_other(server: EmbeddedBroker, queue: str, place: Place) -> None:
    rows = rows_of(ROWS)
    overtaken, go_on = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def slowly() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(rows)):
            if number == 3:
                overtaken.set()
                assert go_on.wait(60)
            yield batch

    def first() -> None:
        try:
            attempt(server.url, queue, place, slowly())
        except errors.HarebellError as error:
            failures.append(error)

    def second() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(list(reversed(rows)))):
            if number == 2:
                go_on.set()
                while not waiting.is_set():
                    assert thread.is_alive()
                    waiting.wait(0.01)
            yield batch

    waiting = threading.Event()
    handler = Told("waiting for its end", waiting)
    logging.getLogger("harebell.spark").addHandler(handler)
    thread = threading.Thread(target=first)
    thread.start()
    assert overtaken.wait(60)
    assert attempt(server.url, queue, place, second())["confirmed"] == ROWS
    thread.join(60)
    logging.getLogger("harebell.spark").removeHandler(handler)
    assert [type(error) for error in failures] == [errors.SessionDetached]
    assert sorted(bodies_in(server.url, queue)) == sorted(rows)


class Told(logging.Handler):
    """Sets an event when a text is logged."""

    def __init__(self, text: str, event: threading.Event) -> None:
        super().__init__()
        self._text, self._event = text, event

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._event.set()


@pytest.mark.parametrize("go_on", ["true", "false"])
def test_rows_that_are_not_the_same(server: EmbeddedBroker, queue: str, place: Place, go_on: str) -> None:
    with pytest.raises(Died):
        attempt(server.url, queue, place, cut_short(batches(rows_of(1000)), 500))
    before = bodies_in(server.url, queue)
    others = [b"other %d" % number for number in range(1000)]
    if go_on == "true":
        with pytest.raises(errors.SessionStateLost, match="rows of an earlier attempt are not among those of this one"):
            attempt(server.url, queue, place, batches(others))
        assert bodies_in(server.url, queue) == before
        return
    attempt(server.url, queue, place, batches(others), failOnLostState="false")
    assert sorted(bodies_in(server.url, queue)) == sorted([*before, *others])


@pytest.mark.parametrize("lost", ["session", "ledger"])
def test_what_the_broker_has_forgotten(
    server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place, lost: str
) -> None:
    rows = rows_of(1000)
    with pytest.raises(Died):
        attempt(server.url, queue, place, cut_short(batches(rows), 500))
    before = bodies_in(server.url, queue)
    if lost == "session":
        control.connection.session(place.session, force=True).close()
        said = "whose session the broker no longer has: up to 500 messages"
    else:
        control.queue_purge(place.ledger)
        said = "has lost its records"
    with pytest.raises(errors.SessionStateLost, match=said):
        attempt(server.url, queue, place, batches(rows))
    assert bodies_in(server.url, queue) == before
    attempt(server.url, queue, place, batches(rows), failOnLostState="false")
    assert sorted(bodies_in(server.url, queue)) == sorted([*before, *rows])
    assert attempt(server.url, queue, place, batches(rows))["recognised"] == 1000


def test_a_broker_that_is_restarted_between_and_in_the_middle(tmp_path: Path, place: Place) -> None:
    rows = rows_of(ROWS)
    with EmbeddedBroker(lambda: Broker(data=tmp_path)) as server:
        with sessions.connect(server.url) as connection, connection.session() as session:
            session.queue_declare("q", durable=True)

        def restarting(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in found:
                yield batch
                server.restart()

        for dies in (1, 900, 1800):
            with pytest.raises(Died):
                attempt(server.url, "q", place, restarting(cut_short(batches(rows), dies)))
            rows.reverse()
        assert attempt(server.url, "q", place, restarting(batches(rows)))["confirmed"] == ROWS
        assert sorted(bodies_in(server.url, "q")) == sorted(rows)


def test_what_reaches_no_queue(server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place) -> None:
    """It fails, until there is a queue; what was there meanwhile is not doubled."""
    exchange = f"{queue}.exchange"
    control.exchange_declare(exchange, "topic", durable=True)
    rows = rows_of(500)
    for _ in range(2):
        with pytest.raises(errors.Unroutable, match="of 500 messages reached no queue"):
            attempt(server.url, queue, place, batches(rows), exchange=exchange)
    control.queue_bind(queue, exchange, "#")
    assert attempt(server.url, queue, place, batches(rows), exchange=exchange)["confirmed"] == 500
    assert attempt(server.url, queue, place, batches(rows), exchange=exchange)["recognised"] == 500
    assert sorted(bodies_in(server.url, queue)) == sorted(rows)


@pytest.mark.parametrize("mandatory", ["true", "false"])
def test_what_reaches_no_queue_is_dropped(server: EmbeddedBroker, queue: str, place: Place, mandatory: str) -> None:
    options = {"mandatory": mandatory} | ({"onUnroutable": "drop"} if mandatory == "true" else {})
    counts = attempt(server.url, f"{queue}.none", place, batches(rows_of(100)), **options)
    assert counts == ({"unroutable dropped": 100, "confirmed": 0} if mandatory == "true" else {"confirmed": 100})
    again = attempt(server.url, f"{queue}.none", place, batches(rows_of(100)), **options)
    assert again == {"confirmed": 100, "recognised": 100}


def test_what_reaches_no_queue_goes_elsewhere(
    server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place
) -> None:
    exchange = f"{queue}.strays"
    control.exchange_declare(exchange, "fanout", durable=True)
    options = {"onUnroutable": "alternate", "alternateExchange": exchange, "ids": "auto"}
    with pytest.raises(errors.Unroutable, match="alternate messages go"):
        attempt(server.url, f"{queue}.none", place, batches(rows_of(300)), **options)
    control.queue_bind(queue, exchange, "")
    counts = attempt(server.url, f"{queue}.none", place, batches(rows_of(300)), **options)
    assert counts["confirmed"] == counts["unroutable diverted"] == 300
    ids = {copy.body: copy.properties.message_id for copy in control.copies(queue)}
    assert ids == {body: f"prefix/{number}" for number, body in enumerate(rows_of(300))}
    again = attempt(server.url, f"{queue}.none", place, batches(rows_of(300)), **options)
    assert again == {"confirmed": 300, "recognised": 300}
    assert control.message_count(queue) == 300


def test_a_queue_that_is_full(server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place) -> None:
    full = f"{queue}.full"
    limits = {"x-max-length": 100, "x-overflow": "reject-publish"}
    control.queue_declare(full, durable=True, arguments=limits)
    with pytest.raises(errors.Nacked, match="a queue is full"):
        attempt(server.url, full, place, batches(rows_of(250)))
    assert control.message_count(full) == 100
    counts = attempt(server.url, full, place, batches(rows_of(250)), onNack="drop")
    assert counts["nacked dropped"] == 150
    assert counts["recognised"] == 100
    assert bodies_in(server.url, full) == rows_of(100)


def test_a_queue_that_is_full_for_a_while(
    server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place
) -> None:
    full = f"{queue}.full"
    control.queue_declare(full, durable=True, arguments={"x-max-length": 100, "x-overflow": "reject-publish"})
    stop, found = threading.Event(), []

    def drain() -> None:
        with sessions.connect(server.url) as connection, connection.session() as session:
            while not stop.is_set() or session.message_count(full):
                if (delivery := session.get(full)) is not None:
                    found.append(delivery.body)
                    delivery.accept()

    thread = threading.Thread(target=drain)
    thread.start()
    counts = attempt(server.url, full, place, batches(rows_of(250)), onNack="retry")
    stop.set()
    thread.join(60)
    assert counts["confirmed"] == 250
    assert counts["nacked retried"] >= 150
    assert sorted(found) == sorted(rows_of(250))


def test_a_full_queue_gives_up(server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place) -> None:
    full = f"{queue}.full"
    control.queue_declare(full, durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    with pytest.raises(errors.Nacked, match=r"it did so for 0\.2 s"):
        attempt(server.url, full, place, batches(rows_of(5)), onNack="retry", retryTimeout="0.2")
    options = {"onNack": "alternate", "alternateExchange": "amq.fanout"}
    control.queue_bind(queue, "amq.fanout", "")
    assert attempt(server.url, full, place, batches(rows_of(5)), **options)["nacked diverted"] == 5
    assert sorted(bodies_in(server.url, queue)) == rows_of(5)


def test_a_missing_exchange(server: EmbeddedBroker, queue: str, place: Place) -> None:
    with pytest.raises(errors.NotFound):
        attempt(server.url, queue, place, batches(rows_of(5)), exchange="no such exchange")


def test_a_limited_rate(server: EmbeddedBroker, queue: str, place: Place) -> None:
    assert attempt(server.url, queue, place, batches(rows_of(50)), maxRate="500")["confirmed"] == 50


def test_a_broker_with_an_alarm_is_waited_for(place: Place, tmp_path: Path) -> None:
    with EmbeddedBroker(lambda: Broker(data=tmp_path)) as server:
        with sessions.connect(server.url) as connection, connection.session() as session:
            session.queue_declare("q", durable=True)
        server.run(lambda broker: broker.node.raise_alarm("memory"))
        with pytest.raises(errors.DeadlineExceeded, match=r"no messages for 0.2 s \(option 'blockedTimeout'\).*alarm"):
            attempt(server.url, "q", place, batches(rows_of(3000)), blockedTimeout="0.2", timeout="30")
        server.run(lambda broker: broker.node.clear_alarm("memory"))
        assert attempt(server.url, "q", place, batches(rows_of(3000)))["confirmed"] == 3000
        assert sorted(bodies_in(server.url, "q")) == sorted(rows_of(3000))


def test_what_the_broker_grants(tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(lambda: Broker(data=tmp_path, limits=replace(DEFAULT_LIMITS, session_timeout=60))) as server:
        with sessions.connect(server.url) as connection, connection.session() as session:
            session.queue_declare("q", durable=True)
        with pytest.raises(
            errors.InvalidArgument, match="'sessionTimeout' is 90, but the broker keeps a session for 60"
        ):
            attempt(server.url, "q", place, batches(rows_of(5)), sessionTimeout="90")
        assert attempt(server.url, "q", place, batches(rows_of(5)))["confirmed"] == 5
        assert "the broker keeps a session for 60 s" in caplog.text
    with EmbeddedBroker(lambda: Broker(limits=replace(DEFAULT_LIMITS, max_sessions=0))) as server:
        with pytest.raises(errors.ResourceError, match="max_sessions"):
            attempt(server.url, "q", place, batches(rows_of(5)))


def test_a_ledger_that_somebody_writes_to(
    server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place
) -> None:
    attempt(server.url, queue, place, batches(rows_of(5)))
    control.publish(b"what is this", "", place.ledger)
    with pytest.raises(errors.InvalidArgument, match=r"the ledger of a Spark query: .* no record of this sink"):
        attempt(server.url, queue, place, batches(rows_of(5)))


def test_cleaning_up(server: EmbeddedBroker, control: sessions.Session, queue: str, place: Place) -> None:
    options = sink_options({"url": server.url, "exchange": "", "routingKey": queue, "exactlyOnce": "sessions"})
    attempt(server.url, queue, place, batches(rows_of(5)))
    clean_up([place, later(place)], options, 30)
    assert control.queue_query(place.ledger) is None
    with control.connection.session(place.session, timeout=0, force=True) as session:
        assert not session.resumed
    clean_up([], options, 30)


@pytest.mark.parametrize("fails", [False, True])
def test_a_write_that_is_over_cleans_up(
    server: EmbeddedBroker, control: sessions.Session, queue: str, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    options = sink_options({"url": server.url, "exchange": "", "routingKey": queue, "exactlyOnce": "auto"})
    write = writer.Writer(options, BODIES)
    assert resolved(options).exactly_once == "sessions"
    published: list[WriterCommitMessage | None] = []
    for partition in range(3):
        monkeypatch.setattr(writer, "_task", lambda partition=partition: SimpleNamespace(partitionId=lambda: partition))
        published.append(write.write(batches(rows_of(5 * partition))))
    ledgers = [Place(write._write_id, 0, partition).ledger for partition in range(3)]
    assert [control.queue_query(ledger) is None for ledger in ledgers] == [True, False, False]
    if fails:
        write.abort([published[0], None, published[2]])
    else:
        write.commit(published)
    assert [control.queue_query(ledger) for ledger in ledgers] == [None] * 3
    assert len(bodies_in(server.url, queue)) == 15


def test_a_write_without_sessions_asks_for_none() -> None:
    write = writer.Writer(sink_options({"url": "amqp://127.0.0.1:1/", "exchange": "", "routingKey": "q"}), BODIES)
    write.commit([Published({}), None])
    write.abort([Published({}), None])


def test_without_sessions_it_is_at_least_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_publisher, "has_sessions", lambda options: False)
    url = "amqp://127.0.0.1:1/without"
    assert resolved(sink_options({"url": url, "exactlyOnce": "auto"})).exactly_once == "none"
    assert resolved(sink_options({"url": url})).exactly_once == "none"


def test_cleaning_up_may_fail(caplog: pytest.LogCaptureFixture, place: Place) -> None:
    url = "amqp://127.0.0.1:1/"
    options = sink_options(
        {"url": url, "exchange": "", "routingKey": "q", "exactlyOnce": "sessions", "retryTimeout": "0"}
    )
    clean_up([place], options, 0)
    assert "could not be removed" in caplog.text


def test_whether_a_broker_has_sessions(server: EmbeddedBroker) -> None:
    assert has_sessions(sink_options({"url": server.url, "exactlyOnce": "auto"}))


@pytest.mark.rabbitmq
def test_rabbitmq_has_none(rabbitmq: RabbitMQ) -> None:
    url = rabbitmq.url
    assert not has_sessions(sink_options({"url": url, "exactlyOnce": "auto"}))
    with pytest.raises(errors.InvalidArgument, match=r"needs a broker that speaks AMQP 0-10.*exactlyOnce=none"):
        has_sessions(sink_options({"url": url, "exactlyOnce": "sessions"}))
