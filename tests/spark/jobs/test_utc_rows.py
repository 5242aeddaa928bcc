"""Rows whose times are UTC, wherever the driver runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from harebell.spark.jobs.utc_rows import utc_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# The last hour of summer time in Berlin comes twice; in 1900 the zone was minutes from a whole hour.
TIMES = ["2026-01-05 09:16:59.5", "2026-10-25 00:30:00", "2026-10-25 01:30:00", "1900-01-01 00:00:00", None]


@pytest.fixture(params=["UTC", "Asia/Tokyo", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The time zone of this process."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_times_are_utc_in_every_zone(spark: SparkSession, zone: str) -> None:
    values = ", ".join(f"({n}, {'NULL' if at is None else repr(at)})" for n, at in enumerate(TIMES))
    frame = spark.sql(
        f"SELECT n, CAST(at AS TIMESTAMP) AS `a time`, named_struct('x', n) AS s FROM VALUES {values} AS t(n, at) "
        "ORDER BY n DESC"
    )
    assert utc_rows(frame) == [
        {"n": n, "a time": None if at is None else datetime.fromisoformat(at), "s": {"x": n}}
        for n, at in reversed(list(enumerate(TIMES)))
    ]


def test_no_rows(spark: SparkSession) -> None:
    assert utc_rows(spark.range(0)) == []
