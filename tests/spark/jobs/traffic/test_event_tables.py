"""Traffic by windows, talkers, gaps, anomalies and capacity: small literal DataFrames, exact rows."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.jobs.traffic import arrivals, event_tables, unusual_hours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = (
    "queue STRING, exchange STRING, routing_key STRING, headers STRING, timestamp TIMESTAMP, body BINARY, "
    "received TIMESTAMP"
)
EVENTS = "time TIMESTAMP, kind STRING, exchange STRING, routing_key STRING, queue STRING, bytes INT, latency DOUBLE"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def plain(moment: datetime) -> datetime:
    """As Spark gives it back: without a zone."""
    return moment.replace(tzinfo=None)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_events_of_rows_and_of_the_firehose(spark: SparkSession) -> None:
    ms = int(NOON.timestamp() * 1000) + 250
    trace = {"exchange_name": "orders", "routing_keys": ["eu.new", "cc"], "properties": {"timestamp": ms // 1000}}
    precise = {**trace, "properties": {"headers": {"timestamp_in_ms": ms}, "timestamp": 1}}
    given = [
        ("q", "orders", "eu.new", None, at(0), b"abc", None),
        ("q", "orders", "eu.new", json.dumps({"timestamp_in_ms": ms}), at(0), b"", at(2)),
        ("q", "", "q", "{}", None, b"x", at(5)),
        ("q", "", "q", None, None, b"x", None),
        ("watch", event_tables.TRACE, "publish.orders", json.dumps(trace), None, b"1234", at(1)),
        ("watch", event_tables.TRACE, "deliver.work.eu", json.dumps(precise), None, b"1234", at(1)),
        ("watch", event_tables.TRACE, "deliver.work.eu", json.dumps(trace), None, b"1234", None),
    ]
    assert rows(event_tables.events(spark.createDataFrame(given, ROWS))) == [
        (plain(at(0)), "message", "orders", "eu.new", "q", 3, None, False),
        (plain(at(0.25)), "message", "orders", "eu.new", "q", 0, 1750.0, False),
        (plain(at(5)), "message", "", "q", "q", 1, None, False),
        (None, "message", "", "q", "q", 1, None, False),
        (plain(at(1)), "publish", "orders", "eu.new", None, 4, None, False),
        (plain(at(1)), "deliver", "orders", "eu.new", "work.eu", 4, 750.0, False),
        (plain(at(0)), "deliver", "orders", "eu.new", "work.eu", 4, None, False),
    ]
    texts = [json.dumps({**trace, "properties": {"timestamp": number}}) for number in (ms, 2**63 - 1, -1)]
    far = [("watch", event_tables.TRACE, "publish.orders", text, None, b"", None) for text in texts]
    far.append(("q", "orders", "k", json.dumps({"timestamp_in_ms": 2**63 - 1}), None, b"", None))
    assert {row[0] for row in rows(event_tables.events(spark.createDataFrame(far, ROWS)))} == {None}
    kept = spark.sql(
        "SELECT 'q' queue, 'x' exchange, 'k' routing_key, CAST(NULL AS STRING) headers, t timestamp, binary('') body, "
        "timestamp'2026-01-06 00:00:00' archived_at FROM VALUES (NULL), (timestamp'2026-01-05 12:00:00') AS v(t)"
    )
    assert rows(event_tables.events(kept).select("time", "arrival")) == [
        (datetime(2026, 1, 6), True),
        (plain(at(0)), False),
    ]
    with pytest.raises(InvalidArgument, match="missing: headers, timestamp, body"):
        event_tables.events(spark.sql("SELECT '' queue, '' exchange, '' routing_key"))


@pytest.fixture(scope="module")
def seen(spark: SparkSession) -> DataFrame:
    """Two messages of an exchange a in a second, one of b a minute later; the first one delivered to two queues."""
    return spark.createDataFrame(
        [
            (at(0), "publish", "a", "eu.new", None, 10, None),
            (at(0.5), "publish", "a", "eu.old", None, 30, None),
            (at(0.75), "deliver", "a", "eu.new", "q1", 10, 100.0),
            (at(1.5), "deliver", "a", "eu.new", "q2", 10, 300.0),
            (at(60), "message", "b", "us", "q1", 20, None),
            (None, "message", "b", "us", "q1", 20, None),
        ],
        EVENTS,
    ).cache()


def test_windows(seen: DataFrame) -> None:
    first, second, third = plain(at(0)), plain(at(1)), plain(at(60))
    assert rows(event_tables.windows(seen, 1, "exchange")) == [
        (first, "a", 2, 40, 2.0, 10, 30, 30, 100.0, 100.0, 100.0),
        (second, "a", 0, 0, 0.0, None, None, None, 300.0, 300.0, 300.0),
        (third, "b", 1, 20, 1.0, 20, 20, 20, None, None, None),
    ]
    assert rows(event_tables.windows(seen, 60, "queue")) == [
        (first, "q1", 1, 10, 1 / 60, 10, 10, 10, 100.0, 100.0, 100.0),
        (first, "q2", 1, 10, 1 / 60, 10, 10, 10, 300.0, 300.0, 300.0),
        (third, "q1", 1, 20, 1 / 60, 20, 20, 20, None, None, None),
    ]


def test_patterns(seen: DataFrame) -> None:
    def names(frame: DataFrame) -> list[str]:
        return [row.pattern for row in frame.collect()]

    assert names(event_tables.with_pattern(seen)) == ["eu.#", "eu.#", "eu.#", "eu.#", "us", "us"]
    assert names(event_tables.with_pattern(seen, words=2))[:2] == ["eu.new", "eu.old"]
    assert names(event_tables.with_pattern(seen, words=0)) == ["#"] * 6
    odd = seen.sparkSession.sql("SELECT * FROM VALUES (''), ('.'), ('.a'), ('a.') AS v(routing_key)")
    assert names(event_tables.with_pattern(odd)) == ["", ".#", ".#", "a.#"]
    # The first that matches; "*" is one word.
    given = event_tables.with_pattern(seen, patterns=["*.new", "eu.#", "*.*.*"])
    assert names(given) == ["*.new", "eu.#", "*.new", "*.new", event_tables.OTHER, event_tables.OTHER]
    assert rows(event_tables.talkers(given, "pattern", 2))[0][:2] == (event_tables.OTHER, 2)


def test_talkers_and_latency(seen: DataFrame) -> None:
    assert rows(event_tables.talkers(seen, "queue", 5)) == [
        ("q1", 3, 0.75, 50, 20, 100.0, plain(at(0.75)), plain(at(60))),
        ("q2", 1, 0.25, 10, 10, 300.0, plain(at(1.5)), plain(at(1.5))),
    ]
    assert rows(event_tables.latency(seen)) == [(2, 100.0, 300.0, 300.0, 300.0)]


def test_gaps(spark: SparkSession) -> None:
    times = [("a", 0), ("a", 10), ("a", 100), ("b", 0), ("b", 31), ("c", 5)]
    seen = spark.createDataFrame([(at(s), "message", e, "", "", 1, None) for e, s in times], EVENTS)
    assert rows(event_tables.gaps(seen, "exchange", 30)) == [
        ("a", plain(at(10)), plain(at(100)), 90.0),
        ("b", plain(at(0)), plain(at(31)), 31.0),
    ]


def hours(counts: dict[tuple[int, int], int], name: str = "a") -> list[tuple[Any, ...]]:
    """Events by (day, hour) -> number, spread over the hour."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        (start + timedelta(days=day, hours=hour, seconds=i * 3000 / max(n, 1)), "message", name, "", "", 1, None)
        for (day, hour), n in counts.items()
        for i in range(n)
    ]


def test_planted_anomalies(spark: SparkSession) -> None:
    rng = random.Random(5)
    # Two hours a day, 100 messages give or take, for eight days; a spike, a slump and a silence are planted.
    counts = {(day, hour): 100 + rng.randint(-8, 8) for day in range(8) for hour in (9, 10)}
    counts |= {(5, 9): 190, (6, 10): 40, (7, 9): 0}
    counts[8, 0] = 1  # the hour in which the data ends is not peeked at
    found = rows(unusual_hours.anomalies(spark.createDataFrame(hours(counts), EVENTS), "exchange"))
    told = {(row[0].day - 1, row[0].hour): row[2:] for row in found}
    assert set(told) == {(5, 9), (6, 10), (7, 9)}
    assert [told[key][0] for key in ((5, 9), (6, 10), (7, 9))] == [190, 40, 0]
    assert [told[key][2] for key in ((5, 9), (6, 10), (7, 9))] == [5, 6, 7]
    assert told[5, 9][3] > 5
    assert told[7, 9][3] < told[6, 10][3] < -5


def test_calm_days_and_few_days_are_no_anomalies(spark: SparkSession) -> None:
    calm = {(day, hour): 20 + day % 3 for day in range(6) for hour in range(3)}
    few = {(day, 5): 1000 if day == 2 else 1 for day in range(3)}
    events = hours(calm) + hours(few, "b")
    assert rows(unusual_hours.anomalies(spark.createDataFrame(events, EVENTS), "exchange")) == []


def test_hours_are_complete(spark: SparkSession) -> None:
    seen = spark.createDataFrame([(at(s), "message", "a", "", "", 1, None) for s in (-1, 0, 1, 7200, 10_800)], EVENTS)
    noon = plain(NOON)
    assert sorted(rows(unusual_hours.hourly(seen, "exchange"))) == [
        (noon, "a", 2), (noon + timedelta(hours=1), "a", 0), (noon + timedelta(hours=2), "a", 1),
    ]  # fmt: skip


def lindley(counts: dict[int, int], rate: float) -> list[tuple[int, int, float]]:
    depth, told = 0.0, []
    for second in range(min(counts), max(counts) + 1):
        depth = max(0.0, depth + counts.get(second, 0) - rate)
        if second in counts:
            told.append((second, counts[second], depth))
    return told


def test_capacity(spark: SparkSession) -> None:
    rng = random.Random(7)
    base = int(NOON.timestamp())
    counts = {base + s: rng.randint(1, 9) for s in range(60) if rng.random() < 0.4} | {base + 20: 40, base + 100: 3}
    seen = spark.createDataFrame(
        [(at(s - base), "message", "a", "", "", 2, None) for s, n in counts.items() for _ in range(n)], EVENTS
    )
    seconds = arrivals.per_second(seen).cache()
    assert rows(seconds) == [(s, n, 2 * n) for s, n in sorted(counts.items())]
    whole = [counts.get(base + s, 0) for s in range(min(counts) - base, 101)]
    ((span, messages, mean, median, p95, p99, most),) = rows(arrivals.busy_seconds(seconds))
    assert (span, messages, most) == (len(whole), sum(whole), 40)
    assert mean == pytest.approx(sum(whole) / len(whole))
    assert (median, p95, p99) == tuple(pytest.approx(percentile(whole, p)) for p in (0.5, 0.95, 0.99))
    for rate in (0.5, 2.5, 1000.0):
        found = rows(arrivals.backlog(seconds, rate))
        expected = lindley(counts, rate)
        assert [row[:2] for row in found] == [row[:2] for row in expected]
        assert [row[2] for row in found] == pytest.approx([row[2] for row in expected])
    assert rows(arrivals.daily(seen)) == [(NOON.date(), sum(whole), 2 * sum(whole))]


def percentile(values: list[int], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def test_nothing_at_all(spark: SparkSession) -> None:
    seen = event_tables.with_pattern(spark.createDataFrame([], EVENTS))
    assert rows(event_tables.windows(seen, 1, "pattern")) == []
    assert rows(unusual_hours.anomalies(seen, "queue")) == []
    assert rows(arrivals.busy_seconds(arrivals.per_second(seen)))[0][:3] == (0, 0, 0.0)
