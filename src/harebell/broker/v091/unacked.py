"""The unacknowledged deliveries of a channel, and their settlement, requeueing and redelivery.

One table for consumers and basic.get, because delivery tags are the channel's. Tags grow, so the table is in tag
order and a `multiple` takes from its front.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from harebell.broker.counts import ChannelCounts
from harebell.broker.message import to_held
from harebell.broker.queues.base import Back, Queue
from harebell.broker.v091.consumer import Consumer, Entry
from harebell.errors import PreconditionFailed

__all__ = ["Unacked", "check_negative"]


class UnackedChannel(Protocol):
    """The channel of the deliveries: its window and its counts."""

    counts: ChannelCounts
    credit: int

    @property
    def consumers(self) -> Mapping[str, Consumer]: ...


class Unacked:
    """The deliveries by tag. `watched` once a queue asked to be notified of each acknowledgement (`Queue.acked`)."""

    __slots__ = ("_channel", "entries", "watched")

    def __init__(self, channel: UnackedChannel) -> None:
        self._channel = channel
        self.entries: dict[int, Entry] = {}
        self.watched = False

    def __len__(self) -> int:
        return len(self.entries)

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
        return {each: entries.pop(each) for each in self.tags(tag, multiple)}

    def tags(self, tag: int, multiple: bool) -> list[int]:
        """The tags that a tag and `multiple` mean, oldest first. PreconditionFailed for one that is not outstanding."""
        if multiple and tag == 0:
            return list(self.entries)
        if tag not in self.entries:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if not multiple:
            return [tag]
        tags = []
        for each in self.entries:
            tags.append(each)
            if each == tag:
                break
        return tags

    def restore(self, taken: dict[int, Entry]) -> None:
        """Put deliveries back into the table: their transaction was rolled back."""
        self.entries = dict(sorted((taken | self.entries).items()))

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
        if not queue.scheduled:
            queue.schedule()

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

    def recover(self, requeue: bool) -> None:
        """Return all deliveries to their queues, or deliver them again to the same consumers."""
        check_negative(self.entries.values(), "basic.recover", requeue=True)
        if requeue:
            self.requeue_all(failed=False)
        else:
            self._redeliver_all()

    def requeue_all(self, *, failed: bool) -> None:
        """Return all deliveries to their queues; `failed` when the channel closes."""
        entries = list(self.entries.values())
        self.entries.clear()
        self._give_back(entries, True, failed)

    def _redeliver_all(self) -> None:
        """basic.recover(requeue=false): deliver each message again, with a new tag, to the same consumer.

        Deliveries of basic.get, or of a cancelled consumer, return to the queue. RabbitMQ answers 540 here.
        """
        entries = list(self.entries.values())
        self.entries.clear()
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
            consumer.queue.schedule()
        if was_full and channel.credit > 0:
            for consumer in channel.consumers.values():
                consumer.queue.schedule()
        return opened

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


def check_negative(entries: Iterable[Entry], methods: str, *, requeue: bool) -> None:
    """Raise when a queue among those of the deliveries takes no delivery back."""
    for queue in {entry[0] for entry in entries}:
        queue.check_negative(methods, requeue)
