"""A task of a replay: archived rows become the messages they were, in order, at a pace, confirmed chunk by chunk.

Rules: a message is published as it was, with one header more, x-replayed-from. Two properties cannot always be as they
were: user_id, which a broker accepts from that user only, moves into the header x-replayed-user-id when the replay logs
in as another one; CC, which names further routing keys, is left out where the target's routing key replaces them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from warren.client.records import Message, Publication
from warren.spark.amqp import TRANSIENT, Link, retrying
from warren.spark.jobs.replay_state import Ledger, Pace, Target
from warren.spark.options import SinkOptions
from warren.spark.schema import PROPERTY_COLUMNS, headers_from_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CHUNK", "DUE", "TASK", "Maker", "Pacer", "publish_rows"]

CHUNK: Final = 1000  # messages between two notes of how far it is: what a crash may repeat
CHUNK_BYTES: Final = 8 << 20
BURST_SECONDS: Final = 0.05  # a rate is kept in bursts of so long: a message at a time would cost a round trip each
DUE: Final = "due"  # the columns that planning adds: when it is to be published, in original time, and by which task
TASK: Final = "task"
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
        self._first: datetime | None = None

    def due(self, at: datetime) -> float:
        """When the next message, that came at `at`, may go; a time that is past means now."""
        if self._rate is not None:
            if self._sent % self._burst == 0:
                self._due = max(self._next, self._clock())  # what was late is not made up for: a rate is a limit
                self._next = self._due + self._burst / self._rate
            self._sent += 1
        elif self._speed is not None:
            if self._first is None:
                self._first, self._next = at, self._clock()
            self._due = self._next + (at - self._first).total_seconds() / self._speed
        return self._due


class Maker:
    """Makes publications of archived rows."""

    def __init__(self, archive: str, target: Target, user: str) -> None:
        self._archive, self._target, self._user = archive, target, user

    def publications(self, batch: pa.RecordBatch) -> Iterator[tuple[Publication, datetime]]:
        """Each row's, and when it is due in original time."""
        column = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        target, user = self._target, self._user
        names = [name for name in PROPERTY_COLUMNS if name not in ("headers", "user_id")]
        for row, properties in enumerate(zip(*(column[name] for name in names), strict=True)):
            text = column["headers"][row]
            headers = headers_from_json(text) if text else {}
            if target.routing_key is not None:
                headers.pop("CC", None)
            user_id = column["user_id"][row]
            if user_id is not None and user_id != user:
                headers[REPLAYED_USER] = user_id
                user_id = None
            headers[REPLAYED_FROM] = self._origin(
                column["queue"][row], column["offset"][row], column["archived_at"][row], column["archived_row"][row]
            )
            yield (
                Publication(
                    Message(
                        column["body"][row],
                        headers=headers,
                        user_id=user_id,
                        **dict(zip(names, properties, strict=True)),
                    ),
                    column["exchange"][row] if target.exchange is None else target.exchange,
                    column["routing_key"][row] if target.routing_key is None else target.routing_key,
                    target.mandatory,
                ),
                column[DUE][row],
            )

    def _origin(self, queue: str, offset: int | None, at: datetime, row: int) -> str:
        """Text and not a table: RabbitMQ's streams drop headers that are tables."""
        place = {"offset": offset} if offset is not None else {"archived_at": at.isoformat(), "archived_row": row}
        return json.dumps({"archive": self._archive, "queue": queue, **place}, separators=(",", ":"))


def publish_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    maker: Maker,
    ledger: Ledger,
    pacer: Pacer,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Publishes the rows that the ledger does not know as confirmed; how many. All of them are confirmed then.

    Raises Unroutable and Nacked for what the broker does not take; the ledger has what was confirmed before.
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
