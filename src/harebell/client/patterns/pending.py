"""One publication of a producer under way: the waiter for its confirm, and what the program awaits.

It reports its end to its producer, which knows the window and the failures that were not told yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from harebell import errors
from harebell.client.core.outcomes import address_of, nacked, orphaned, unroutable
from harebell.client.core.slots import copy_of
from harebell.client.messages import Confirmation, OnNack, OnOrphan, Publication, Returned

__all__ = ["Pending", "Reports"]


class Reports:
    """What the publications of one producer report to it.

    on_orphan, on_nack  what becomes of those that are not accepted
    awaited    one is awaited now, and raises its failure there
    failed     one has failed, and is not awaited
    finished   one has its outcome
    """

    __slots__ = ("awaited", "failed", "finished", "loop", "on_nack", "on_orphan")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_orphan: OnOrphan,
        on_nack: OnNack,
        awaited: Callable[[Pending], None],
        failed: Callable[[Pending, errors.HarebellError], None],
        finished: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.on_orphan = on_orphan
        self.on_nack = on_nack
        self.awaited = awaited
        self.failed = failed
        self.finished = finished


class Pending:
    """A publication under way: `await` it for its Confirmation, or for the error.

    position     its number among those of the producer, from 0
    publication  what was published

    For its producer: `confirmation` or `error` is its outcome, `taken` whether that is raised or returned to a caller,
    `untold` whether it is a failure that was not raised, `waiter` a future that its outcome resolves, `publish_tag` its
    number on the channel, `counted` whether it is one of those under way: not where a signal has ended the call that
    published it, which was told so.
    """

    __slots__ = (
        "_reports", "_returned", "confirmation", "counted", "error", "position", "publication", "publish_tag", "taken",
        "untold", "waiter",
    )  # fmt: skip

    def __init__(self, reports: Reports, position: int, publication: Publication) -> None:
        self._reports = reports
        self.confirmation: Confirmation | None = None
        self.error: errors.HarebellError | None = None
        self._returned: Returned | None = None
        self.taken = False
        self.untold = False
        self.waiter: asyncio.Future[None] | None = None
        self.position = position
        self.publication = publication
        self.publish_tag = 0
        self.counted = False

    @property
    def done(self) -> bool:
        """Whether it has its outcome."""
        return self.confirmation is not None or self.error is not None

    def __await__(self) -> Generator[Any, None, Confirmation]:
        """Its Confirmation. Nacked, Unroutable, PublishOrphaned, or the broker's error if it is at fault."""
        self.taken = True
        if self.untold:
            self._reports.awaited(self)
        if not self.done:
            if self.waiter is None:
                self.waiter = self._reports.loop.create_future()
            yield from asyncio.shield(self.waiter).__await__()
        if self.confirmation is not None:
            return self.confirmation
        assert self.error is not None  # it is done
        raise copy_of(self.error)

    # -- as the waiter for its confirm -------------------------------------------------------------------------------

    @property
    def _address(self) -> str:
        return address_of(self.publication.exchange, self.publication.routing_key)

    def settle(self, publish_tag: int, acked: bool) -> None:
        if self._returned is not None:
            self.end(error=unroutable(publish_tag, self._address, self._returned))
        elif acked or self._reports.on_nack == "park":
            self.end(Confirmation(publish_tag, acked))
        else:
            self.end(error=nacked(publish_tag, self._address))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned = returned

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.end(error=error)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        if self._reports.on_orphan == "park":
            self.end(Confirmation(publish_tag, False, orphaned=True, error=reason))
        else:
            self.end(error=orphaned(publish_tag, self._address, reason))

    def leave(self) -> None:
        """Its outcome is known, and does not go to the caller that it was for."""
        self.taken = False
        if self.error is not None:
            self.untold = True
            self._reports.failed(self, self.error)

    def end(self, confirmation: Confirmation | None = None, *, error: errors.HarebellError | None = None) -> None:
        """It has its outcome."""
        self.confirmation, self.error = confirmation, error
        if not self.counted:
            return
        if error is not None and not self.taken:
            self.untold = True
            self._reports.failed(self, error)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        self._reports.finished()
