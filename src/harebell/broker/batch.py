"""The end of a batch: what one read of one connection caused is done once, in one order.

While a batch is processed, work gathers here: queues that have something to deliver, stores that have something to
write, publishers that have something to confirm, connections that have something to send. `Batch.end` does it all, so
that its cost is per batch and not per message:

    deliver      queues give consumers what their windows take
    write        what was published and delivered goes to the logs
    charge       the publisher of the batch owes its bytes until they are synced
    when_safe    what has to wait for that sync is called when it is done
    confirm      publishers hear of what is safe already
    save         what was declared is committed to the catalog, with one sync
    flush        output goes to the sockets

A delivery is noted on disk before anybody sees it, so that it never comes again as if it were new. Queues and dialects
are known here by small protocols only; sockets are not known at all.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from harebell.broker.store.catalog import Catalog
from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.timers import Timers

__all__ = ["Batch", "Confirmer", "Debtor", "Deliverer", "Sender", "Writer"]

log = logging.getLogger("harebell.broker")


class _Decorator(Protocol):
    def consumer_state_changed(self) -> None: ...


class Deliverer(Protocol):
    """What has something to deliver: a queue."""

    scheduled: bool
    deleted: bool

    @property
    def decorators(self) -> Sequence[_Decorator]: ...
    def deliver(self) -> None: ...


class Writer(Protocol):
    """What has something to write: a stored queue, a delayed exchange."""

    @property
    def deleted(self) -> bool: ...
    def flush(self) -> int:
        """Write it; the ticket of the sync that will cover it."""

    def advance(self) -> None:
        """Show it, as far as it is on the disk."""


class Confirmer(Protocol):
    """What has something to confirm: the confirms of a channel."""

    def end_batch(self, ticket: int) -> bool:
        """Confirm what the batch published, or wait for the sync of this ticket; whether anything waits."""

    def confirm(self) -> bool:
        """Confirm what is synced by now; whether anything is left."""


class Sender(Protocol):
    """What has something to send: a connection."""

    def flush(self) -> None: ...


class Debtor(Protocol):
    """A publisher that is held back while it owes too much to the disk."""

    def charge(self, ticket: int, size: int) -> None:
        """A batch of so many bytes waits for the sync of this ticket."""

    def grant(self) -> None:
        """A sync is done."""


def _nothing() -> None:
    pass


class Batch:
    """One for each node.

    scheduled, written, confirming, unflushed   what the current batch leaves to do
    after_commit                                called once the catalog has what changed
    held                                        publishers that wait for the disk
    failed                                      why the store failed; None: it works
    rearm                                       called after a batch in which the next deadline changed
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
    ) -> None:
        self.catalog = catalog
        self.commit = GroupCommit(call_soon, self._synced, self.fail, sync=sync, files=files)
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
        self._ending = False
        self._ticket = 0  # of the sync that covers what the batch wrote
        self._unsynced: dict[Writer, int] = {}  # what has written -> the sync that will cover it
        self._when_safe: list[Callable[[], None]] = []
        self._safe: deque[tuple[int, list[Callable[[], None]]]] = deque()  # what is to be called after which sync
        self._awaiting: list[Confirmer] = []
        self._drained: Callable[[], None] = _nothing

    def end(self, publisher: Debtor | None = None, size: int = 0) -> None:
        """Do what the batch has left; it was `size` bytes of `publisher`, which owes them to the disk if it wrote."""
        if self._ending:
            return  # a transport that pauses or fails inside a flush ends up here; the loop below goes on
        self._ending = True
        try:
            catalog = self.catalog
            while (
                self.scheduled or self.written or self._when_safe or self.confirming or self.unflushed
                or catalog.changed
            ):  # fmt: skip
                try:
                    if self.scheduled:
                        self._deliver()
                    if self.written:
                        self.write()
                except OSError as error:
                    self.fail(error)
                ticket, self._ticket = self._ticket, 0
                if ticket and publisher is not None and ticket > self.commit.synced:
                    publisher.charge(ticket, size)
                publisher = None
                if self._when_safe:
                    callbacks, self._when_safe = self._when_safe, []
                    self._safe.append((ticket, callbacks))
                    self._call_safe()
                if self.confirming:
                    confirming, self.confirming = self.confirming, []
                    self._awaiting += [confirms for confirms in confirming if confirms.end_batch(ticket)]
                if catalog.changed:
                    self.save()
                if self.unflushed:
                    connections, self.unflushed = self.unflushed, []
                    for connection in connections:
                        connection.flush()
        finally:
            self._ending = False
        if self._timers.moved:
            self._timers.moved = False
            self.rearm()

    def _deliver(self) -> None:
        scheduled = self.scheduled
        while scheduled:
            queue = scheduled.pop()
            queue.scheduled = False
            if not queue.deleted:
                queue.deliver()
                for decorator in queue.decorators:
                    decorator.consumer_state_changed()

    def write(self) -> None:
        """Write what the batch has left for the disk so far. OSError when the disk refuses.

        Nothing once the store has failed, not even what closing the connections has given back.
        """
        written, self.written = self.written, []
        if self.failed is not None:
            return
        for each in written:
            if not each.deleted:
                ticket = each.flush()
                self._ticket = max(self._ticket, ticket)
                if ticket > self.commit.synced:
                    self._unsynced[each] = ticket
                each.advance()

    def has_written(self, what: Writer) -> None:
        """It has something to write at the end of the batch."""
        self.written.append(what)

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back when everything that this batch writes is on the disk: never, once the store has failed."""
        if self.failed is None:
            self._when_safe.append(callback)

    def _call_safe(self) -> None:
        while self._safe and self._safe[0][0] <= self.commit.synced:
            for callback in self._safe.popleft()[1]:
                callback()

    def save(self) -> None:
        """Commit what was declared, deleted or set, before anybody is told: it blocks for one sync if there is any.

        A disk that refuses has failed the whole store: what could not be kept was never acknowledged.
        """
        if self.catalog.changed:
            try:
                if self.failed is not None:
                    self.catalog.rollback()
                    return
                self.catalog.commit()
                done, self.after_commit = self.after_commit, []
                for callback in done:
                    callback()
            except OSError as error:
                self.fail(error)

    def _synced(self) -> None:
        """A group commit is done: let readers see it, and confirm what waited for it."""
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
        """The disk refused. Nothing is confirmed any more, and every client is told."""
        if self.failed is None:
            self.failed = error
            log.critical("the store failed, the broker stops: %s", error)
            self._awaiting.clear()
            self._safe.clear()
            self._when_safe.clear()
            self.written.clear()
            self.confirming.clear()
            self._check_drained()
            self._on_failed(error)
            self.end()

    def when_drained(self, drained: Callable[[], None]) -> None:
        """Call back when nothing waits for the disk, now and after each sync."""
        self._drained = drained
        self._check_drained()

    def _check_drained(self) -> None:
        if not self._awaiting and not self._safe:
            self._drained()
