"""The tables of a triage, on small literal DataFrames, with exact rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from harebell.spark.jobs import deadletters
from harebell.spark.jobs.deadletters.redriving import Target, plan_of, selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "routing_key STRING, headers STRING, body BINARY"


def death(queue: str, reason: str, time: str, count: int = 1, exchange: str = "orders", key: str = "eu.new") -> Any:
    return {
        "count": count, "reason": reason, "queue": queue, "exchange": exchange, "routing-keys": [key], "time": time,
    }  # fmt: skip


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


ONCE = {
    "x-death": [death("work", "rejected", "2026-01-05T12:00:00Z")],
    "x-first-death-queue": "work", "x-first-death-reason": "rejected", "x-first-death-exchange": "orders",
}  # fmt: skip
# Rejected from work, expired in the retry queue, rejected from work again: the repeated death comes to the front.
AROUND = {
    "x-death": [
        death("work", "rejected", "2026-01-05T11:00:00Z", 2),
        death("retry", "expired", "2026-01-05T11:00:30Z", exchange="retry", key="work"),
    ],
    "x-first-death-queue": "work", "x-first-death-reason": "rejected", "x-first-death-exchange": "orders",
    "x-last-death-queue": "work", "x-last-death-reason": "rejected", "x-last-death-exchange": "retry",
    "x-redriven": 1,
}  # fmt: skip
# As it comes out of a stream queue of RabbitMQ 3.10, which drops tables.
FLAT = {"x-first-death-queue": "work", "x-first-death-reason": "maxlen", "x-first-death-exchange": ""}

LETTERS = [
    ("dead", ONCE, b'{"id": 1, "total": 2.5}'),
    ("dead", ONCE, b'{"id": 2, "total": 10}'),
    ("dead", AROUND, b"order 4711 failed at 2026-01-05T10:00:00Z"),
    ("work", FLAT, b"\xff\xd8\xff\xe0" + b"x" * 2000),
    ("dead", None, b""),
    ("dead", {"x-death": "not a history"}, b"order 12 failed at 2026-01-05T10:00:59Z"),
]


@pytest.fixture(scope="module")
def dead(spark: SparkSession) -> DataFrame:
    rows = [(key, None if headers is None else json.dumps(headers), body) for key, headers, body in LETTERS]
    return deadletters.dead_letters(spark.createDataFrame(rows, SCHEMA)).cache()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_the_ends_of_a_history(dead: DataFrame) -> None:
    columns = (
        "first_reason", "first_queue", "first_exchange", "first_key", "first_time", "last_reason", "last_queue",
        "last_exchange", "last_time", "died", "cycled", "redriven", "bytes",
    )  # fmt: skip
    noon, eleven = at("2026-01-05 12:00:00"), at("2026-01-05 11:00:00")
    once = ("rejected", "work", "orders", "eu.new", noon, "rejected", "work", "orders", noon, 1, False, 0)
    assert rows(dead.select(*columns)) == [
        (*once, 23),
        (*once, 22),
        ("rejected", "work", "orders", "eu.new", eleven, "rejected", "work", "retry", at("2026-01-05 11:00:30"), 3,
         True, 1, 41),
        ("maxlen", "work", "", "work", None, "maxlen", "work", "", None, 0, False, 0, 2004),
        (None, None, None, "dead", None, None, None, None, None, 0, False, 0, 0),
        (None, None, None, "dead", None, None, None, None, None, 0, False, 0, 39),
    ]  # fmt: skip


def test_reasons(dead: DataFrame) -> None:
    assert rows(deadletters.reasons(dead)) == [
        ("rejected", "work", 3, 4, at("2026-01-05 11:00:00"), at("2026-01-05 12:00:00")),
        (None, None, 2, 0, None, None),
        ("expired", "retry", 1, 1, at("2026-01-05 11:00:30"), at("2026-01-05 11:00:30")),
        ("maxlen", "work", 1, 1, None, None),
    ]


def test_cycles_and_origins(dead: DataFrame) -> None:
    assert rows(deadletters.cycles(dead)) == [("work", 1, 2, 2)]
    assert rows(deadletters.origins(dead, 2)) == [("orders", "eu.new", 3, 86), (None, "dead", 2, 39)]


def test_patterns(dead: DataFrame) -> None:
    assert rows(deadletters.patterns(dead, 10)) == [
        ("OBJECT<id: NUMBER, total: NUMBER>", 2, 45, ["rejected"], '{"id": 1, "total": 2.5}'),
        ("order <n> failed at <time>", 2, 80, ["rejected"], "order 12 failed at 2026-01-05T10:00:59Z"),
        ("(empty)", 1, 0, [], ""),
        ("binary ffd8ffe0", 1, 2004, ["maxlen"], None),
    ]


def test_histograms(dead: DataFrame) -> None:
    assert rows(deadletters.ages(dead, datetime(2026, 1, 5, 12, 0, 30, tzinfo=UTC))) == [
        ("under 1 minute", 2), ("under 1 hour", 0), ("under 1 day", 1), ("under 7 days", 0), ("under 30 days", 0),
        ("30 days and more", 0), ("not known", 3),
    ]  # fmt: skip
    assert rows(deadletters.sizes(dead)) == [
        ("up to 100 B", 5), ("up to 1 KiB", 0), ("up to 10 KiB", 1), ("up to 100 KiB", 0), ("up to 1 MiB", 0),
        ("over 1 MiB", 0), ("not known", 0),
    ]  # fmt: skip


def test_the_triage_has_it_all(spark: SparkSession, dead: DataFrame) -> None:
    found = deadletters.triage(dead.select("routing_key", "headers", "body"), datetime(2026, 1, 6, tzinfo=UTC), top=1)
    assert found.summary == {
        "messages": 6, "bytes": 2129, "unknown": 2, "cycled": 1, "redriven": 1, "first": at("2026-01-05 11:00:00"),
        "last": at("2026-01-05 12:00:00"), "median_bytes": 31.0, "p95_bytes": pytest.approx(1513.25),
        "largest_bytes": 2004,
    }  # fmt: skip
    assert found.unit == "MINUTE"
    assert found.timeline == [
        {"time": at("2026-01-05 11:00:00"), "reason": "rejected", "messages": 1},
        {"time": at("2026-01-05 12:00:00"), "reason": "rejected", "messages": 2},
    ]
    assert [row["pattern"] for row in found.patterns] == ["OBJECT<id: NUMBER, total: NUMBER>"]
    assert set(found.as_dict()) >= {"summary", "reasons", "origins", "cycles", "patterns", "ages", "sizes"}


def test_a_queue_without_messages(spark: SparkSession) -> None:
    found = deadletters.triage(spark.createDataFrame([], SCHEMA), datetime(2026, 1, 6, tzinfo=UTC))
    assert (found.summary["messages"], found.reasons, found.patterns, found.timeline) == (0, [], [], [])
    assert len(found.ages) == 7


def test_a_plan_for_a_redrive(spark: SparkSession, dead: DataFrame) -> None:
    numbered = dead.selectExpr("*", "CAST(sha1(body) AS BINARY) AS digest", "CAST(bytes AS BIGINT) AS position")
    mine = selection(numbered, reason="rejected", queue="work")
    assert (plan_of(mine).places(), plan_of(mine).spent) == ({("orders", "eu.new"): 3}, 0)
    assert plan_of(selection(numbered, reason="expired", queue="work")).chosen == {}, "not of one and the same death"
    assert plan_of(mine, limit=2, max_redrives=1).messages == 2
    assert plan_of(mine, max_redrives=1).spent == 1
    everything = plan_of(numbered, Target("queue"))
    assert (everything.places(), everything.homeless) == ({("", "work"): 4}, 2)
    assert plan_of(selection(numbered, where="text LIKE 'order%'"), Target("queue")).places() == {("", "work"): 1}
    assert plan_of(selection(numbered, queue="it's \\ odd")).chosen == {}
    twins = plan_of(numbered.withColumn("digest", numbered.digest.substr(0, 0)), Target(exchange="x"))
    assert (twins.messages, len(twins.chosen)) == (6, 1)
