"""Finds hours that differ from the same hour on earlier days.

Rules: an hour's messages are compared with the median of the same hour of all earlier days that the data has, at least
MIN_DAYS of them. How far off is unusual is robust, one odd day in the past does not spoil it: the unit is the greatest
of

    1.4826 MAD    the median absolute deviation, which for a bell curve is one standard deviation
    sqrt(median)  what pure chance makes of a count
    FLOOR median  a tenth: smaller changes are of no interest, however calm the days were

and 1 message. An hour more than THRESHOLD units off is an anomaly: for a calm hour of many messages that is half as
much, or less, or one and a half times as much, or more. An hour without messages counts as 0, so silence is found. The
first and the last hour of the data are left out where they may be incomplete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harebell.spark.jobs.traffic.event_tables import By, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FLOOR", "MIN_DAYS", "THRESHOLD", "anomalies", "hourly"]

MIN_DAYS: Final = 3
THRESHOLD: Final = 5.0
FLOOR: Final = 0.1
MAX_NAMES: Final = 200  # names with most messages that are examined


def hourly(seen: DataFrame, by: By) -> DataFrame:
    """Messages for every whole hour of the data and every name (MAX_NAMES of them): hour, name, messages; also 0."""
    from pyspark.sql import functions

    named = counted(seen, by).where("time IS NOT NULL")
    counts = named.groupBy(functions.date_trunc("HOUR", "time").alias("hour"), "name").count()
    names = counts.groupBy("name").sum("count").orderBy(functions.col("sum(count)").desc(), "name").limit(MAX_NAMES)
    span = named.selectExpr("min(time) AS a", "max(time) AS b").selectExpr(
        "IF(a = date_trunc('HOUR', a), a, date_trunc('HOUR', a) + INTERVAL 1 HOUR) AS a",
        "date_trunc('HOUR', b) - INTERVAL 1 HOUR AS b",
    )
    hours = span.where("a <= b").selectExpr("explode(sequence(a, b, INTERVAL 1 HOUR)) AS hour")
    return (
        hours.crossJoin(names.select("name"))
        .join(counts, ["hour", "name"], "left")
        .selectExpr("hour", "name", "coalesce(count, 0L) AS messages")
    )


def anomalies(seen: DataFrame, by: By, threshold: float = THRESHOLD) -> DataFrame:
    """The hours that are off, the most unusual first: hour, name, messages, usual (the median), days (how many it is
    of), score (in units; negative for too few)."""
    from pyspark.sql import Window, functions

    earlier = (
        Window.partitionBy("name", functions.hour("hour")).orderBy("hour").rowsBetween(Window.unboundedPreceding, -1)
    )
    before = functions.array_sort(functions.collect_list("messages").over(earlier))
    compared = hourly(seen, by).withColumn("before", before)
    return (
        compared.where(f"size(before) >= {MIN_DAYS}")
        .selectExpr("*", f"{_median('before')} AS usual")
        .selectExpr("*", "array_sort(transform(before, n -> abs(n - usual))) AS off")
        .selectExpr("*", f"greatest(1.4826D * {_median('off')}, sqrt(usual), {FLOOR}D * usual, 1D) AS unit")
        .selectExpr("hour", "name", "messages", "usual", "size(before) AS days", "(messages - usual) / unit AS score")
        .where(f"abs(score) > {threshold}D")
        .orderBy(functions.abs("score").desc(), "hour", "name")
    )


def _median(array: str) -> str:
    """SQL: the median of a sorted array that is not empty."""
    size = f"CAST(size({array}) AS INT)"  # get(), for Spark may look before it has filtered empty arrays out
    return f"((get({array}, CAST(({size} - 1) div 2 AS INT)) + get({array}, CAST({size} div 2 AS INT))) / 2D)"
