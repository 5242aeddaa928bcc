"""The unacknowledged deliveries of a channel, and their settlement, requeueing and redelivery.

One table for consumers and basic.get, because delivery tags are the channel's. Tags grow, so the table is in tag
order and a `multiple` takes from its front. Many deliveries are settled in shares, so that other clients have their
turns in between (`queues.settling`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from typing import Final, Protocol

from harebell.broker.counts import ChannelCounts
from harebell.broker.message import to_held
from harebell.broker.queues.base import Back, Queue
from harebell.broker.queues.settling import DELIVERIES_PER_STEP, returning
from harebell.broker.slices import Work
from harebell.broker.v091.consumer import Consumer, Entry
from harebell.errors import PreconditionFailed

__all__ = ["Unacked", "check_negative"]


TAGS_PER_LOOKUP: Final = 8192  # delivery tags looked up at a time


class UnackedChannel(Protocol):
    """The channel of the deliveries: its window and its counts."""

    counts: ChannelCounts
    credit: int

    @property
    def consumers(self) -> Mapping[str, Consumer]: ...


class Unacked:
    """The deliveries by tag. `watched` once a queue asked to be notified of each acknowledgement (`Queue.acked`).

    `first`: none below this tag is outstanding. A table whose front was taken is slow to look through from its
    beginning, so that a `multiple` looks for each tag from `first` on, where these are not too many.

    `_restoring` is the work of a long `restore`. Until it is done, `_aside` deliveries are not in `entries`, but new
    ones are.
    """

    __slots__ = ("_aside", "_channel", "_restoring", "_turn", "entries", "first", "watched")

    def __init__(self, channel: UnackedChannel) -> None:
        self._channel = channel
        self.entries: dict[int, Entry] = {}
        self.first = 1
        self.watched = False
        self._turn = 0
        self._restoring: Work | None = None
        self._aside = 0

    def __len__(self) -> int:
        return len(self.entries) + self._aside

    def take(self, tag: int, multiple: bool) -> dict[int, Entry]:
        """Take deliveries out of the table, to settle them. PreconditionFailed for a tag that is not outstanding."""
        entries = self.entries
        if not multiple:
            entry = entries.pop(tag, None)
            if entry is None:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            return {tag: entry}
        if tag == 0:  # specification 1.8.3.13: all outstanding messages
            taken = dict(entries)
            entries.clear()
            return taken
        taken = {each: entries.pop(each) for each in self.tags(tag, multiple)}
        self.first = tag + 1
        return taken

    def is_long(self, multiple: bool, tag: int = 0) -> bool:
        """Whether a settlement may be for so many deliveries that it has to be done in shares (`tag`: the last)."""
        return (
            multiple
            and len(self.entries) > DELIVERIES_PER_STEP
            and not self.first <= tag < self.first + DELIVERIES_PER_STEP
        )

    def shares(self, tag: int) -> Iterator[dict[int, Entry]]:
        """Take the deliveries up to a tag (0: all outstanding ones) out of the table, a share at a time.

        PreconditionFailed for a tag that is not outstanding.
        """
        if tag and tag not in self.entries:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if tag == 0 and self._restoring is None:
            tag = next(reversed(self.entries), 0)
        return _shares(self, tag)

    def shares_of(self, tags: Sequence[int]) -> Iterator[dict[int, Entry]]:
        """Take the deliveries with these tags, where they are outstanding, out of the table, a share at a time."""
        for start in range(0, len(tags), DELIVERIES_PER_STEP):
            entries, taken = self.entries, dict[int, Entry]()
            for tag in tags[start : start + DELIVERIES_PER_STEP]:
                entry = entries.pop(tag, None)
                if entry is not None:
                    taken[tag] = entry
            yield taken

    def checked(self, tag: int, methods: str, *, requeue: bool) -> Work:
        """As `check_negative`, for the deliveries up to a tag (0: all), in steps."""
        tags = list(self.entries)
        for start in range(0, len(tags), TAGS_PER_LOOKUP):
            some = tags[start : start + TAGS_PER_LOOKUP]
            if tag and some[-1] > tag:
                some = [each for each in some if each <= tag]
            entries = self.entries
            check_negative([entries[each] for each in some if each in entries], methods, requeue=requeue)
            if not some:
                return
            yield

    def tags(self, tag: int, multiple: bool) -> list[int]:
        """The tags that a tag and `multiple` mean, oldest first. PreconditionFailed for one that is not outstanding."""
        if multiple and tag == 0:
            return list(self.entries)
        if tag not in self.entries:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if not multiple:
            return [tag]
        entries, first = self.entries, self.first
        if tag - first < len(entries) + DELIVERIES_PER_STEP:
            return [each for each in range(first, tag + 1) if each in entries]
        tags = []
        for each in entries:
            tags.append(each)
            if each == tag:
                break
        return tags

    def restore(self, settled: Iterator[dict[int, Entry]], count: int) -> None:
        """Put `count` deliveries back into the table: their transaction was rolled back. Many: `restoring` does it."""
        self._restoring, self._aside = self._merging(settled), count
        if len(self) <= DELIVERIES_PER_STEP:
            for _ in self.restoring():
                pass

    def restoring(self) -> Work:
        """Do the rest of `restore`, in steps. Until then no delivery may be taken out of the table by its tag."""
        while self._restoring is not None:
            yield from self._restoring

    def _merging(self, settled: Iterator[dict[int, Entry]]) -> Work:
        restored, runs = dict[int, Entry](), list[Iterable[int]]()
        while run := _run(settled, restored):
            runs.append(run)
            yield
        before, merged = self._set_aside(), dict[int, Entry]()
        tags = merge(*runs, before)
        while share := list(islice(tags, DELIVERIES_PER_STEP)):
            for tag in share:
                entry = restored.pop(tag, None)
                merged[tag] = before[tag] if entry is None else entry
            yield
        while len(self.entries) > DELIVERIES_PER_STEP:  # delivered meanwhile: their tags are higher
            new = iter(self._set_aside().items())
            while some := list(islice(new, DELIVERIES_PER_STEP)):
                merged.update(some)
                yield
        merged |= self.entries
        self.entries, self._aside, self._restoring = merged, 0, None
        self.first = min(self.first, next(iter(merged), self.first))

    def _set_aside(self) -> dict[int, Entry]:
        entries, self.entries = self.entries, {}
        self._aside += len(entries)
        return entries

    def ack_one(self, tag: int) -> None:
        """Acknowledge one delivery: as `take` and `ack`, without a table for it."""
        entry = self.entries.pop(tag, None)
        if entry is None:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        queue, consumer, _, _ = entry
        channel = self._channel
        if consumer is None or consumer.cancelled or queue.stored or self.watched or channel.credit <= 0:
            self.ack({tag: entry})
            return
        consumer.acked += 1
        consumer.credit += 1
        channel.credit += 1
        if consumer.aside:
            consumer.queue.consumers.reopen(consumer)
        if not queue.scheduled:
            queue.wake()

    def ack_each(self, tags: Sequence[int]) -> None:
        """Acknowledge these deliveries, as one after the other.

        PreconditionFailed for the first tag that is not outstanding; the deliveries before it are acknowledged.
        """
        entries, taken, unknown = self.entries, dict[int, Entry](), -1
        for tag in tags:
            entry = entries.pop(tag, None)
            if entry is None:
                unknown = tag
                break
            taken[tag] = entry
        self.ack(taken)
        if unknown >= 0:
            raise PreconditionFailed(f"unknown delivery tag {unknown}")

    def ack(self, taken: dict[int, Entry], *, when_safe: bool = False) -> None:
        """Acknowledge deliveries: open the windows again, and count.

        `when_safe`: stored queues settle the messages only when the batch's writes are on the disk.
        """
        opened = self._release(taken.values())
        stored = False
        for consumer, count in opened.items():
            consumer.acked += count
            stored = stored or consumer.queue.stored
            if consumer.cancelled:
                consumer.flush_counts()
        if sum(opened.values()) < len(taken):
            for queue, got_by, _, _ in taken.values():
                if got_by is None:  # basic.get
                    stored = stored or queue.stored
                    queue.counts.ack += 1
                    self._channel.counts.ack += 1
        if stored:
            by_queue: dict[Queue, list[int]] = {}
            if len(opened) == 1 and sum(opened.values()) == len(taken):
                by_queue[next(iter(opened)).queue] = [entry[2] for entry in taken.values()]
            else:
                for queue, _, position, _ in taken.values():
                    by_queue.setdefault(queue, []).append(position)
            for queue, positions in by_queue.items():
                if when_safe:
                    queue.batch.when_safe(partial(queue.settle, positions))
                else:
                    queue.settle(positions)
        if self.watched:
            for queue, _, _, message in taken.values():
                queue.acked(message)

    def reject(self, taken: dict[int, Entry], requeue: bool, *, failed: bool = False) -> None:
        """Reject deliveries: they return to their queues, or are dropped or dead-lettered.

        `failed`: the consumer rejected them, timed out or is gone, rather than gave them back (see delayed retry).
        """
        self._give_back(taken.values(), requeue, failed)

    def requeue_all(self, *, failed: bool, queues: Iterable[Queue] = ()) -> Work:
        """Return all deliveries to their queues; `failed` when the channel closes.

        `queues`: those that deliver nothing until all have returned, besides those to which the first ones do.
        """
        also = queues if len(self) > DELIVERIES_PER_STEP else ()
        return returning(self.shares(0), lambda taken: self._give_back(taken.values(), True, failed), also)

    def redeliver_all(self) -> Work:
        """basic.recover(requeue=false): deliver each message again, with a new tag, to the same consumer.

        Deliveries of basic.get, or of a cancelled consumer, return to the queue. RabbitMQ answers 540 here.
        """
        return returning(self.shares(0), lambda taken: self._redeliver(taken.values()))

    def _redeliver(self, entries: Collection[Entry]) -> None:
        for queue in {entry[0] for entry in entries}:
            queue.before_requeue()
        self._release(entries)
        for queue, consumer, position, message in entries:
            if message is None:
                continue  # browsed, and still in its queue
            if consumer is None or consumer.cancelled:
                queue.requeue([(position, message)], failed=False)
            else:
                held = to_held(message, position)
                held.count += 1
                consumer.redeliver(held)

    def _release(self, entries: Iterable[Entry]) -> dict[Consumer, int]:
        """Open the consumers' windows again, and let their queues deliver. Returns the number of deliveries of each."""
        opened: dict[Consumer, int] = {}
        for _, consumer, _, _ in entries:
            if consumer is not None:
                opened[consumer] = opened.get(consumer, 0) + 1
        channel = self._channel
        was_full = channel.credit <= 0
        for consumer, count in opened.items():
            consumer.credit += count
            channel.credit += count
            consumer.queue.reopened(consumer)
        if was_full and channel.credit > 0:
            self._schedule_in_turn()
        return opened

    def _schedule_in_turn(self) -> None:
        """Let the queues of all consumers deliver, another one first each time: they share the channel's window."""
        consumers = list(self._channel.consumers.values())
        self._turn = (self._turn + 1) % max(1, len(consumers))
        for consumer in reversed(consumers[self._turn :] + consumers[: self._turn]):  # the last one delivers first
            consumer.queue.schedule()

    def _give_back(self, entries: Collection[Entry], requeue: bool, failed: bool) -> None:
        by_queue: dict[Queue, list[Back]] = {}
        for queue, _, position, message in entries:
            if message is not None:
                by_queue.setdefault(queue, []).append((position, message))
        if requeue:
            for queue in by_queue:
                queue.before_requeue()
        self._release(entries)
        for queue, back in by_queue.items():
            if requeue:
                queue.requeue(back, failed=failed)
            else:
                queue.reject(back)


def _run(settled: Iterator[dict[int, Entry]], restored: dict[int, Entry]) -> list[int]:
    """Add about a share of what was settled to `restored`. Returns its tags in order; [] at the end."""
    run = list[int]()
    for taken in settled:
        restored |= taken
        run += taken
        if len(run) >= DELIVERIES_PER_STEP:
            break
    run.sort()
    return run


def _shares(unacked: Unacked, last: int) -> Iterator[dict[int, Entry]]:
    for _ in unacked.restoring():
        yield {}
    last = last or next(reversed(unacked.entries), 0)
    while tags := list(takewhile(lambda tag: tag <= last, islice(unacked.entries, TAGS_PER_LOOKUP))):
        yield from unacked.shares_of(tags)
    unacked.first = max(unacked.first, last + 1)


def check_negative(entries: Iterable[Entry], methods: str, *, requeue: bool) -> None:
    """Raise when a queue among those of the deliveries takes no delivery back."""
    for queue in {entry[0] for entry in entries}:
        queue.check_negative(methods, requeue)
