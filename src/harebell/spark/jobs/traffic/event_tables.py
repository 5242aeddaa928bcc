"""Tables of a broker's traffic: rates, sizes and latency by exchange, key pattern or queue. Functions of DataFrames.

    seen = with_pattern(events(spark.read.format("amqp")...load()), words=2)
    windows(seen, 60, "pattern").show()

Rules: an event is a message that was seen: in a queue's or an archive's row, or as the firehose's copy of it (a row of
the exchange amq.rabbitmq.trace), which tells publishing from delivering. Published messages count for exchanges and
patterns, delivered ones for queues, plain rows for all three. A message's time is the header `timestamp_in_ms` where
there is one, else its property `timestamp`, which AMQP gives in whole seconds. Latency is from there to the delivery,
where it was recorded: the column `received`, or the firehose copy's own timestamp_in_ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["By", "OTHER", "counted", "events", "gaps", "latency", "talkers", "windows", "with_pattern"]

By = Literal["exchange", "pattern", "queue"]

OTHER: Final = "(other)"
"""The pattern of keys that no given pattern matches."""

TRACE: Final = "amq.rabbitmq.trace"
HEADERS: Final = (
    "struct<timestamp_in_ms:bigint,exchange_name:string,routing_keys:array<string>,"
    "properties:struct<timestamp:bigint,headers:struct<timestamp_in_ms:bigint>>>"
)
NEEDED: Final = ("queue", "exchange", "routing_key", "headers", "timestamp", "body")
LAST_SECOND: Final = 253_402_300_799  # of the year 9999: what comes after it no date of Python holds
MICROS: Final = 1_000_000
ACCURACY: Final = 1000  # of percentiles: ranks are right to 1/1000


def events(rows: DataFrame) -> DataFrame:
    """An event for each row of format("amqp"), an archive or the firehose.

    time         when: a plain row by its own time, else by `received` or, in an archive, `archived_at`; a firehose copy
                 by `received`, else its own time, else the message's
    kind         message (a plain row), publish or deliver (firehose)
    exchange, routing_key, queue   of the message; queue is null for publish
    bytes        of the body
    latency      milliseconds from the message's time to its delivery; null where either is not known
    arrival      whether `time` is but that of the arrival in the archive

    Raises InvalidArgument when a column is missing.
    """
    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise InvalidArgument(f"traffic needs the columns {', '.join(NEEDED)}; missing: {', '.join(missing)}")
    received, archived = (
        name if name in rows.columns else "CAST(NULL AS TIMESTAMP)" for name in ("received", "archived_at")
    )
    parsed = rows.selectExpr(
        "queue", "exchange", "routing_key", "timestamp", "octet_length(body) AS bytes", f"{received} AS received",
        f"{archived} AS archived", f"from_json(headers, '{HEADERS}') AS h", f"exchange = '{TRACE}' AS traced",
    )  # fmt: skip
    own = parsed.selectExpr(
        "*",
        f"IF(traced, coalesce({_time('h.properties.headers.timestamp_in_ms', 1000)}, "
        f"{_time('h.properties.timestamp', 1)}), coalesce({_time('h.timestamp_in_ms', 1000)}, timestamp)) AS sent",
        f"IF(traced, coalesce(received, {_time('h.timestamp_in_ms', 1000)}, timestamp), received) AS seen",
        "CASE WHEN NOT traced THEN 'message' WHEN startswith(routing_key, 'deliver.') THEN 'deliver' ELSE 'publish' "
        "END AS kind",
    )
    return own.selectExpr(
        "IF(traced, coalesce(seen, sent, archived), coalesce(sent, seen, archived)) AS time",
        "kind",
        "IF(traced, h.exchange_name, exchange) AS exchange",
        "IF(traced, get(h.routing_keys, 0), routing_key) AS routing_key",
        "CASE kind WHEN 'message' THEN queue WHEN 'deliver' THEN substring(routing_key, 9) END AS queue",
        "bytes",
        "IF(kind = 'publish', NULL, (unix_micros(seen) - unix_micros(sent)) / 1000) AS latency",
        "archived IS NOT NULL AND sent IS NULL AND seen IS NULL AS arrival",
    )


def _time(number: str, units: int) -> str:
    """SQL for the time of a number of 1/`units` seconds; null where no date holds it."""
    last = (LAST_SECOND + 1) * units - 1
    return f"IF({number} BETWEEN 0 AND {last}, timestamp_micros({number} * {MICROS // units}), NULL)"


def with_pattern(seen: DataFrame, *, patterns: Sequence[str] = (), words: int = 1) -> DataFrame:
    """The events with a column `pattern`: the first of the AMQP topic patterns that matches the routing key, OTHER when
    none does; without patterns, the key's first `words` words, with ".#" where more follow."""
    if not patterns:
        first = f"substring_index(routing_key, '.', {words})"
        more = "'#'" if words == 0 else f"{first} || '.#'"
        return seen.selectExpr("*", f"IF({first} = routing_key, {first}, {more}) AS pattern")
    from pyspark.sql.types import StringType, StructType

    schema = StructType([*seen.schema.fields]).add("pattern", StringType())
    return seen.mapInArrow(_matching(tuple(patterns)), schema)


def _matching(patterns: tuple[str, ...]) -> Any:
    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from harebell.routing.exchanges.topic_matcher import TopicMatcher

        matcher = TopicMatcher((pattern, pattern) for pattern in patterns)
        known: dict[str | None, str] = {None: OTHER}
        for batch in batches:
            keys = batch.column("routing_key").dictionary_encode()  # each key of a batch is matched once
            names = []
            for key in keys.dictionary.to_pylist():
                if key not in known:
                    known[key] = next(iter(matcher.match(key)), OTHER)
                names.append(known[key])
            found = pa.array([*names, OTHER], pa.string()).take(keys.indices.fill_null(len(names)))
            yield batch.append_column("pattern", found)
            if len(known) > MAX_KNOWN:
                known = {None: OTHER}

    return match


MAX_KNOWN: Final = 200_000  # keys remembered by a task


def counted(seen: DataFrame, by: By) -> DataFrame:
    """The events that count for `by`, in whose name: see the module. Their column `name` is never null."""
    other = "deliver" if by != "queue" else "publish"
    return seen.where(f"kind <> '{other}'").selectExpr("*", f"coalesce({by}, '') AS name")


def windows(seen: DataFrame, seconds: int, by: By) -> DataFrame:
    """A row for each window of so many seconds and each name, in their order: start, name, messages, bytes, rate (per
    second), median_bytes, p95_bytes, p99_bytes, and median_latency, p95_latency, p99_latency (ms, null if unknown).

    Events without a time are not there. Windows without events have no row.
    """
    start = f"timestamp_seconds(floor(unix_micros(time) / {seconds * 1_000_000}) * {seconds}) AS start"
    numbered = _named(seen, by).where("time IS NOT NULL").selectExpr("*", start)
    return (
        numbered.groupBy("start", "name")
        .agg(
            *_aggregates(
                "count_if(counts) AS messages",
                "coalesce(sum(IF(counts, bytes, NULL)), 0L) AS bytes",
                f"percentile_approx(IF(counts, bytes, NULL), array(0.5, 0.95, 0.99), {ACCURACY}) AS b",
                f"percentile_approx(latency, array(0.5, 0.95, 0.99), {ACCURACY}) AS l",
            )
        )
        .selectExpr(
            "start", "name", "messages", "bytes", f"messages / {seconds}.0D AS rate", "b[0] AS median_bytes",
            "b[1] AS p95_bytes", "b[2] AS p99_bytes", "l[0] AS median_latency", "l[1] AS p95_latency",
            "l[2] AS p99_latency",
        )
        .orderBy("start", "name")
    )  # fmt: skip


def talkers(seen: DataFrame, by: By, top: int) -> DataFrame:
    """The `top` names by messages: name, messages, share (of all), bytes, p95_bytes, p95_latency (ms), first, last."""
    from pyspark.sql import Window, functions

    return (
        _named(seen, by)
        .groupBy("name")
        .agg(
            *_aggregates(
                "count_if(counts) AS messages",
                "coalesce(sum(IF(counts, bytes, NULL)), 0L) AS bytes",
                f"percentile_approx(IF(counts, bytes, NULL), 0.95, {ACCURACY}) AS p95_bytes",
                f"percentile_approx(latency, 0.95, {ACCURACY}) AS p95_latency",
                "min(time) AS first",
                "max(time) AS last",
            )
        )
        .where("messages > 0")
        .withColumn("share", functions.expr("messages") / functions.sum("messages").over(Window.partitionBy()))
        .select("name", "messages", "share", "bytes", "p95_bytes", "p95_latency", "first", "last")
        .orderBy(functions.col("messages").desc(), "name")
        .limit(top)
    )


def latency(seen: DataFrame) -> DataFrame:
    """One row: messages with a known latency, and its median, p95, p99 and largest value in ms."""
    return seen.selectExpr(
        "count(latency) AS messages", f"percentile_approx(latency, array(0.5, 0.95, 0.99), {ACCURACY}) AS l",
        "max(latency) AS largest",
    ).selectExpr("messages", "l[0] AS median", "l[1] AS p95", "l[2] AS p99", "largest")  # fmt: skip


def gaps(seen: DataFrame, by: By, longer: float, top: int = 50) -> DataFrame:
    """Silences of more than `longer` seconds between two messages of one name, the longest first: name, from, to,
    seconds. What comes before a name's first message and after its last is no gap."""
    from pyspark.sql import Window, functions

    order = Window.partitionBy("name").orderBy("time")
    return (
        counted(seen, by)
        .where("time IS NOT NULL")
        .select("name", functions.lag("time").over(order).alias("from"), functions.col("time").alias("to"))
        .selectExpr("*", "(unix_micros(to) - unix_micros(from)) / 1e6D AS seconds")
        .where(f"seconds > {longer}D")
        .orderBy(functions.col("seconds").desc(), "name")
        .limit(top)
    )


def _named(seen: DataFrame, by: By) -> DataFrame:
    """All events that have the name, with `counts`: whether they count for it, or only their latency does."""
    other = "deliver" if by != "queue" else "publish"
    named = seen if by != "queue" else seen.where("kind <> 'publish'")
    return named.selectExpr("*", f"coalesce({by}, '') AS name", f"kind <> '{other}' AS counts")


def _aggregates(*expressions: str) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(each) for each in expressions]
