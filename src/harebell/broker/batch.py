"""The end of a batch: the effects of one read of one connection, each done once and in a fixed order.

While a batch is processed, work gathers here: queues with messages to deliver, stores with data to write, publishers
with confirms, connections with output. `Batch.end` does it all, so that its cost is per batch and not per message:

    deliver      queues deliver to consumers up to their windows
    write        publications and deliveries go to the logs
    charge       the batch's bytes are charged to its publisher until they are synced
    when_safe    callbacks that wait for that sync are called after it
    confirm      publications that are safe already are confirmed
    save         declarations are committed to the catalog, with one sync
    flush        output goes to the sockets

Where dead letters of a batch wait in the line (`letters`), its callbacks and confirms wait for these too, as if the
letters had been published in the batch; the input of the connection that caused them waits too (`LetterWriter`).

A delivery is noted on disk before its client gets it, so that it is never delivered again as a new one. The batch uses
queues and dialects by small protocols only, and knows no sockets.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from harebell.broker.letters import Letters
from harebell.broker.slices import SLICE, Slices, Work
from harebell.broker.store.catalog.catalog import Catalog
from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.timers import Timers

__all__ = ["Batch", "Confirmer", "Debtor", "Deliverer", "LetterWriter", "Sender", "Writer"]

log = logging.getLogger("harebell.broker")


class _Decorator(Protocol):
    def consumer_state_changed(self) -> None: ...


class Deliverer(Protocol):
    """A queue with messages to deliver."""

    scheduled: bool
    deleted: bool

    @property
    def decorators(self) -> Sequence[_Decorator]: ...
    def deliver_share(self) -> bool:
        """Deliver for one share of time. Returns whether everything that can be delivered now is."""


class Writer(Protocol):
    """A stored queue or a delayed exchange with data to write."""

    @property
    def deleted(self) -> bool: ...
    def flush(self) -> int:
        """Write the data. Returns the ticket of the sync that will cover it."""

    def advance(self) -> None:
        """Act on a finished sync: synced data may be shown."""


class Confirmer(Protocol):
    """The confirms of a channel."""

    def end_batch(self, ticket: int) -> bool:
        """Confirm the batch's publications, or let them wait for the sync of this ticket. Returns whether any wait."""

    def confirm(self) -> bool:
        """Confirm what is synced by now. Returns whether any publications are left."""


class Sender(Protocol):
    """A connection with output to send."""

    def flush(self) -> None: ...


class Debtor(Protocol):
    """A publisher that is held back while it owes the disk too many bytes."""

    def charge(self, ticket: int, size: int) -> None:
        """Charge `size` bytes of a batch, until the sync of this ticket."""

    def grant(self) -> None:
        """Credit a finished sync."""


class LetterWriter(Protocol):
    """A connection whose further input waits for the dead letters that it caused."""

    def letters_published(self) -> None:
        """Go on with the input."""


LONG_WRITE: Final = 4 * SLICE
AFTER_LETTERS: Final = 1 << 60  # the ticket of a batch whose letters wait is its number above this
FIRST_WRITE: Final = 0.001  # seconds of a writer that has to make its files; once it has, 20 microseconds and more


def _nothing() -> None:
    pass


class Batch:
    """The batch of a node.

    scheduled, written, confirming, unflushed   the current batch's work
    after_commit                                called once the catalog has the changes
    held                                        publishers that wait for the disk
    failed                                      the error of the store; None: it works
    rearm                                       called after a batch in which the next deadline changed
    slices                                      long work, each slice with a batch of its own
    letters                                     dead letters, some of which wait for later batches
    lettered                                    the batches up to this number have no letters that wait, or are not safe
    awaiting_letters                            connections that wait for the letters of a batch, by its number
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        catalog: Catalog,
        timers: Timers,
        on_failed: Callable[[OSError], None],
        *,
        sync: bool,
        files: Files,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.catalog = catalog
        self.slices = Slices(call_soon, stopwatch, self.end, self.fail)
        self.commit = GroupCommit(call_soon, self._synced, self.fail, sync=sync, files=files)
        self.letters = Letters(self.slices, self.relieve, self._letters_published)
        self.lettered = 0
        self.awaiting_letters: dict[LetterWriter, int] = {}
        self.scheduled: list[Deliverer] = []
        self.written: list[Writer] = []
        self.confirming: list[Confirmer] = []
        self.unflushed: list[Sender] = []
        self.after_commit: list[Callable[[], None]] = []
        self.held: set[Debtor] = set()
        self.failed: OSError | None = None
        self.rearm: Callable[[], None] = _nothing
        self._timers = timers
        self._on_failed = on_failed
        self._ending = self._sweeping = False
        self._ticket = 0  # of the sync that covers the batch's data
        self._last_ticket = 0  # of any batch
        self._seconds_per_writer = FIRST_WRITE  # as the last writes took
        self._postponed: list[Deliverer] = []  # queues that have more to deliver, in a later turn
        self._unsynced: dict[Writer, int] = {}  # writer -> the sync that will cover its data
        self._when_safe: list[Callable[[], None]] = []
        self._safe: deque[tuple[int, list[Callable[[], None]]]] = deque()  # tickets, and callbacks that wait for them
        self._after_letters: dict[int, list[Callable[[], None]]] = {}  # callbacks of batches whose letters wait
        self._covers_letters = False
        self._all_published = 0  # the batches up to this number have no letters that wait since this batch
        self._awaiting: list[Confirmer] = []
        self._drained: Callable[[], None] = _nothing

    def end(self, publisher: Debtor | None = None, size: int = 0) -> None:
        """End a batch of `size` bytes from `publisher`, which is charged for them if the batch wrote to the disk."""
        if self._ending:
            return  # a transport paused or failed inside a flush; the loop below continues
        self._ending = True
        try:
            catalog = self.catalog
            while (
                self.scheduled or self.written or self._when_safe or self.confirming or self.unflushed
                or catalog.changed or self._all_published or self.letters.waits
            ):  # fmt: skip
                try:
                    if self.scheduled:
                        self.deliver()
                    if self.written:
                        self.write()
                except OSError as error:
                    self.fail(error)
                ticket, self._ticket = self._ticket, 0
                if ticket and publisher is not None and ticket > self.commit.synced:
                    publisher.charge(ticket, size)
                self.letters.renew()
                if not self.letters.free:
                    ticket = self._cover_letters(ticket)
                publisher = None
                confirming, self.confirming = self.confirming, []
                if self._when_safe:
                    callbacks, self._when_safe = self._when_safe, []
                    if ticket >= AFTER_LETTERS:
                        self._after_letters.setdefault(ticket - AFTER_LETTERS, []).extend(callbacks)
                    else:
                        self._safe.append((ticket, callbacks))
                        self._call_safe()  # what it confirms is confirmed after the next write
                number, self._all_published = self._all_published, 0
                if number and self.failed is None:
                    self._safe.append((self._last_ticket, [partial(self._letters_safe, number)]))
                    self._call_safe()
                if confirming and self.failed is None:
                    self._awaiting += [confirms for confirms in confirming if confirms.end_batch(ticket)]
                if catalog.changed:
                    self.save()
                if self.unflushed:
                    connections, self.unflushed = self.unflushed, []
                    for connection in connections:
                        connection.flush()
        finally:
            self._ending = False
            self.letters.renew()
        if self._timers.moved:
            self._timers.moved = False
            self.rearm()

    def deliver(self) -> None:
        """Let the queues with messages for consumers deliver now: something looks at their contents next."""
        scheduled = self.scheduled
        stopwatch, end = self.slices.stopwatch, 0.0
        while scheduled:
            queue = scheduled.pop()
            queue.scheduled = False
            if not queue.deleted:
                if not queue.deliver_share() and not queue.scheduled:
                    self._postpone((queue,))
                for decorator in queue.decorators:
                    decorator.consumer_state_changed()
            if scheduled:
                now = stopwatch()
                end = end or now + SLICE
                if now > end:
                    self._postpone(scheduled)
                    scheduled.clear()

    def _postpone(self, queues: Iterable[Deliverer]) -> None:
        """Let these queues deliver in a later turn: others have waited long enough."""
        if not self._postponed:
            self.slices.later(self._resume())
        for queue in queues:
            queue.scheduled = True
            self._postponed.append(queue)

    def _resume(self) -> Work:
        self.scheduled += self._postponed
        self._postponed.clear()
        yield

    def write(self) -> None:
        """Write the batch's data so far. OSError when the disk refuses.

        After a failure of the store it writes nothing, not even the deliveries that closing connections return.
        """
        written, self.written = self.written, []
        if self.failed is not None or not written:
            return
        began = self.slices.stopwatch()
        for each in written:
            if not each.deleted:
                ticket = each.flush()
                self._ticket = max(self._ticket, ticket)
                self._last_ticket = max(self._last_ticket, ticket)
                if ticket > self.commit.synced:
                    self._unsynced[each] = ticket
                each.advance()
        self._seconds_per_writer += ((self.slices.stopwatch() - began) / len(written) - self._seconds_per_writer) / 2

    def relieve(self) -> None:
        """Write, if so many wait for it that the end of the batch would take too long; later is better for the disk."""
        if self.writes_long(len(self.written)):
            self.write()

    def writes_long(self, count: int) -> bool:
        """Whether so many writers would take long, as the last ones took."""
        return count * self._seconds_per_writer > LONG_WRITE

    def cover_earlier(self) -> None:
        """Let the confirms and callbacks of this batch wait for the data and letters of earlier batches too."""
        self._ticket = max(self._ticket, self._last_ticket)
        self._covers_letters = not self.letters.free

    def has_written(self, what: Writer) -> None:
        """Note that a writer has data to write at the end of the batch."""
        self.written.append(what)

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back when this batch's data are on the disk: never, once the store has failed.

        What a letter of an earlier batch asks for is called back with that batch.
        """
        if self.failed is None:
            number = self.letters.current
            if number and number != self.letters.opened:
                self._after_letters.setdefault(number, []).append(callback)
            else:
                self._when_safe.append(callback)

    def is_safe(self, ticket: int) -> bool:
        """Whether what waits for this ticket is on the disk, and its letters too."""
        return ticket <= self.commit.synced if ticket < AFTER_LETTERS else ticket - AFTER_LETTERS <= self.lettered

    def _cover_letters(self, ticket: int) -> int:
        """The ticket of a batch: another one, if its letters wait."""
        covers, self._covers_letters = self._covers_letters, False
        waits = self.letters.close()
        if self.failed is not None or not (waits or covers):
            return ticket
        return AFTER_LETTERS + self.letters.opened - 1

    def _letters_published(self, number: int) -> None:
        self._all_published = number
        if self.awaiting_letters:
            self.slices.later(self._go_on_after(number))

    def _go_on_after(self, number: int) -> Work:
        """Let the connections go on that wait for letters of the batches up to this number."""
        for connection, waiting in tuple(self.awaiting_letters.items()):
            if waiting <= number and self.awaiting_letters.pop(connection, 0):
                connection.letters_published()
                yield

    def _letters_safe(self, number: int) -> None:
        """Act on the last letter of the batches up to this number."""
        self.lettered = number
        for each in [waiting for waiting in self._after_letters if waiting <= number]:
            for callback in self._after_letters.pop(each):
                callback()
        self._awaiting = [confirms for confirms in self._awaiting if confirms.confirm()]

    def _call_safe(self) -> None:
        while self._safe and self._safe[0][0] <= self.commit.synced:
            for callback in self._safe.popleft()[1]:
                callback()

    def save(self) -> None:
        """Commit declarations, deletions and settings before clients are answered; block for one sync if there are any.

        A disk that refuses fails the whole store: changes that could not be saved were never acknowledged.
        """
        if self.catalog.changed:
            try:
                if self.failed is not None:
                    self.catalog.rollback()
                    return
                self.catalog.commit()
                self.sweep()
                done, self.after_commit = self.after_commit, []
                for callback in done:
                    callback()
            except OSError as error:
                self.fail(error)

    def remove_after_commit(self, removal: Work) -> None:
        """Remove the files of what was deleted, in slices, once the catalog does not name them any more."""

        def remove() -> None:
            self.slices.run(removal)

        self.after_commit.append(remove)

    def sweep(self) -> None:
        """Remove in slices what the catalog still has of queues and exchanges that are deleted."""
        if self.catalog.unswept and not self._sweeping:
            self._sweeping = True
            self.slices.later(self._sweep())

    def _sweep(self) -> Work:
        try:
            yield from self.catalog.sweep()
        finally:
            self._sweeping = False

    def _synced(self) -> None:
        """Act on a finished group commit: readers may see its data, and waiting publications are confirmed."""
        synced = self.commit.synced
        for each, ticket in tuple(self._unsynced.items()):
            if ticket <= synced:
                del self._unsynced[each]
            if not each.deleted:
                each.advance()
        self._call_safe()
        self._awaiting = [confirms for confirms in self._awaiting if confirms.confirm()]
        for publisher in tuple(self.held):
            publisher.grant()
        self.end()
        self._check_drained()

    def fail(self, error: OSError) -> None:
        """Fail the store: the disk refused. Nothing is confirmed any more, and every client is notified."""
        if self.failed is None:
            self.failed = error
            log.critical("the store failed, the broker stops: %s", error)
            self._awaiting.clear()
            self._safe.clear()
            self._when_safe.clear()
            self._after_letters.clear()
            self.written.clear()
            self.confirming.clear()
            self._check_drained()
            self._on_failed(error)
            self.end()

    def when_drained(self, drained: Callable[[], None]) -> None:
        """Call back when nothing waits for the disk, checked now and after each sync."""
        self._drained = drained
        self._check_drained()

    def _check_drained(self) -> None:
        if not self._awaiting and not self._safe and not self._after_letters:
            self._drained()
