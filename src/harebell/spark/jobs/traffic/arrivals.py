"""The load on consumers of this traffic: arrivals a second, the backlog at a given rate, bytes a day.

Rules: seconds without messages count as 0 for percentiles. The backlog is Lindley's recursion by seconds,

    depth(t) = max(0, depth(t - 1) + arrivals(t) - rate),   depth before the first second 0

computed with running sums and their minimum, so that Spark needs no loop: with X the sum of arrivals less rate times
time, depth(t) is X(t) less the least X so far, which silence lowers, and 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harebell.spark.jobs.traffic.event_tables import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["backlog", "busy_seconds", "daily", "per_second"]


def per_second(seen: DataFrame) -> DataFrame:
    """The seconds that have messages: second (since 1970), messages, bytes. What is published counts."""
    from pyspark.sql import functions

    return (
        counted(seen, "exchange")
        .where("time IS NOT NULL")
        .selectExpr("unix_seconds(time) AS second", "bytes")
        .groupBy("second")
        .agg(functions.count("*").alias("messages"), functions.sum("bytes").alias("bytes"))
        .orderBy("second")
    )


def busy_seconds(seconds: DataFrame) -> DataFrame:
    """One row over what `per_second` gave: seconds (from the first to the last), messages, mean, and the median, p95,
    p99 and most messages of a second."""
    totals = seconds.selectExpr(
        "coalesce(max(second) - min(second) + 1, 0L) AS seconds", "coalesce(sum(messages), 0L) AS messages",
        "count(*) AS busy", "coalesce(max(messages), 0L) AS most",
    )  # fmt: skip
    silent = totals.where("seconds > busy").selectExpr("0L AS messages", "seconds - busy AS times")
    weighed = seconds.selectExpr("messages", "1L AS times").unionByName(silent)
    return weighed.selectExpr("percentile(messages, array(0.5, 0.95, 0.99), times) AS p").crossJoin(totals).selectExpr(
        "seconds", "messages", "IF(seconds = 0, 0D, messages / seconds) AS mean", "p[0] AS median", "p[1] AS p95",
        "p[2] AS p99", "most",
    )  # fmt: skip


def backlog(seconds: DataFrame, rate: float) -> DataFrame:
    """How many messages wait at the end of each second that has arrivals, for consumers that take `rate` a second:
    second, messages, depth. Between them the depth falls by `rate` a second, to 0 at least."""
    from pyspark.sql import Window, functions

    upto = Window.orderBy("second").rowsBetween(Window.unboundedPreceding, 0)
    everything = Window.orderBy("second").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    summed = seconds.select(
        "second", "messages", functions.sum("messages").over(upto).alias("came"),
        functions.min("second").over(everything).alias("first"),
    )  # fmt: skip
    walked = summed.selectExpr(
        "second", "messages", f"came - {rate}D * (second - first + 1) AS x",
        f"came - messages - {rate}D * (second - first) AS before",
    )  # fmt: skip
    least = functions.min(functions.least("x", "before")).over(upto)
    return walked.select(
        "second", "messages", (functions.col("x") - functions.least(least, functions.lit(0.0))).alias("depth")
    ).orderBy("second")


def daily(seen: DataFrame) -> DataFrame:
    """The storage that each day's messages need: day, messages, bytes (of bodies). Published messages count."""
    from pyspark.sql import functions

    totals: list[Any] = [functions.count("*").alias("messages"), functions.sum("bytes").alias("bytes")]
    return (
        counted(seen, "exchange")
        .where("time IS NOT NULL")
        .selectExpr("CAST(time AS DATE) AS day", "bytes")
        .groupBy("day")
        .agg(*totals)
        .orderBy("day")
    )
