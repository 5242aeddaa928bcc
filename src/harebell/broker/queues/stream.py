"""The stream queue: a log that consumers read. Every message stays, has an offset, and is on disk.

A queue that is deleted and declared again has another `id`. A consumer that names one (`x-queue-id`) is refused by any
other queue of that name, so that a reader that goes on at an offset never takes another stream for its own.

Each consumer has its own place (`x-stream-offset`: first, last, next, an offset, a timestamp, or an interval such as
"1h"). Acknowledgements only open the window. Readers see what is synced, so that an offset that was read always means
the same message. Retention (`x-max-age`, `x-max-length-bytes`) drops whole old segments of the log, every few seconds
and whenever one is full. Every delivery carries its offset in the header `x-stream-offset`, as RabbitMQ's do. Messages
that do not match a consumer's filter (`stream_filter`) or selector are skipped.

RabbitMQ's refusals on streams apply here too: no prefetch (406); no_ack, basic.get, nack, reject, purge (540).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Final

from harebell.broker.message import STORED_CHANNEL, Held, Message
from harebell.broker.queues.base import Back, Home, Queue
from harebell.broker.queues.consumer import Consumer, Getter
from harebell.broker.queues.decorators import Verdict
from harebell.broker.queues.selection.facts import RecordFacts
from harebell.broker.queues.stream_filter import StreamFilter, stream_filter
from harebell.broker.store.stream_log.log import SEGMENT_BYTES, StreamCursor, StreamLog
from harebell.broker.timers import Timer
from harebell.defaults import FRAME_MAX
from harebell.errors import NotImplemented as NotImplemented540, PreconditionFailed
from harebell.protocol.v091 import FieldValue, Table
from harebell.protocol.v091.splice import STREAM_OFFSET, replace_properties
from harebell.routing.settings import QueueSettings, age_milliseconds
from harebell.routing.table_values import erlang_term, type_name

__all__ = ["QUEUE_ID", "StreamQueue"]

QUEUE_ID: Final = "x-queue-id"
"""The consumer argument that names the one stream that it is for, by its `id`."""

SHARE: Final = 256  # messages per turn of a consumer
RETENTION_MS: Final = 5_000
"""The interval at which a stream with a max-age checks for old segments."""


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class StreamQueue(Queue):
    type = "stream"
    stored = True

    def __init__(self, vhost: Home, name: str, arguments: Table, settings: QueueSettings, log: StreamLog) -> None:
        super().__init__(
            vhost, name, durable=True, exclusive=False, auto_delete=False, arguments=arguments, owner=None,
            settings=settings,
        )  # fmt: skip
        self.log = log
        self._cursors: dict[Consumer, StreamCursor] = {}
        self._filters: dict[Consumer, StreamFilter] = {}
        self._unwritten = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._served = 0  # readers that had their turn when a share of time ended
        self._retention: Timer | None = None
        self._set_retention()

    @property
    def id(self) -> str:
        """The name of this very stream: no other one, of this broker or another, ever has it. A restart keeps it."""
        return self.log.path.name

    @property
    def message_count(self) -> int:
        """The number of offsets that readers may ask for, damaged ones included: a restart does not change it."""
        return self.log.durable - self.log.first

    def publish(self, message: Message) -> bool:
        if self.deleted:
            return True  # the queue was deleted after a transaction was routed, and its log is closed
        if self.judges and (verdict := self.judge(message)) is not Verdict.ADMIT:
            return verdict is Verdict.DISCARD
        content = message.content
        frames = content.recut(STORED_CHANNEL, FRAME_MAX)
        if STREAM_OFFSET.may_be_in(frames):
            properties = content.decode_properties()
            properties.headers = {k: v for k, v in (properties.headers or {}).items() if k != STREAM_OFFSET.name}
            frames = replace_properties(frames, properties)
        self.log.append(message.address.wire, STREAM_OFFSET.pieces(frames, self.log.next_offset), number=message.number)
        if not self._unwritten:
            self._unwritten = True
            self.batch.written.append(self)
        if self.judges:
            self.notify_enqueued()
        return True

    def close(self) -> None:
        self.log.close()

    def flush(self) -> int:
        """Write the batch to the log. Returns the ticket of the sync that will cover it."""
        self._unwritten = False
        return self.log.flush()

    def advance(self) -> None:
        """Show readers the messages that a finished sync covered."""
        if self.log.advance():
            while self._waiting and self._waiting[0][0] <= self.log.durable:
                self._waiting.popleft()[1]()
            if self.log.rolled:
                self._retain()
            if self.consumers:
                self.schedule()

    def when_durable(self, callback: Callable[[], None]) -> None:
        self._waiting.append((self.log.next_offset, callback))

    def reconfigure(self, settings: QueueSettings) -> None:
        super().reconfigure(settings)
        self._set_retention()

    def forget(self) -> None:
        super().forget()
        if self._retention is not None:
            self._retention.cancel()
        while self._waiting:
            self._waiting.popleft()[1]()

    def _set_retention(self) -> None:
        log, settings = self.log, self.settings
        size = settings.stream_max_segment_size_bytes
        log.segment_bytes = SEGMENT_BYTES if size is None else size
        log.max_bytes, log.max_age = settings.max_length_bytes, settings.max_age
        self._retain()

    def _retain(self) -> None:
        """Drop segments that are too old or too many; set a timer while segments can become too old."""
        if self._retention is not None:
            self._retention.cancel()
            self._retention = None
        try:
            self.log.retain(wall_clock())
        except OSError as error:
            self.batch.fail(error)
        if self.log.max_age is not None:
            self._retention = self.timers.at(self.timers.now() + RETENTION_MS, self._retain)

    def deliver_share(self) -> bool:
        """Deliver to readers in turn, until none has room or messages left to read, or for one share of time."""
        share, progress, used = self.batch.slices.share.begin(), True, False
        readers = deque(self.consumers)
        readers.rotate(-self._served)  # the share before this one may have ended with another reader's turn
        while progress:
            progress = False
            for served, consumer in enumerate(readers, self._served):
                room, cursor = consumer.room(), self._cursors[consumer]
                if room > 0 and cursor.offset < self.log.durable:
                    if used:
                        self._served = served % len(readers)
                        return False
                    selector = consumer.selector
                    most = SHARE if selector is None else max(1, SHARE // (8 + selector.steps))
                    records = cursor.read(min(room, most))
                    progress = True
                    used = share.spend(2 * len(records) * SHARE // most)
                    if consumer in self._filters:
                        records = [record for record in records if self._filters[consumer].wants(record.frames)]
                    if selector is not None:
                        records = [record for record in records if selector.wants(RecordFacts(record))]
                    consumer.feed_records(records)
        return True

    def add_consumer(self, consumer: Consumer) -> None:
        wanted_id = consumer.arguments.get(QUEUE_ID, self.id)
        if wanted_id != self.id:
            raise PreconditionFailed(
                f"invalid arg '{QUEUE_ID}' for {self}: it is '{self.id}', not {erlang_term(wanted_id)}; it was deleted "
                "and declared again"
            )
        cursor = self.log.cursor(self._start(consumer.arguments.get(STREAM_OFFSET.name, "next")))
        wanted = stream_filter(consumer.arguments, str(self))
        super().add_consumer(consumer)
        self._cursors[consumer] = cursor
        if wanted is not None:
            self._filters[consumer] = wanted

    def remove_consumer(self, consumer: Consumer) -> None:
        super().remove_consumer(consumer)
        self._cursors.pop(consumer, None)
        self._filters.pop(consumer, None)

    def _start(self, value: FieldValue) -> int:
        """The offset that a value of x-stream-offset means now. PreconditionFailed for an invalid value."""
        log = self.log
        match value:
            case "first":
                return log.first
            case "last":
                return log.last_batch
            case "next":
                return log.durable
            case bool() | None:
                pass
            case int():
                return max(value, log.first)
            case datetime():
                return log.offset_at(int(value.timestamp() * 1000))
            case str() if (age := age_milliseconds(value)) is not None:
                return log.offset_at(wall_clock() - age)
        raise PreconditionFailed(
            f"invalid arg '{STREAM_OFFSET.name}' for {self}: "
            f"{{invalid_stream_offset_arg,{{{type_name(value)},{erlang_term(value)}}}}}"
        )

    def can_deliver(self, message: Message) -> bool:
        return any(consumer.room() > 0 for consumer in self.consumers)

    def check_consume(self, no_ack: bool, prefetch: int) -> None:
        if not prefetch:
            raise PreconditionFailed(f"consumer prefetch count is not set for stream {self}")
        if no_ack:
            raise NotImplemented540(f"automatic acknowledgement not supported by stream {self}")

    def check_negative(self, methods: str, requeue: bool) -> None:
        if requeue:
            raise NotImplemented540(f"{methods} not supported by stream queues {self}")

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        raise NotImplemented540(f"basic.get not supported by stream queues {self}")

    def requeue(self, entries: Iterable[Back], *, failed: bool, counted: bool = True) -> None:
        """Do nothing: the log still has the messages, and their consumer is gone."""

    def reject(self, entries: Iterable[Back]) -> None:
        """Do nothing: the log keeps its messages for other readers, as after an ack."""

    def purging(self) -> Generator[None, None, int]:
        raise NotImplemented540(f"queue.purge not supported by stream queues {self}")
