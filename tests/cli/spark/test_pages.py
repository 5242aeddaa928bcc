"""The pages of `harebell spark deadletters` and `traffic`: well formed, self-contained, complete, safe against data."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest

from harebell.cli.spark import deadletters_page, traffic_page
from harebell.spark.jobs.deadletters.triage_tables import Triage
from harebell.spark.jobs.traffic.report import Survey
from tests.cli.html.checker import checked

NOON = datetime(2026, 1, 5, 12)
EVIL = "<b>&evil</b>"

TRIAGE = Triage(
    summary={
        "messages": 12345, "bytes": 3_500_000, "unknown": 1, "cycled": 2, "redriven": 3, "first": NOON, "last": NOON,
        "median_bytes": 400.0, "p95_bytes": 2048.0, "largest_bytes": 3 << 30,
    },
    reasons=[
        {"reason": "rejected", "queue": EVIL, "messages": 10, "deaths": 11, "first": NOON, "last": NOON},
        {"reason": None, "queue": None, "messages": 1, "deaths": 0, "first": None, "last": None},
    ],
    origins=[
        {"first_exchange": "", "first_key": EVIL, "messages": 5, "bytes": 9},
        {"first_exchange": None, "first_key": None, "messages": 1, "bytes": 0},
    ],
    cycles=[{"queue": "round", "messages": 2, "most": 7, "deaths": 9}],
    patterns=[
        {"pattern": f"OBJECT<{EVIL}: NUMBER>", "messages": 9, "bytes": 1, "reasons": ["maxlen"], "example": EVIL * 50},
        {"pattern": "binary ffd8ffe0", "messages": 1, "bytes": 1, "reasons": [], "example": None},
    ],
    ages=[{"age": "under 1 minute", "messages": 11}, {"age": "not known", "messages": 0}],
    sizes=[{"size": "up to 100 B", "messages": 11}, {"size": "over 1 MiB", "messages": 0}],
    timeline=[
        {"time": NOON + timedelta(hours=n), "reason": reason, "messages": n + 1}
        for n in range(50)
        for reason in ("rejected", None)
    ],
    unit="HOUR",
)  # fmt: skip


def row(minute: int, name: str, latency: float | None) -> dict[str, object]:
    return {
        "start": NOON + timedelta(minutes=minute), "name": name, "messages": 60, "bytes": 600, "rate": 1.0,
        "median_bytes": 10, "p95_bytes": 10, "p99_bytes": 10, "median_latency": latency, "p95_latency": latency,
        "p99_latency": latency,
    }  # fmt: skip


SURVEY = Survey(
    events=5000, untimed=7, archived=9, first=NOON, last=NOON + timedelta(minutes=500), window=60, by="exchange",
    windows=[row(m, name, 5.0 if name else None) for m in range(501) for name in ("", "a", "b", "c", EVIL)],
    talkers={
        "exchange": [
            {"name": EVIL, "messages": 9, "share": 0.5, "bytes": 5, "p95_bytes": 1, "p95_latency": None, "first": NOON,
             "last": NOON},
        ],
        "pattern": [], "queue": [],
    },
    latency={"messages": 5, "median": 1.0, "p95": 2.0, "p99": 3.0, "largest": 12_345.0},
    gaps=[{"name": EVIL, "from": NOON, "to": NOON + timedelta(hours=3), "seconds": 10_800.0}],
    anomalies=[{"hour": NOON, "name": EVIL, "messages": 0, "usual": 70.5, "days": 5, "score": -9.5}],
    arrivals={"seconds": 30_000, "messages": 5000, "mean": 0.2, "median": 0.0, "p95": 1.0, "p99": 3.0, "most": 8},
    daily=[{"day": date(2026, 1, 5), "messages": 5000, "bytes": 5 << 30}],
    rate=2.0, backlog=[{"time": NOON + timedelta(seconds=n), "depth": float(n)} for n in range(500)], drained=90.0,
)  # fmt: skip


@pytest.mark.parametrize(
    "html",
    [deadletters_page.page(TRIAGE, EVIL, "now"), traffic_page.page(SURVEY, EVIL, "now")],
    ids=["dead letters", "traffic"],
)
def test_a_page(html: str) -> None:
    page = checked(html)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "b>&evil<"}
    assert not re.search(r"https?://|url\(|@import", html)
    assert "<b>&evil" not in html
    assert "&lt;b&gt;&amp;evil" in html
    assert len(html) < 300_000


def test_what_the_triage_says() -> None:
    text = " ".join(checked(deadletters_page.page(TRIAGE, "queue dead, browsed", "2026-01-06")).text)
    for part in ("12,345", "3.3 MiB", "queue dead, browsed", "rejected", "(default)", "round", "3.0 GiB", "Cycles"):
        assert part in text
    empty = replace(TRIAGE, reasons=[], origins=[], cycles=[], patterns=[], timeline=[])
    assert "Cycles" not in " ".join(checked(deadletters_page.page(empty, "q", "now")).text)


def test_what_the_survey_says() -> None:
    text = " ".join(checked(traffic_page.page(SURVEY, "archive a", "2026-01-06")).text)
    for part in (
        "150,300", "8.3 h", "in the busiest 1 min", "The busiest 4 of 5 are drawn", "in steps of 3 min", "12.3 s",
        "Unusual hours", "-9.5", "Silences", "3 h", "up to 499 waiting", "1.5 min after", "5.0 GiB",
        "(default exchange)",
    ):  # fmt: skip
        assert part in text, part
    nothing = replace(
        SURVEY, windows=[], first=None, last=None, untimed=0, gaps=[], anomalies=[], arrivals=None, daily=[],
        backlog=[], talkers={}, latency={"messages": 0, "median": None, "p95": None, "p99": None, "largest": None},
    )  # fmt: skip
    text = " ".join(checked(traffic_page.page(nothing, "archive a", "now")).text)
    assert "There is no message with a time" in text
    assert "Silences" not in text
