"""Which rows of an archive: by time, queue, routing key, header and SQL. Used by the jobs that read archives.

Rules: filters that Spark can push into the files come first (days, queues, `where`); the routing key is matched by the
code of a topic exchange itself, once for each key of a batch. Times without a zone are UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from harebell.errors import InvalidArgument
from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.spark.jobs.archive.layout import folder_name
from harebell.spark.schema import headers_from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Selection", "chosen", "header_matcher", "key_matcher", "message_time", "moment"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of an archive. What is not given selects all.

    since, until  the time of a message: its `timestamp`, or when the archive got it; `until` is not included. A time
                  without a zone is UTC
    queues        the queues they came from
    key           an AMQP topic pattern for the routing key
    headers       (name, value): a header of that name whose value, as text, is that; all of them
    where         a SQL condition over the archive's columns
    limit         the first so many, in the order of the replay
    """

    since: datetime | None = None
    until: datetime | None = None
    queues: tuple[str, ...] = ()
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    where: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InvalidArgument(f"limit is {self.limit}, and must be at least 1")
        for name, at in self._times():
            try:
                utc(at or EPOCH)
            except OverflowError as error:
                raise InvalidArgument(f"{name} is {at}, which is before the year 1 or after 9999 in UTC") from error

    def to_json(self) -> dict[str, Any]:
        texts = {name: None if at is None else utc(at).isoformat() for name, at in self._times()}
        return {**asdict(self), **texts}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        times = {name: datetime.fromisoformat(values[name]) for name in ("since", "until") if values[name] is not None}
        headers = tuple((name, value) for name, value in values["headers"])
        return cls(**{**values, **times, "queues": tuple(values["queues"]), "headers": headers})

    def _times(self) -> tuple[tuple[str, datetime | None], ...]:
        return ("since", self.since), ("until", self.until)


def chosen(rows: DataFrame, selection: Selection) -> DataFrame:
    """The rows that the selection takes, its limit apart. Raises InvalidArgument when `where` is no condition."""
    from pyspark.sql import functions as f

    from harebell.spark.jobs.conditions import filtered

    if selection.since is not None:
        rows = rows.where(f.col("archive_day") >= f.lit(utc(selection.since).date()))
        rows = rows.where(f.unix_micros(message_time()) >= micros_of(selection.since))
    if selection.until is not None:
        rows = rows.where(f.col("archive_day") <= f.lit(utc(selection.until).date()))
        rows = rows.where(f.unix_micros(message_time()) < micros_of(selection.until))
    if selection.queues:
        rows = rows.where(f.col("archive_queue").isin(*{folder_name(queue) for queue in selection.queues}))
        rows = rows.where(f.col("queue").isin(*selection.queues))
    if selection.where is not None:
        rows = filtered(rows, selection.where)
    if selection.key is not None:
        rows = rows.where(_udf(key_matcher(selection.key))(f.col("routing_key")))
    if selection.headers:
        rows = rows.where(_udf(header_matcher(selection.headers))(f.col("headers")))
    return rows


def key_matcher(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """Which routing keys a topic exchange would match with that pattern."""
    matcher = TopicMatcher([(pattern, True)])

    def matches(keys: pa.Array) -> pa.Array:
        coded = keys.dictionary_encode()
        found = pa.array([bool(matcher.match(key)) for key in coded.dictionary.to_pylist()], pa.bool_())
        return found.take(coded.indices)

    return matches


def header_matcher(wanted: tuple[tuple[str, str], ...]) -> Callable[[pa.Array], pa.Array]:
    """Which header tables (JSON text) have all of these, values compared as text."""

    def matches(texts: pa.Array) -> pa.Array:
        coded = texts.dictionary_encode()
        found = pa.array([_has(headers_from_json(text), wanted) for text in coded.dictionary.to_pylist()], pa.bool_())
        return found.take(coded.indices).fill_null(False)

    return matches


def _has(headers: object, wanted: tuple[tuple[str, str], ...]) -> bool:
    return isinstance(headers, dict) and all(
        name in headers and _text(headers[name]) == value for name, value in wanted
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _udf(matches: Callable[[pa.Array], pa.Array]) -> Callable[[Column], Column]:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # PySpark 4.3 has no types for it

    return arrow_udf(matches, "boolean")  # type: ignore[no-any-return]


def message_time() -> Column:
    """The time of a row: the message's own, else when the archive got it."""
    from pyspark.sql import functions as f

    return f.coalesce("timestamp", "archived_at")


def micros_of(at: datetime) -> int:
    return (utc(at) - EPOCH) // timedelta(microseconds=1)


def moment(micros: int) -> datetime:
    """The time of so many microseconds since 1970, in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def utc(at: datetime) -> datetime:
    """The same time with its zone; one without is UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
