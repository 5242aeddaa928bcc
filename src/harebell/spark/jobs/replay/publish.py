"""A task of a replay: publishes archived rows as the original messages, in order, at a pace, with confirms.

Rules: a message is published as it was, with one header more, x-replayed-from. Two properties cannot always be as they
were: user_id, which a broker accepts from that user only, moves into the header x-replayed-user-id when the replay logs
in as another one; CC, which names further routing keys, is left out where the target's routing key replaces them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from harebell.client.messages import Message, Publication
from harebell.spark.connection import TRANSIENT, Link, retrying
from harebell.spark.jobs.archive.selection import moment
from harebell.spark.jobs.replay.state import Ledger, Pace, Target
from harebell.spark.options import SinkOptions
from harebell.spark.schema import PROPERTY_COLUMNS, TIMESTAMP_NUMBER, headers_from_json, unsigned

__all__ = ["CHUNK", "DUE", "TASK", "Maker", "Pacer", "publish_rows"]

CHUNK: Final = 1000  # messages between two notes of how far it is: what a crash may repeat
CHUNK_BYTES: Final = 8 << 20
BURST_SECONDS: Final = 0.05  # a rate is kept in bursts of so long: a message at a time would cost a round trip each
DUE: Final = "due"  # the columns that planning adds: when it is to be published, in original time, and by which task
TASK: Final = "task"
MICROS: Final = 1_000_000  # in a second
COLUMNS: Final = (
    "body", "exchange", "routing_key", "headers", "user_id", "queue", "offset", "archived_at", "archived_row",
    "timestamp", TIMESTAMP_NUMBER, DUE,
)  # fmt: skip
REPLAYED_FROM: Final = "x-replayed-from"
REPLAYED_USER: Final = "x-replayed-user-id"


class Pacer:
    """When each message may go, in the clock's seconds. `rate` is this task's share."""

    def __init__(self, pace: Pace, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = None if pace.rate is None else pace.rate * share
        self._speed = pace.speed
        self._clock = clock
        self._burst = max(1, int((self._rate or 0) * BURST_SECONDS))
        self._sent = 0
        self._due = self._next = clock()
        self._first: int | None = None

    def due(self, at: int) -> float:
        """When the next message, that came at `at` (Unix µs), may go; a time that is past means now."""
        if self._rate is not None:
            if self._sent % self._burst == 0:
                self._due = max(self._next, self._clock())  # delays are not caught up on: a rate is a limit
                self._next = self._due + self._burst / self._rate
            self._sent += 1
        elif self._speed is not None:
            if self._first is None:
                self._first, self._next = at, self._clock()
            self._due = self._next + (at - self._first) / MICROS / self._speed
        return self._due


class Maker:
    """Makes publications of archived rows."""

    def __init__(self, archive: str, target: Target, user: str) -> None:
        self._archive, self._target, self._user = archive, target, user
        self._origins: dict[str, str] = {}  # the beginning of x-replayed-from, by queue

    def publications(self, batch: pa.RecordBatch) -> Iterator[tuple[Publication, int]]:
        """Each row's, and when it is due in original time (Unix µs)."""
        column = {field.name: _values(batch.column(field.name), field.type) for field in batch.schema}
        target, user = self._target, self._user
        names = [name for name in PROPERTY_COLUMNS if name not in ("headers", "user_id", "timestamp")]
        for (
            body, exchange, key, text, user_id, queue, offset, archived_at, archived_row, timestamp, far, due,
            *properties,
        ) in zip(*(column[name] for name in (*COLUMNS, *names)), strict=True):  # fmt: skip
            headers = headers_from_json(text) if text else {}
            if target.routing_key is not None:
                headers.pop("CC", None)
            if user_id is not None and user_id != user:
                headers[REPLAYED_USER] = user_id
                user_id = None
            seconds = None if timestamp is None else timestamp // MICROS
            if seconds is None and far is not None:
                seconds = unsigned(far)
            headers[REPLAYED_FROM] = self._origin(queue, offset, archived_at, archived_row)
            message = Message(
                body,
                headers=headers,
                user_id=user_id,
                timestamp=seconds,
                **dict(zip(names, properties, strict=True)),
            )
            yield (
                Publication(
                    message,
                    exchange if target.exchange is None else target.exchange,
                    key if target.routing_key is None else target.routing_key,
                    target.mandatory,
                ),
                due,
            )

    def _origin(self, queue: str, offset: int | None, archived_at: int, row: int) -> str:
        """The value of x-replayed-from; a text, because RabbitMQ's streams drop headers that are tables."""
        start = self._origins.get(queue)
        if start is None:
            start = json.dumps({"archive": self._archive, "queue": queue}, separators=(",", ":"))[:-1]
            self._origins[queue] = start
        if offset is not None:
            return f'{start},"offset":{offset}}}'
        return f'{start},"archived_at":"{moment(archived_at).isoformat()}","archived_row":{row}}}'


def _values(column: pa.Array, kind: pa.DataType) -> list[Any]:
    """The column's values; times as microseconds, for a datetime costs more than the rest of the row."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column).to_pylist()  # type: ignore[no-any-return]


def publish_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    maker: Maker,
    ledger: Ledger,
    pacer: Pacer,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Publishes the rows that the ledger does not have as confirmed; returns their number once all are confirmed.

    Raises Unroutable and Nacked for refused messages; the ledger has those that were confirmed before.
    """
    skip, count = ledger.confirmed, 0
    publisher = _Publisher(options, ledger)
    try:
        for batch in batches:
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            for publication, at in maker.publications(batch.slice(skip)):
                due = pacer.due(at)
                if due > clock():
                    publisher.flush()
                    sleep(max(0.0, due - clock()))
                publisher.add(publication)
                count += 1
            skip = 0
        publisher.flush()
    finally:
        publisher.close()
    return count


def user_of(url: str) -> str:
    """The user that a URL logs in as."""
    return unquote(urlsplit(url).username or "guest")


class _Publisher:
    """A connection, and the chunk that is being gathered."""

    def __init__(self, options: SinkOptions, ledger: Ledger) -> None:
        self._options, self._ledger = options, ledger
        self._chunk: list[Publication] = []
        self._bytes = 0
        self._link: Link | None = None

    def add(self, publication: Publication) -> None:
        self._chunk.append(publication)
        message = publication.message
        self._bytes += len(message if isinstance(message, bytes) else message.body)
        if len(self._chunk) >= CHUNK or self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Publishes the chunk and notes it once it is confirmed."""
        if not self._chunk:
            return
        options, chunk, attempts = self._options, self._chunk, 0

        def once() -> None:
            nonlocal attempts
            try:
                if self._link is None:
                    link = self._link = Link(options.url, options.timeout)
                    link.confirm_select()
                attempts += 1
                self._link.publish(chunk, options.window, options.timeout)
            except TRANSIENT:
                self.close()
                raise

        retrying(once, options.retry_timeout, "publishing")
        self._ledger.add(len(chunk), len(chunk) * (attempts - 1))
        self._chunk, self._bytes = [], 0

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
