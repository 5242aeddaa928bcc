"""All tables of a traffic report, for events that are read once: `survey`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from harebell.errors import InvalidArgument
from harebell.spark.jobs.conditions import filtered
from harebell.spark.jobs.natural_order import natural
from harebell.spark.jobs.traffic.arrivals import backlog, busy_seconds, daily, per_second
from harebell.spark.jobs.traffic.event_tables import By, gaps, latency, talkers, windows, with_pattern
from harebell.spark.jobs.traffic.unusual_hours import anomalies
from harebell.spark.jobs.utc_rows import utc_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OTHERS", "Questions", "Survey", "survey", "window_for"]

Row = dict[str, Any]

MAX_POINTS: Final = 1500  # of a backlog that is drawn
MAX_WINDOWS: Final = 100_000

OTHERS: Final = "(others)"
"""The name in windows and anomalies of all that are not among the top talkers."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The options of a survey.

    by              what windows, gaps and anomalies are by
    window          seconds of a window; None: by the span of the data
    patterns, words for the column `pattern`, see `with_pattern`
    where           a condition of Spark SQL over the events
    since, until    only events of this time, `until` not included
    gap             silences longer than so many seconds; None: no silences are listed
    top             how many talkers
    capacity        whether arrivals and days are wanted; rate, a consumer's messages a second, adds the backlog
    """

    by: By = "exchange"
    window: int | None = None
    patterns: tuple[str, ...] = ()
    words: int = 1
    where: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    gap: float | None = None
    top: int = 20
    capacity: bool = False
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The tables, rows as dictionaries; see the functions of their names. `untimed` events are in none but talkers;
    the time of `archived` ones is that of their arrival in the archive.
    Names that are not among the top talkers are together as OTHERS in windows and anomalies.

    backlog has the deepest moment of each of MAX_POINTS spans at most; drained is how many seconds after the last
    arrival nothing waits any more.
    """

    events: int
    untimed: int
    archived: int
    first: datetime | None
    last: datetime | None
    window: int
    by: By
    windows: list[Row]
    talkers: dict[By, list[Row]]
    latency: Row
    gaps: list[Row]
    anomalies: list[Row]
    arrivals: Row | None
    daily: list[Row]
    rate: float | None
    backlog: list[Row]
    drained: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def window_for(first: datetime | None, last: datetime | None) -> int:
    """A second for ten minutes of data, a minute for a day, else an hour."""
    seconds = 0.0 if first is None or last is None else (last - first).total_seconds()
    return 1 if seconds <= 600 else 60 if seconds <= 86_400 else 3600


def survey(seen: DataFrame, asked: Questions) -> Survey:
    """All requested tables, from the events of `traffic.events`.

    Raises InvalidArgument for a faulty condition, and for too many windows.
    """
    from pyspark.sql import functions

    seen = with_pattern(seen, patterns=asked.patterns, words=asked.words)
    for column, bound in ((">=", asked.since), ("<", asked.until)):
        if bound is not None:
            seen = seen.where(functions.expr(f"time {column} timestamp'{bound:%Y-%m-%d %H:%M:%S.%f%z}'"))
    if asked.where is not None:
        seen = filtered(seen, asked.where)
    seen = seen.cache()
    try:
        ends = ("min(time) AS a", "max(time) AS b")
        (whole,) = utc_rows(
            seen.selectExpr("count(*) AS n", "count(time) AS timed", *ends, "count_if(arrival) AS arrived")
        )
        window = asked.window or window_for(whole["a"], whole["b"])
        check_window(window, whole["a"], whole["b"])
        talking = {by: _ordered(utc_rows(talkers(seen, by, asked.top)), "messages") for by in BY}
        few = folded(seen, asked.by, [row["name"] for row in talking[asked.by]])
        arrived: Row | None = None
        days: list[Row] = []
        waiting: list[Row] = []
        drained: float | None = None
        if asked.capacity:
            seconds = per_second(seen).cache()
            (arrived,), days = utc_rows(busy_seconds(seconds)), utc_rows(daily(seen))
            if asked.rate is not None:
                waiting, drained = _backlog(seconds, asked.rate, arrived["seconds"])
            seconds.unpersist()
        return Survey(
            whole["n"], whole["n"] - whole["timed"], whole["arrived"], whole["a"], whole["b"], window, asked.by,
            utc_rows(windows(few, window, asked.by)),
            talking,
            utc_rows(latency(seen))[0],
            [] if asked.gap is None else _ordered(utc_rows(gaps(seen, asked.by, asked.gap)), "seconds"),
            utc_rows(anomalies(few, asked.by)),
            arrived, days, asked.rate, waiting, drained,
        )  # fmt: skip
    finally:
        seen.unpersist()


BY: Final[Sequence[By]] = ("exchange", "pattern", "queue")


def folded(seen: DataFrame, by: By, names: Sequence[str]) -> DataFrame:
    """The events, those of other names under the one name OTHERS: windows of any number of names stay few."""
    from pyspark.sql import functions

    known = functions.expr(f"coalesce({by}, '')").isin(list(names))
    return seen.withColumn(by, functions.when(known, functions.col(by)).otherwise(functions.lit(OTHERS)))


def check_window(window: int, first: datetime | None, last: datetime | None) -> None:
    """Raises InvalidArgument when there would be more than MAX_WINDOWS windows."""
    if first is not None and last is not None and (last - first).total_seconds() > window * MAX_WINDOWS:
        raise InvalidArgument(
            f"windows of {window} s are too many for messages from {first} to {last}: take longer ones (--window), or "
            "a part of the time (--since, --until)"
        )


def _backlog(seconds: DataFrame, rate: float, span: int) -> tuple[list[Row], float | None]:
    """The deepest moments, thinned out for a chart, and how long after the last arrival the backlog is gone."""
    from pyspark.sql import functions

    deep = backlog(seconds, rate).cache()
    each = max(1, -(-span // MAX_POINTS))
    thin = deep.groupBy(functions.expr(f"second div {each} AS span")).agg(
        functions.max_by("second", "depth").alias("second"), functions.max("depth").alias("depth")
    )
    points = utc_rows(thin.orderBy("second").selectExpr("timestamp_seconds(second) AS time", "depth"))
    last = utc_rows(deep.selectExpr("max_by(depth, second) AS depth"))[0]["depth"]
    deep.unpersist()
    return points, None if last is None else last / rate


def _ordered(rows: list[Row], most: str) -> list[Row]:
    """Those with the most first; of equal ones, by name."""
    return sorted(rows, key=lambda row: (-row[most], natural(row["name"])))
