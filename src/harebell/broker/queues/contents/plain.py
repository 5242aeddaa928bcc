"""The ready messages of a classic queue, in one of three forms behind one interface (`Contents`).

    PlainContents      in memory: a deque of messages not delivered yet, and those that came back (`Returned`)
    JournaledContents  the same with a journal: all messages are on disk, and only the head of a long backlog in memory
    backlog.Backlog    for messages that may leave from the middle: by priority, by deadline, by limits

Messages that came back go first, because they keep their old position, as in RabbitMQ. In the first two forms positions
count messages, so none needs to be stored. A queue begins plain, gets a journal when it is made durable, and a backlog
when something needs one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.broker.message import Held, Message
from harebell.broker.queues.contents.removed import Removed
from harebell.broker.queues.contents.returned import Returned
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Share
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.queue_log.records import Stored

__all__ = ["Contents", "JournaledContents", "PlainContents", "next_run"]

log = logging.getLogger("harebell.broker.queue")

FEED: Final = 1024  # messages that one consumer gets until the share is looked at
TURN: Final = 8  # what a consumer's turn costs, beside its messages, in a share


class Contents(Protocol):
    """The ready messages, in the order of their delivery."""

    @property
    def count(self) -> int:
        """The number of messages."""

    @property
    def end(self) -> int:
        """The position of the next new message."""

    def pop(self) -> Held | None:
        """Take the next message."""

    def put_back(self, held: Held) -> object:
        """Put a message that was taken back to its old place."""

    def deliver(self, consumers: Consumers, share: Share) -> bool:
        """Deliver to consumers in turn, up to their windows, for one share. Returns whether there is no more to do."""

    def is_ready(self, held: Held) -> bool:
        """Whether a message that was in the contents is in them now."""

    def remove_all(self) -> Removed:
        """Remove everything but what is on disk only (`Journal.settle_paged`)."""


class PlainContents:
    """Messages in memory: `ready` are undelivered, the first is at `position`; `returned` ones came back."""

    __slots__ = ("position", "ready", "returned")

    def __init__(self) -> None:
        self.ready: deque[Message] = deque()
        self.returned = Returned()
        self.position = 0

    @property
    def count(self) -> int:
        return len(self.ready) + len(self.returned)

    @property
    def end(self) -> int:
        return self.position + len(self.ready)

    def put(self, message: Message) -> None:
        """Add a new message at the end."""
        self.ready.append(message)

    def put_all(self, messages: list[Message]) -> None:
        """Add new messages at the end."""
        self.ready.extend(messages)

    def pop(self) -> Held | None:
        if self.returned.blocks:
            return self.pop_returned()
        if self.ready:
            self.position += 1
            return Held(self.ready.popleft(), self.position - 1)
        return None

    def pop_returned(self) -> Held:
        """Take the first of the messages that came back; there must be one."""
        held = self.returned.pop()
        held.gone = True
        return held

    def put_back(self, held: Held) -> None:
        held.gone = False
        self.returned.push(held)

    def deliver(self, consumers: Consumers, share: Share) -> bool:
        ready, returned, fed = self.ready, self.returned.blocks, 0
        while (ready or returned) and (turn := consumers.next()) is not None:
            if fed and share.spend(fed):
                return False
            consumer, room = turn
            if returned:
                consumer.redeliver(self.pop_returned())
                fed = TURN
                continue
            # Several consumers take strict turns, as with RabbitMQ; a single one takes up to its window.
            count = room if consumers.only is not None or consumers.single else 1
            fed = consumer.feed(ready, self.position, min(count, len(ready), FEED), None)
            self.position += fed
            fed += TURN
        return True

    def take_next(self) -> list[Held]:
        """Take one or more of the next messages, in order; [] when there is none."""
        held = self.pop()
        return [] if held is None else [held]

    def is_ready(self, held: Held) -> bool:
        return held.position >= self.position or not held.gone

    def remove_all(self) -> Removed:
        ready, returned = self.ready, self.returned
        removed = Removed(len(ready) + len(returned), (returned,), (ready,), self.position, len(ready))
        self.position += len(ready)
        self.ready, self.returned = deque(), Returned()
        return removed


class JournaledContents(PlainContents):
    """Messages of a queue with a journal. `before` is its earlier contents; `name` is the queue's, for log lines.

    `deadline` is that of a new message, once the queue has messages that expire; only the disk has it.
    """

    __slots__ = ("_batch", "_name", "deadline", "journal")

    def __init__(self, journal: Journal, before: PlainContents, batch: Batch, name: str) -> None:
        self.ready, self.returned = before.ready, before.returned
        self.position = journal.page_at if journal.paged else journal.next
        self.journal = journal
        self.deadline: Callable[[Message], int] | None = None
        self._batch, self._name = batch, name

    @property
    def count(self) -> int:
        return len(self.ready) + len(self.returned) + self.journal.paged

    @property
    def end(self) -> int:
        return self.journal.next

    def put(self, message: Message) -> None:
        """Write a message, and keep it in memory unless there is a long backlog."""
        journal, ready = self.journal, self.ready
        position = journal.next
        journal.next = position + 1
        deadline = 0 if self.deadline is None else self.deadline(message)
        if journal.paged or journal.is_full(len(ready), message):
            journal.page_out(position, message, deadline)
        else:
            if not ready:
                self.position = position
            journal.store(position, message, deadline)
            ready.append(message)

    def put_again(self, message: Message) -> None:
        """Write a message that may have been delivered before: only the disk has it, where that is noted."""
        journal = self.journal
        held = Held(message, journal.next)
        held.count = 1
        journal.next += 1
        journal.page_out(held.position, message, 0 if self.deadline is None else self.deadline(message))
        journal.returned(held)

    def put_all(self, messages: list[Message]) -> None:
        if self.deadline is not None:
            for message in messages:
                self.put(message)
            return
        journal, ready, position, fitting = self.journal, self.ready, self.journal.next, 0
        if not journal.paged:
            for count, message in enumerate(messages, len(ready)):
                if journal.is_full(count, message):
                    break
                fitting += 1
        if fitting:
            if not ready:
                self.position = position
            some = messages if fitting == len(messages) else messages[:fitting]
            journal.store_all(position, some)
            ready.extend(some)
        if fitting < len(messages):
            journal.page_all_out(position + fitting, messages[fitting:])
        journal.next = position + len(messages)

    def pop(self) -> Held | None:
        if not self.ready and not self.returned.blocks:
            self._read_more()
        return super().pop()

    def take_next(self) -> list[Held]:
        """As in memory; those on disk come with their deadlines."""
        if self.ready or self.returned.blocks:
            return super().take_next()
        journal = self.journal
        run = next_run(journal, self._batch, self._name)
        self.position = run[-1].position + 1 if run else journal.next
        return [journal.held(stored) for stored in run]

    def deliver(self, consumers: Consumers, share: Share) -> bool:
        ready, returned, journal, fed = self.ready, self.returned.blocks, self.journal, 0
        while (ready or returned or self._read_ahead()) and (turn := consumers.next()) is not None:
            if fed and share.spend(fed):
                return False
            consumer, room = turn
            fed = TURN
            if returned:
                held = self.pop_returned()
                # Before it can leave the process; one that does not fit is requeued.
                journal.handed(held, consumer.no_ack and consumer.takes(held))
                consumer.redeliver(held)
                continue
            count = room if consumers.only is not None or consumers.single else 1
            if ready:
                fed = consumer.feed(ready, self.position, min(count, len(ready), FEED), journal)
                self.position += fed
                fed += TURN
            else:
                fed = TURN + consumer.feed_ahead(journal, min(count, FEED))
                self.position = journal.page_at
        return True

    def _read_ahead(self) -> bool:
        """Read ahead in a long backlog, when memory has no messages. Returns whether there are any."""
        return self.journal.read_ahead() > 0 or self._read_more()

    def _read_more(self) -> bool:
        """Read messages of a long backlog into memory, which has none. Returns whether there were any."""
        journal = self.journal
        run = next_run(journal, self._batch, self._name)
        # Transient messages after the run may have ended with the process: then the next position leaves a gap, and
        # does not follow from the run's.
        gap = run and not journal.paged and run[-1].position + 1 != journal.next
        if run and (run[0].delivered or gap):
            for stored in run:
                self.returned.push(journal.held(stored))
            self.position = run[-1].position + 1
        elif run:
            self.position = run[0].position
            self.ready.extend(map(journal.message, run))
        return bool(run)


def next_run(journal: Journal, batch: Batch, name: str) -> list[Stored]:
    """The next messages that are only on disk, those of the current batch among them; [] at their end."""
    if not journal.paged:
        return []
    run = journal.next_run()
    if not run:  # the rest is in the current batch
        batch.write()
        run = journal.next_run()
    if not run:
        log.error("%s: %d messages on disk cannot be read", name, journal.forget_paged())
    return run
