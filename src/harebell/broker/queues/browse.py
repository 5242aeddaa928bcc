"""Browsing: a consumer that reads a queue's ready messages and takes none out.

`basic.consume` with the argument `x-browse` gets a view of the queue instead of the queue. The view shows the ready
messages in the order of their delivery, and then new ones; with "once" it stops at the first message published after it
began, and its consumer is cancelled. It only goes forward: it shows no message that returns to a place before the last
one shown, nor one that left before its turn, and none twice when messages move to other levels of priority. The queue
ignores the consumer in turns, x-expires, auto-delete, exclusive use and counts.

Entering a queue in its middle takes time (a deque or an ordered dictionary must be walked through), so the view reads
ahead more messages the further it had to walk, and checks at each one's turn whether it is still ready. What a
consumer's selector does not want is passed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Final, Self

from harebell.broker.message import Held, Message
from harebell.broker.queues.base import Back, Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.consumer import Consumer, Getter
from harebell.broker.queues.selection.facts import HeldFacts
from harebell.broker.queues.turns import Consumers
from harebell.errors import PreconditionFailed
from harebell.routing.settings import MAX_PRIORITY, QueueSettings

__all__ = ["BROWSE", "View", "Walk"]

BROWSE: Final = "x-browse"
"""The argument of a consumer that browses: true, or "once"."""

SHOWN: Final = 16  # what a message costs in a share
AHEAD: Final = 256  # messages read ahead at least
WALK: Final = 64  # ... and one for so many skipped: reading the whole queue walks it about WALK times


class Walk:
    """The way through the ready messages of the queue `source`, in the order of their delivery; nothing is taken out.

    `until` is the position of the first message that is not shown; None: new ones are shown too. As a context it is for
    one who looks once, in steps: it shows what is there at the beginning, and knows of what comes back meanwhile.

    It reads one form of contents: while the source is enriching, `next` must not be called.
    """

    def __init__(self, source: ClassicQueue) -> None:
        self.source = source
        self.until: int | None = None
        self.consumers = Consumers(single=False)  # none
        self._cursors: dict[int, _Cursor] = {}  # by level
        self._floors: list[int] | None = None  # by priority: what had other levels was passed up to these positions

    def __enter__(self) -> Self:
        self.until = self.source.contents.end
        self.source.views.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.source.views.remove(self)

    def next(self) -> Held | None:
        """The next message, which counts as shown unless it `was_passed`; None when there is no more."""
        backlog = self.source.backlog
        for level in range(backlog.top if backlog is not None else 0, -1, -1):
            if level not in self._cursors:
                self._cursors[level] = _Cursor(level)
            held = self._cursors[level].next(self.source, self.until)
            if held is not None:
                return held
        return None

    def was_passed(self, held: Held) -> bool:
        """Whether a message had its turn before the queue had other levels."""
        return self._floors is not None and held.position < self._floors[held.message.content.priority]

    def releveled(self, levels: Sequence[int] | None) -> None:
        """Note that the messages of each priority were on these levels (None: on one), and are on others now."""
        floors = self._floors or [0] * (MAX_PRIORITY + 1)
        for priority, floor in enumerate(floors):
            cursor = self._cursors.get(0 if levels is None else levels[priority])
            if cursor is not None:
                floors[priority] = max(floor, cursor.passed)
        self._floors = floors
        self._cursors.clear()

    def refresh(self, highest: int | None = None) -> None:
        """Note that messages came back, none to a place above `highest`; None: the contents have another form."""
        for cursor in self._cursors.values():
            cursor.refresh(highest)

    def schedule(self) -> None:
        """Do nothing: who looks goes on by itself."""

    def forget(self) -> None:
        """Do nothing: a deleted queue has no messages."""


class View(Queue):
    """The view of the queue `source` for one browsing consumer. An acknowledgement or a requeue opens its window."""

    type = "view"

    def __init__(self, source: ClassicQueue) -> None:
        super().__init__(
            source.vhost, source.name, durable=False, exclusive=False, auto_delete=False, arguments={}, owner=None,
            settings=QueueSettings(consumer_timeout=source.settings.consumer_timeout),
        )  # fmt: skip
        self.source = source
        self._walk = Walk(source)

    def add_consumer(self, consumer: Consumer) -> None:
        super().add_consumer(consumer)
        if consumer.arguments[BROWSE] == "once":
            self._walk.until = self.source.contents.end
        self.source.views.append(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        super().remove_consumer(consumer)
        if self in self.source.views:
            self.source.views.remove(self)

    @property
    def message_count(self) -> int:
        return self.source.message_count

    def postpones(self, consumer: Consumer) -> bool:
        return self.source.is_enriching

    def deliver_share(self) -> bool:
        """Show messages up to the consumer's window, for one share of time."""
        if not self.source.drop_expired():
            return False
        if self.source.is_enriching:  # the view is scheduled when that is done
            return True
        share = self.batch.slices.share.begin()
        for consumer in tuple(self.consumers):
            while consumer.room() > 0:
                held = self._walk.next()
                if held is None:
                    if self._walk.until is not None:
                        self.remove_consumer(consumer)
                        consumer.cancelled_by_broker()
                    return True
                if not self._walk.was_passed(held) and (
                    consumer.selector is None or consumer.selector.wants(HeldFacts(held, self.timers))
                ):
                    consumer.show(held)
                if share.spend(SHOWN if consumer.selector is None else SHOWN + consumer.selector.steps):
                    return False
        return True

    def refresh(self, highest: int | None = None) -> None:
        """Note that messages came back, none to a place above `highest`; None: the contents have another form."""
        self._walk.refresh(highest)

    def releveled(self, levels: Sequence[int] | None) -> None:
        """Note that the messages of each priority were on these levels (None: on one), and are on others now."""
        self._walk.releveled(levels)

    def check_negative(self, methods: str, requeue: bool) -> None:
        """Refuse a drop: nothing was taken. A requeue is allowed, because clients do it when they close."""
        if not requeue:
            raise PreconditionFailed(f"{methods} without requeue by a consumer that browses {self}: it takes nothing")

    # A view takes no publications, and shown messages do not return to it.

    def publish(self, message: Message) -> bool:
        return True

    def can_deliver(self, message: Message) -> bool:
        return False

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        return None

    def requeue(self, entries: Iterable[Back], *, failed: bool, counted: bool = True) -> None:
        pass

    def reject(self, entries: Iterable[Back]) -> None:
        pass

    def purging(self) -> Generator[None, None, int]:
        yield from ()
        return 0


class _Cursor:
    """A place among the messages of one priority, after the last one shown: position `passed`."""

    __slots__ = ("_ahead", "_level", "_read", "passed")

    def __init__(self, level: int) -> None:
        self._level = level
        self.passed = self._read = 0  # positions; the messages between them are in _ahead
        self._ahead: deque[Held] = deque()

    def next(self, source: ClassicQueue, until: int | None) -> Held | None:
        """The next ready message, which counts as shown."""
        end = source.contents.end if until is None else until
        while True:
            while self._ahead and self._ahead[0].position < end:
                held = self._ahead.popleft()
                if source.contents.is_ready(held):  # otherwise it may return, and was not shown
                    self.passed = held.position + 1
                    return held
            if self._ahead or self._read >= end:
                return None
            self._read_ahead(source)

    def _read_ahead(self, source: ClassicQueue) -> None:
        backlog, start, end = source.backlog, self._read, source.contents.end
        if backlog is None:
            found, limit = _plain_after(source, start)
        else:
            limit = max(AHEAD, backlog.count // WALK)
            found = backlog.after(self._level, start, limit, end)
        self._ahead.extend(found)
        self._read = end if len(found) < limit else found[-1].position + 1

    def refresh(self, highest: int | None) -> None:
        if highest is None or highest >= self.passed:
            self._ahead.clear()
            self._read = self.passed


def _plain_after(source: ClassicQueue, start: int) -> tuple[list[Held], int]:
    """Messages of a plain queue from position `start` on, and how many were wanted."""
    line, ready = source.line, source.line.ready
    skip = min(max(0, start - line.position), len(ready))
    limit = max(AHEAD, (skip + len(line.returned)) // WALK)
    found = line.returned.since(start, limit)
    count = min(limit - len(found), len(ready) - skip)
    if len(ready) - skip <= limit:  # near the end: search from there
        messages = list(islice(reversed(ready), len(ready) - skip))[::-1][:count]
    else:
        messages = list(islice(ready, skip, skip + count))
    for position, message in enumerate(messages, line.position + skip):
        held = Held(message, position)
        held.gone = True  # from the queue's head on; until then its position shows that it is ready
        found.append(held)
    if source.journal is not None and source.journal.paged and len(found) < limit:
        source.batch.write()  # only written messages can be read
        for held in source.journal.peek(start, limit - len(found)):
            held.gone = True
            found.append(held)
    return found, limit
