"""`harebell spark traffic`: from the firehose of both brokers, from archives, to the page and the files."""

from __future__ import annotations

import csv
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell.cli.main import application
from harebell.cli.spark.traffic import length
from harebell.client.messages import Message
from harebell.errors import InvalidArgument
from harebell.spark.jobs.traffic.event_tables import TRACE, events, talkers
from harebell.spark.jobs.traffic.firehose import firehose_schema, watch
from tests.cli.html.checker import checked
from tests.spark.conftest import Broker
from tests.spark.jobs.commands import Command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

spark_test = pytest.mark.spark


@pytest.fixture
def firehose(request: pytest.FixtureRequest, broker: Broker) -> Any:
    """Switched on for the test; by name of the broker."""
    if "rabbitmq" in request.node.name:
        name = next(name for name in ("rabbitmq4_server", "rabbitmq_server") if name in request.node.name)
        server = request.getfixturevalue(name)
        server.evaluate('rabbit_trace:start(<<"/">>)')
        yield
        server.evaluate('rabbit_trace:stop(<<"/">>)')
    else:
        server = request.getfixturevalue("harebell_server")
        server.set_tracing("/", True)
        yield
        server.set_tracing("/", False)


@spark_test
def test_the_firehose_live(broker: Broker, firehose: None, spark: SparkSession, tmp_path: Path) -> None:
    work = broker.queue("classic")
    watching, stop = threading.Event(), threading.Event()

    def report(count: int) -> None:
        if count >= 10:
            stop.set()

    def publish() -> None:
        watching.wait(60)
        ms = int(datetime.now(UTC).timestamp() * 1000)
        broker.publish(work, [Message(b"x" * n, headers={"timestamp_in_ms": ms}) for n in range(1, 6)])
        broker.reject_all(work, 5)

    thread = threading.Thread(target=publish)
    thread.start()
    assert watch(broker.url, 60.0, tmp_path, progress=report, started=watching.set, stop=stop) == 10
    thread.join()
    rows = events(spark.read.schema(firehose_schema()).parquet(str(tmp_path)))
    kinds = {row.kind: row["count"] for row in rows.groupBy("kind").count().collect()}
    assert kinds == {"publish": 5, "deliver": 5}
    (queue,) = talkers(rows, "queue", 9).collect()
    assert (queue.name, queue.messages, queue.bytes) == (work, 5, 15)
    assert 0 <= queue.p95_latency < 60_000
    (exchange,) = talkers(rows, "exchange", 9).collect()
    assert (exchange.name, exchange.messages, exchange.bytes) == ("", 5, 15)
    assert exchange.p95_latency == queue.p95_latency


@spark_test
def test_an_archive_in_every_form(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    copies = json.dumps({"exchange_name": "trace.me", "routing_keys": ["k"], "timestamp_in_ms": 1})
    rows: list[tuple[Any, ...]] = [
        ("q", "orders", f"eu.{n % 3}", None, noon + timedelta(seconds=n), b"12345") for n in range(30)
    ]
    rows += [("q", TRACE, "deliver.w", copies, None, b"1"), ("q", "orders", "eu.0", None, None, b"")]
    schema = "queue STRING, exchange STRING, routing_key STRING, headers STRING, timestamp TIMESTAMP, body BINARY"
    archive = tmp_path / "archive"
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(archive))
    command = Command(spark, monkeypatch)
    out, report, tables = tmp_path / "out.json", tmp_path / "report.html", tmp_path / "csv"
    status = command(
        "spark", "traffic", "--archive", archive, "--by", "pattern", "--pattern", "eu.1", "--pattern", "eu.#",
        "--window", "10s", "--gap", "2s", "--capacity", "--consumer-rate", "0.5", "--since", "2026-01-05",
        "--json", out, "--report", report, "--csv", tables,
    )  # fmt: skip
    assert status == 0
    found = json.loads(out.read_text())
    assert (found["events"], found["untimed"], found["window"]) == (30, 0, 10)
    assert [(row["start"], row["name"], row["messages"]) for row in found["windows"]] == [
        ("2026-01-05 12:00:00", "eu.#", 7), ("2026-01-05 12:00:00", "eu.1", 3),
        ("2026-01-05 12:00:10", "eu.#", 6), ("2026-01-05 12:00:10", "eu.1", 4),
        ("2026-01-05 12:00:20", "eu.#", 7), ("2026-01-05 12:00:20", "eu.1", 3),
    ]  # fmt: skip
    assert [row["name"] for row in found["talkers"]["exchange"]] == ["orders"]
    assert (found["gaps"][0]["name"], found["gaps"][0]["seconds"]) == ("eu.1", 3.0)
    assert found["arrivals"]["p99"] == 1.0
    assert max(row["depth"] for row in found["backlog"]) == 15.0
    assert found["drained"] == 30.0
    assert found["daily"] == [{"day": "2026-01-05", "messages": 30, "bytes": 150}]
    text = " ".join(checked(report.read_text()).text)
    for part in ("archive", "eu.#", "Silences", "Capacity", "Messages a second"):
        assert part in text
    with (tables / "daily.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"day": "2026-01-05", "messages": "30", "bytes": "150"}]
    with pytest.raises(InvalidArgument, match=r"condition 'nosuch > 1'.*nosuch"):
        command("spark", "traffic", "--archive", archive, "--where", "nosuch > 1")


@spark_test
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_the_command_watches_the_firehose(
    broker: Broker, firehose: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    work, done = broker.queue("classic"), threading.Event()

    def publish() -> None:
        while not done.wait(0.02):
            broker.numbered(work, 1)

    thread = threading.Thread(target=publish)
    thread.start()
    out = tmp_path / "out.json"
    command = Command(spark, monkeypatch)
    try:
        assert command("spark", "traffic", "--url", broker.url, "--watch", "1s", "--by", "queue", "--json", out) == 0
    finally:
        done.set()
        thread.join()
    found = json.loads(out.read_text())
    assert found["source"] == "the firehose, watched for 1 s"
    assert found["events"] > 0
    assert "events (the firehose, watched for 1 s)" in capsys.readouterr().err


@spark_test
def test_a_firehose_that_is_off_is_said(
    harebell_server: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert Command(spark, monkeypatch)("spark", "traffic", "--url", harebell_server.url, "--watch", "0.2s") == 0
    told = capsys.readouterr()
    assert "the firehose said nothing: is it on?" in told.out + told.err
    assert "0 events" in told.out + told.err


@spark_test
def test_rows_without_times_are_counted_and_said(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    schema = "queue STRING, exchange STRING, routing_key STRING, headers STRING, timestamp TIMESTAMP, body BINARY"
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [("q", "e", "k", None, noon, b""), ("q", "e", "k", None, None, b"")]
    archive = tmp_path / "archive"
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(archive))
    assert Command(spark, monkeypatch)("spark", "traffic", "--archive", archive) == 0
    told = capsys.readouterr().err
    assert "2 events" in told
    assert "1 of them have no time; they count for the talkers only" in told


def test_watching_nothing(harebell_server: Any, tmp_path: Path) -> None:
    assert watch(harebell_server.url, 0.1, tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a queue, or a folder"),
        (("q", "--watch", "5s"), "--watch is instead of"),
        (("--watch", "soon"), "--watch is 'soon'; it takes a time"),
        (("q", "--window", "0.5s"), "whole seconds"),
        (("q", "--window", "0s"), "it takes a time"),
        (("q", "--consumer-rate", "5"), "give --capacity too"),
    ],
)
def test_what_cannot_be_meant(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        application()(["spark", "traffic", *arguments], exit_on_error=False)


def test_lengths() -> None:
    assert [length("x", text) for text in ("90", "90s", "1.5m", "5min", "2h", "1d")] == [90, 90, 90, 300, 7200, 86_400]
