"""Why messages died: dead letters as a table, and the tables of a triage. Functions of DataFrames.

    dead = dead_letters(spark.read.parquet(...))      # any rows with the column `headers`
    reasons(dead).show()

Rules: a death is an entry of `x-death`, a (queue, reason) pair with the number of times it happened; its time is that
of the first time, which is what the broker writes (`harebell.routing.dead_letter`). Where `x-death` did not survive (a
stream of RabbitMQ before 3.13), the x-first-death-* and x-last-death-* headers say what they can. Nothing here reads a
queue. All text work is Spark's own, so that no row goes through Python.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from harebell.spark.jobs.deadletters.payload_shapes import shape
from harebell.spark.jobs.utc_rows import utc_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Triage", "ages", "cycles", "dead_letters", "hops", "origins", "patterns", "reasons", "sizes", "summary",
    "timeline", "triage", "with_a_death",
]  # fmt: skip

Row = dict[str, Any]

HEADERS: Final = (
    "struct<`x-death`:array<struct<count:bigint,reason:string,queue:string,exchange:string,"
    "`routing-keys`:array<string>,time:string>>,"
    "`x-first-death-reason`:string,`x-first-death-queue`:string,`x-first-death-exchange`:string,"
    "`x-last-death-reason`:string,`x-last-death-queue`:string,`x-last-death-exchange`:string,"
    "`x-redriven`:bigint>"
)
AGES: Final = ((60, "under 1 minute"), (3600, "under 1 hour"), (86_400, "under 1 day"), (604_800, "under 7 days"),
               (2_592_000, "under 30 days"))  # fmt: skip
SIZES: Final = ((100, "up to 100 B"), (1 << 10, "up to 1 KiB"), (10 << 10, "up to 10 KiB"),
                (100 << 10, "up to 100 KiB"), (1 << 20, "up to 1 MiB"))  # fmt: skip


def with_a_death(rows: DataFrame) -> DataFrame:
    """The rows whose headers tell of a death: an archive may have other messages too. Needs the column headers."""
    return rows.where(
        " OR ".join(
            f"contains(headers, '{name}') AND get_json_object(headers, '$.{name}') IS NOT NULL"
            for name in ("x-death", "x-first-death-queue")
        )
    )


def dead_letters(rows: DataFrame) -> DataFrame:
    """The rows, with what their headers say about their deaths. Needs the columns headers, body and routing_key.

    deaths         array of (queue, reason, count, exchange, keys, time), most recent first; empty when there are none
    first_reason, first_queue, first_exchange, first_key, first_time   the first death; the key it was published with
    last_reason, last_queue, last_exchange, last_time                  the most recent one
    died           how many deaths there were; cycled, whether it came into one queue more than once
    redriven       how often `--redrive` has sent it back
    bytes          of the body; text, the body as text, null when it is not UTF-8
    """
    parsed = rows.selectExpr("*", f"from_json(headers, '{HEADERS}') AS h")
    when = r"try_to_timestamp(regexp_extract(d.time, '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d', 0) || 'Z')"
    with_deaths = parsed.selectExpr(
        "* EXCEPT (h)",
        "h",
        "transform(coalesce(h.`x-death`, array()), d -> struct(d.queue AS queue, d.reason AS reason, "
        "coalesce(d.count, 1) AS count, d.exchange AS exchange, coalesce(d.`routing-keys`, array()) AS keys, "
        f"{when} AS time)) AS deaths",
    )
    first = (
        "coalesce(get(filter(deaths, d -> d.queue = h.`x-first-death-queue` AND d.reason = h.`x-first-death-reason`), "
        "0), try_element_at(deaths, -1))"
    )
    with_ends = with_deaths.selectExpr("*", f"{first} AS first", "get(deaths, 0) AS last")
    return with_ends.selectExpr(
        "* EXCEPT (h, first, last)",
        "coalesce(h.`x-first-death-reason`, first.reason) AS first_reason",
        "coalesce(h.`x-first-death-queue`, first.queue) AS first_queue",
        "coalesce(h.`x-first-death-exchange`, first.exchange) AS first_exchange",
        "coalesce(get(first.keys, 0), routing_key) AS first_key",
        "first.time AS first_time",
        "coalesce(h.`x-last-death-reason`, last.reason, h.`x-first-death-reason`) AS last_reason",
        "coalesce(h.`x-last-death-queue`, last.queue, h.`x-first-death-queue`) AS last_queue",
        "coalesce(h.`x-last-death-exchange`, last.exchange, h.`x-first-death-exchange`) AS last_exchange",
        "array_max(transform(deaths, d -> d.time)) AS last_time",
        "aggregate(deaths, 0L, (n, d) -> n + d.count) AS died",
        "exists(deaths, d -> d.count > 1) OR size(array_distinct(transform(deaths, d -> d.queue))) < size(deaths) "
        "AS cycled",
        "coalesce(h.`x-redriven`, 0L) AS redriven",
        "octet_length(body) AS bytes",
        "try_validate_utf8(CAST(body AS STRING)) AS text",
    )


def hops(dead: DataFrame) -> DataFrame:
    """One row for each death of each message: the columns of `dead`, and queue_of_death, reason, count, exchange_then,
    keys, time. Messages without a known death are not there."""
    return dead.selectExpr("*", "explode(deaths) AS d").selectExpr(
        "* EXCEPT (d)", "d.queue AS queue_of_death", "d.reason AS reason", "d.count AS count",
        "d.exchange AS exchange_then", "d.keys AS keys", "d.time AS time",
    )  # fmt: skip


def summary(dead: DataFrame) -> DataFrame:
    """One row: messages, bytes, unknown (without a death), cycled, redriven, first and last death, the sizes'
    median, p95 and largest."""
    return dead.selectExpr(
        "count(*) AS messages",
        "coalesce(sum(bytes), 0L) AS bytes",
        "count_if(last_reason IS NULL) AS unknown",
        "count_if(cycled) AS cycled",
        "count_if(redriven > 0) AS redriven",
        "min(first_time) AS first",
        "max(last_time) AS last",
        "percentile(bytes, 0.5) AS median_bytes",
        "percentile(bytes, 0.95) AS p95_bytes",
        "max(bytes) AS largest_bytes",
    )


def reasons(dead: DataFrame) -> DataFrame:
    """A row for each reason and queue: messages that died so there, deaths in all, the first and the last known time
    of such a death. Most messages first; one row with nulls for messages without a known death."""
    known = hops(dead).selectExpr("reason", "queue_of_death AS queue", "count", "time")
    other = dead.where("size(deaths) = 0").selectExpr(
        "last_reason AS reason", "last_queue AS queue", "IF(last_reason IS NULL, 0L, 1L) AS count",
        "CAST(NULL AS TIMESTAMP) AS time",
    )  # fmt: skip
    return (
        known.unionByName(other)
        .groupBy("reason", "queue")
        .agg(*_aggregates("count(*) AS messages", "sum(count) AS deaths", "min(time) AS first", "max(time) AS last"))
        .orderBy(*_order("messages DESC", "reason", "queue"))
    )


def origins(dead: DataFrame, top: int) -> DataFrame:
    """The `top` (exchange, routing key) that messages were published with before their first death: messages, bytes."""
    return (
        dead.groupBy("first_exchange", "first_key")
        .agg(*_aggregates("count(*) AS messages", "sum(bytes) AS bytes"))
        .orderBy(*_order("messages DESC", "first_exchange", "first_key"))
        .limit(top)
    )


def cycles(dead: DataFrame) -> DataFrame:
    """A row for each queue that messages came into more than once: messages, the most times one of them died there,
    and the deaths in all."""
    times = hops(dead.where("cycled").selectExpr("*", "monotonically_increasing_id() AS letter"))
    return (
        times.groupBy("letter", "queue_of_death")
        .agg(*_aggregates("sum(count) AS times"))
        .where("times > 1")
        .groupBy("queue_of_death")
        .agg(*_aggregates("count(*) AS messages", "max(times) AS most", "sum(times) AS deaths"))
        .withColumnRenamed("queue_of_death", "queue")
        .orderBy(*_order("messages DESC", "queue"))
    )


def patterns(dead: DataFrame, top: int) -> DataFrame:
    """The `top` payload patterns: pattern, messages, bytes, reasons, and the start of the alphabetically first body."""
    return (
        dead.selectExpr(f"{shape('body')} AS pattern", "bytes", "last_reason", "left(text, 300) AS example")
        .groupBy("pattern")
        .agg(
            *_aggregates(
                "count(*) AS messages", "sum(bytes) AS bytes", "array_sort(collect_set(last_reason)) AS reasons",
                "min(example) AS example",
            )
        )
        .orderBy(*_order("messages DESC", "pattern"))
        .limit(top)
    )  # fmt: skip


def ages(dead: DataFrame, now: datetime) -> DataFrame:
    """How long ago the messages died last, as a histogram in the order of age: age, messages. Empty classes too."""
    seconds = f"unix_timestamp(timestamp'{now:%Y-%m-%d %H:%M:%S%z}') - unix_timestamp(last_time)"
    return _histogram(dead.selectExpr(f"{seconds} AS n"), AGES, "age", "30 days and more", below=True)


def sizes(dead: DataFrame) -> DataFrame:
    """The sizes of the bodies as a histogram: size, messages. Empty classes too."""
    return _histogram(dead.selectExpr("bytes AS n"), SIZES, "size", "over 1 MiB", below=False)


def timeline(dead: DataFrame, unit: str) -> DataFrame:
    """Last deaths over time: time (the beginning of each `unit`: MINUTE, HOUR or DAY), reason, messages."""
    return (
        dead.where("last_time IS NOT NULL")
        .selectExpr(f"date_trunc('{unit}', last_time) AS time", "last_reason AS reason")
        .groupBy("time", "reason")
        .agg(*_aggregates("count(*) AS messages"))
        .orderBy("time", "reason")
    )


@dataclass(frozen=True, slots=True)
class Triage:
    """The tables of a triage, rows as dictionaries; see the functions of their names. `unit` is the timeline's."""

    summary: Row
    reasons: list[Row]
    origins: list[Row]
    cycles: list[Row]
    patterns: list[Row]
    ages: list[Row]
    sizes: list[Row]
    timeline: list[Row]
    unit: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def triage(rows: DataFrame, now: datetime, top: int = 20) -> Triage:
    """All tables for these rows, with the `top` commonest origins and patterns. `now` is what ages are counted from."""
    dead = dead_letters(rows).cache()
    try:
        totals = utc_rows(summary(dead))[0]
        unit = unit_for(totals["first"], totals["last"])
        return Triage(
            totals, utc_rows(reasons(dead)), utc_rows(origins(dead, top)), utc_rows(cycles(dead)),
            utc_rows(patterns(dead, top)), utc_rows(ages(dead, now)), utc_rows(sizes(dead)),
            utc_rows(timeline(dead, unit)), unit,
        )  # fmt: skip
    finally:
        dead.unpersist()


def unit_for(first: datetime | None, last: datetime | None) -> str:
    """The unit of time that gives a chart of this span at most some 60 columns where it can."""
    if first is None or last is None:
        return "HOUR"
    seconds = (last - first).total_seconds()
    return "MINUTE" if seconds <= 3600 else "HOUR" if seconds <= 60 * 3600 else "DAY"


def _histogram(
    numbers: DataFrame, limits: tuple[tuple[int, str], ...], name: str, beyond: str, *, below: bool
) -> DataFrame:
    sign = "<" if below else "<="
    cases = " ".join(f"WHEN n {sign} {limit} THEN {i}" for i, (limit, _) in enumerate(limits))
    labels = [*(label for _, label in limits), beyond, "not known"]
    of = f"CASE WHEN n IS NULL THEN {len(limits) + 1} {cases} ELSE {len(limits)} END"
    counted = numbers.selectExpr(f"{of} AS class").groupBy("class").agg(*_aggregates("count(*) AS messages"))
    names = ", ".join(f"({i}, '{label}')" for i, label in enumerate(labels))
    classes = numbers.sparkSession.sql(f"SELECT * FROM VALUES {names} AS t(class, {name})")
    return (
        classes.join(counted, "class", "left")
        .selectExpr("class", name, "coalesce(messages, 0L) AS messages")
        .orderBy("class")
        .drop("class")
    )


def _aggregates(*expressions: str) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(each) for each in expressions]


def _order(*columns: str) -> list[Any]:
    from pyspark.sql import functions

    return [
        functions.col(name).desc() if descending else functions.col(name).asc_nulls_last()
        for name, _, descending in (each.partition(" ") for each in columns)
    ]
