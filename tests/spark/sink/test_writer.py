"""A task of a write against real brokers, without Spark: what arrives, and what becomes of it on bad days."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from harebell import errors
from harebell.broker import Broker as HarebellBroker
from harebell.broker.node import DEFAULT_LIMITS
from harebell.client.blocking import connect
from harebell.spark.options import sink_options
from harebell.spark.sink import writer as sink
from harebell.spark.sink.writer import Published, publish, report
from harebell.testing import EmbeddedBroker, FaultProxy
from harebell.testing.rabbitmq import RabbitMQ
from tests.spark.conftest import DRAINED, Broker

SCHEMA = StructType([StructField("body", BinaryType())])
NO_EXCHANGE = ""


def batches(count: int, rows: int = 1000) -> Iterator[pa.RecordBatch]:
    """Bodies are the numbers of the rows."""
    for start in range(0, count, rows):
        bodies = [b"%d" % n for n in range(start, min(start + rows, count))]
        yield pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])


def cut_short(count: int, after: int) -> Iterator[pa.RecordBatch]:
    """As `batches`, by a task that fails after so many rows."""
    for n, batch in enumerate(batches(count, 1000)):
        if n * 1000 >= after:
            raise OSError("executor lost")
        yield batch


def write(url: str, queue: str, rows: Iterator[pa.RecordBatch], **options: str) -> Published:
    given = {"url": url, "exchange": NO_EXCHANGE, "routingKey": queue, "retryTimeout": "30", **options}
    return publish(rows, sink_options(given), SCHEMA, "query/0/0")


def drained(url: str, queue: str) -> list[tuple[str | None, bytes]]:
    """(message id, body) of all that the queue holds, in its order; it is empty after that."""
    found: list[tuple[str | None, bytes]] = []
    with connect(url, timeout=60) as connection, connection.channel() as channel:
        count = channel.message_count(queue)
        with channel.consume(queue, no_ack=True) as consumer:
            while len(found) < count:
                got = consumer.receive(timeout=60)
                assert got, f"{len(found)} of {count} came"
                found += [(delivery.properties.message_id, delivery.body) for delivery in got]
    return found


def numbered(count: int) -> list[tuple[str | None, bytes]]:
    return [(f"query/0/0/{n}", b"%d" % n) for n in range(count)]


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_all_rows_arrive_in_order(broker: Broker, kind: str) -> None:
    queue = broker.queue(kind)
    assert write(broker.url, queue, batches(4500), window="1500").counts == {"confirmed": 4500}
    assert drained(broker.url, queue) == numbered(4500)


# -- losses -----------------------------------------------------------------------------------------------------------


Cut = Callable[[FaultProxy], None]


def half_written(proxy: FaultProxy) -> None:
    proxy.cut_after(200_000, "to_server")


def after_the_first_confirm(proxy: FaultProxy) -> None:
    proxy.cut_after_frames(6, "to_client")  # five until confirms are on


def cut_while_writing(url: str, queue: str, cut: Cut, **options: str) -> Published:
    """Writes 6000 rows over a connection that is cut once."""
    host, _, port = url.rpartition("@")[2].partition("/")[0].partition(":")

    async def writing() -> Published:
        async with FaultProxy(host, int(port)) as proxy:
            through = url.replace(f"{host}:{port}", f"{proxy.host}:{proxy.port}")
            cut(proxy)
            return await asyncio.to_thread(write, through, queue, batches(6000), **options)

    return asyncio.run(writing())


@pytest.mark.parametrize("cut", [half_written, after_the_first_confirm])
def test_a_connection_cut_in_the_middle_loses_nothing(broker: Broker, cut: Cut) -> None:
    queue = broker.queue("classic")
    done = cut_while_writing(broker.url, queue, cut, window="2000")
    assert (done.count, 0 < done.counts["repeated"] <= 2000) == (6000, True)
    assert sorted(set(drained(broker.url, queue))) == sorted(numbered(6000))


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_broker_that_is_asked_to_drops_the_copies(broker: Broker) -> None:
    queue = broker.queue("classic", {"x-message-deduplication": True, "x-cache-size": 10_000})
    cut_while_writing(broker.url, queue, after_the_first_confirm, dedup="broker", window="2000")
    assert sorted(drained(broker.url, queue)) == sorted(numbered(6000))


def test_a_task_that_runs_again_gives_its_messages_the_same_ids(broker: Broker) -> None:
    queue = broker.queue("classic")
    with pytest.raises(OSError, match="executor lost"):
        write(broker.url, queue, cut_short(4000, after=3000))
    write(broker.url, queue, batches(4000))
    found = drained(broker.url, queue)
    assert len(found) > 4000
    assert sorted(set(found)) == sorted(numbered(4000))


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_copies_of_a_task_that_ran_again_are_dropped_by_the_queue(broker: Broker, kind: str) -> None:
    queue = broker.queue(kind, {"x-message-deduplication": True, "x-cache-size": 10_000})
    with pytest.raises(OSError, match="executor lost"):
        write(broker.url, queue, cut_short(4000, after=3000), dedup="broker")
    write(broker.url, queue, batches(4000), dedup="broker")
    assert drained(broker.url, queue) == numbered(4000)


def test_a_broker_that_restarts_in_the_middle(tmp_path: Path) -> None:
    with EmbeddedBroker(lambda: HarebellBroker(data=tmp_path)) as server:
        with connect(server.url) as connection, connection.channel() as channel:
            channel.queue_declare("q", durable=True)

        def restarting() -> Iterator[pa.RecordBatch]:
            for n, batch in enumerate(batches(6000)):
                if n == 3:
                    server.restart()
                yield batch

        assert write(server.url, "q", restarting()).count == 6000
        assert sorted(set(drained(server.url, "q"))) == sorted(numbered(6000))


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_missing_exchange(broker: Broker) -> None:
    with pytest.raises(errors.NotFound, match=r"no exchange 'spark.missing'"):
        write(broker.url, "q", batches(5000), exchange="spark.missing", retryTimeout="600")


def test_a_wrong_password(broker: Broker) -> None:
    with pytest.raises(errors.AccessRefused):
        write(broker.url.replace("guest:guest", "guest:wrong"), "q", batches(1), retryTimeout="600")


def test_an_exchange_that_may_not_be_published_to(broker: Broker) -> None:
    name = broker.queue("classic")
    with connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.exchange_declare(name, "fanout", internal=True)
        with pytest.raises(errors.AccessRefused):
            write(broker.url, "q", batches(1), exchange=name, retryTimeout="600")
        channel.exchange_delete(name)


def test_a_message_that_is_larger_than_the_broker_takes() -> None:
    limits = dataclasses.replace(DEFAULT_LIMITS, max_message_size=1000)
    with EmbeddedBroker(lambda: HarebellBroker(limits=limits)) as server:
        batch = pa.RecordBatch.from_arrays([pa.array([b"x" * 1001], pa.binary())], names=["body"])
        with pytest.raises(
            errors.PreconditionFailed, match="message size 1001 is larger than configured max size 1000"
        ):
            write(server.url, "q", iter([batch]), retryTimeout="600")


@pytest.mark.parametrize("on", ["harebell", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def test_a_message_of_20_megabytes(on: str, request: pytest.FixtureRequest) -> None:
    limits = dataclasses.replace(DEFAULT_LIMITS, max_message_size=32 << 20)
    server = EmbeddedBroker(lambda: HarebellBroker(limits=limits))
    try:
        url = request.getfixturevalue("rabbitmq_server").url if on == "rabbitmq" else None
        if url is None:
            server.start()
            url = server.url
        with connect(url, timeout=60) as connection, connection.channel() as channel:
            queue = channel.queue_declare(exclusive=True).name
            body = bytes(range(256)) * 80_000
            batch = pa.RecordBatch.from_arrays([pa.array([b"first", body, b"last"], pa.binary())], names=["body"])
            assert write(url, queue, iter([batch])).count == 3
            sizes = []
            while (delivery := channel.get(queue, no_ack=True)) is not None:
                sizes.append(len(delivery.body))
                assert delivery.body in (b"first", body, b"last")
            assert sizes == [5, 20_480_000, 4]
    finally:
        server.close()


# -- returns and nacks ------------------------------------------------------------------------------------------------


def addressed(rows: list[tuple[str, str]]) -> tuple[Iterator[pa.RecordBatch], StructType]:
    """Rows of body and routing key."""
    schema = StructType([StructField("body", StringType()), StructField("routing_key", StringType())])
    columns = {"body": [body for body, _ in rows], "routing_key": [key for _, key in rows]}
    return iter([pa.RecordBatch.from_pydict(columns)]), schema


def test_what_reaches_no_queue_fails_is_dropped_or_goes_elsewhere(broker: Broker) -> None:
    queue, lost = broker.queue("classic"), broker.queue("classic")
    rows = [("a", queue), ("b", "spark.nowhere"), ("c", queue), ("d", "spark.nowhere")]

    def done(**options: str) -> Published:
        iterator, schema = addressed(rows)
        return publish(iterator, sink_options({"url": broker.url, "exchange": "", **options}), schema, "p")

    with pytest.raises(errors.Unroutable, match="2 of 4 messages reached no queue"):
        done()
    assert done(onUnroutable="drop").counts == {"confirmed": 2, "unroutable dropped": 2}
    assert done(mandatory="false").counts == {"confirmed": 4}
    with connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.exchange_declare(lost, "fanout")
        channel.queue_bind(lost, lost)
        counts = done(onUnroutable="alternate", alternateExchange=lost).counts
        channel.exchange_delete(lost)
    assert counts == {"confirmed": 4, "unroutable diverted": 2}
    assert drained(broker.url, lost) == [("p/1", b"b"), ("p/3", b"d")]
    assert len(drained(broker.url, queue)) == 8


def test_what_a_full_queue_refuses_fails_is_dropped_or_tried_again(broker: Broker) -> None:
    queue = broker.queue("classic", {"x-max-length": 1, "x-overflow": "reject-publish"})
    write(broker.url, queue, batches(1))
    with pytest.raises(errors.Nacked, match="the broker refused 2 of 2 messages"):
        write(broker.url, queue, batches(2))
    with pytest.raises(errors.Nacked, match=r"it did so for 0.1 s"):
        write(broker.url, queue, batches(2), onNack="retry", retryTimeout="0.1")
    assert write(broker.url, queue, batches(2), onNack="drop").counts == {"confirmed": 0, "nacked dropped": 2}
    assert drained(broker.url, queue) == numbered(1)


# -- blocked ----------------------------------------------------------------------------------------------------------


def test_a_broker_with_an_alarm_is_waited_for() -> None:
    with EmbeddedBroker() as server:
        with connect(server.url) as connection, connection.channel() as channel:
            channel.queue_declare("q")
        server.run(lambda broker: broker.node.raise_alarm("memory"))
        with pytest.raises(errors.DeadlineExceeded, match=r"no messages for 0.2 s .*blockedTimeout.*: low on memory"):
            write(server.url, "q", batches(3000), blockedTimeout="0.2", timeout="30")
        with pytest.raises(errors.TransactionLost, match=r"no messages for 0.2 s .*blockedTimeout.*: low on memory"):
            write(server.url, "q", batches(10), blockedTimeout="0.2", timeout="30", transactions="partition")
        # Of those attempts a part has been written and waits in the broker for the end of the alarm.
        done: list[Published] = []
        writing = threading.Thread(target=lambda: done.append(write(server.url, "q", batches(3000), timeout="2")))
        writing.start()
        while not server.run(lambda broker: any(each.state == "blocked" for each in broker.node.connections)):
            pass
        server.run(lambda broker: broker.node.clear_alarm("memory"))
        writing.join(60)
        assert [each.count for each in done] == [3000]
        assert sorted(set(drained(server.url, "q"))) == sorted(numbered(3000))


@pytest.mark.rabbitmq
def test_a_rabbitmq_with_an_alarm_is_waited_for(any_rabbitmq: RabbitMQ) -> None:
    any_rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.000001)")
    try:
        with connect(any_rabbitmq.url, timeout=60) as connection, connection.channel() as channel:
            queue = channel.queue_declare(exclusive=True).name
            with pytest.raises(errors.DeadlineExceeded, match=r"blockedTimeout.*memory"):
                write(any_rabbitmq.url, queue, batches(3000), blockedTimeout="0.2")
    finally:
        any_rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.8)")


# -- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(broker: Broker) -> None:
    queue = broker.queue("classic")
    with pytest.raises(OSError, match="executor lost"):
        write(broker.url, queue, cut_short(4000, after=3000), transactions="partition")
    assert write(broker.url, queue, batches(4000), transactions="partition").counts == {"confirmed": 4000}
    assert drained(broker.url, queue) == numbered(4000)


def test_returns_of_a_transaction_come_with_its_commit(broker: Broker) -> None:
    queue = broker.queue("classic")
    rows = [("a", queue), ("b", "spark.nowhere"), ("c", queue)]
    given = {"url": broker.url, "exchange": "", "transactions": "partition"}
    iterator, schema = addressed(rows)
    with pytest.raises(errors.Unroutable, match="1 of 3 messages reached no queue; the others have taken effect"):
        publish(iterator, sink_options(given), schema, "p")
    iterator, schema = addressed(rows)
    done = publish(iterator, sink_options({**given, "onUnroutable": "drop"}), schema, "p")
    assert done.counts == {"confirmed": 2, "unroutable dropped": 1}
    assert [body for _, body in drained(broker.url, queue)] == [b"a", b"c"] * 2


def test_a_transaction_into_a_full_queue(broker: Broker) -> None:
    queue = broker.queue("classic", {"x-max-length": 10, "x-overflow": "reject-publish"})
    with pytest.raises(errors.Nacked, match=r"some of the 25 messages .*x-overflow=reject-publish.*have taken effect"):
        write(broker.url, queue, batches(25), transactions="partition")
    assert drained(broker.url, queue) == numbered(25)[:10]


def test_a_transaction_that_is_cut_leaves_nothing(broker: Broker) -> None:
    queue = broker.queue("classic")
    with pytest.raises(errors.TransactionLost):
        cut_while_writing(broker.url, queue, half_written, transactions="partition")
    assert drained(broker.url, queue) == []


# -- the driver -------------------------------------------------------------------------------------------------------


def test_the_driver_tells_the_totals(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "harebell.spark")
    report([Published({"confirmed": 3}), None, Published({"confirmed": 4, "repeated": 1})], "batch 7")
    report([Published({"confirmed": 1, "unroutable dropped": 2})], "batch 8")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "batch 7: 7 messages confirmed; 1 repeated"),
        ("WARNING", "batch 8: 1 messages confirmed; 2 unroutable dropped"),
    ]
    writer = sink.Writer(sink_options({"exchange": "", "routingKey": "k"}), SCHEMA)
    writer.commit([Published({"confirmed": 1})])
    writer.abort([None])
    assert "failed, and yet: 0 messages confirmed" in caplog.text
