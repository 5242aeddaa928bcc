"""One publication of a producer under way: the waiter for its confirm, and what the program awaits.

Its outcome is decided here (its confirm, its return, the policy for orphans) and reported to its producer, which knows
the window and the failures that were not raised yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.messages import Confirmation, OnOrphan, Publication, Returned

__all__ = ["Pending", "Reports"]


class Reports:
    """What the publications of one producer report to it.

    on_orphan  what becomes of one that was orphaned
    awaited    one is awaited now, and raises its failure there
    failed     one has failed, and is not awaited
    again      one was orphaned, and is to be sent again
    park       one was orphaned, and is set aside
    finished   one has its outcome
    """

    __slots__ = ("again", "awaited", "failed", "finished", "loop", "on_orphan", "park")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_orphan: OnOrphan,
        awaited: Callable[[int], None],
        failed: Callable[[int, errors.HarebellError], None],
        again: Callable[[Pending], None],
        park: Callable[[int, Publication], None],
        finished: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.on_orphan = on_orphan
        self.awaited = awaited
        self.failed = failed
        self.again = again
        self.park = park
        self.finished = finished


class Pending:
    """A publication under way: `await` it for its Confirmation, or for the error.

    position     its number among those of the producer, from 0
    publication  what was published

    For its producer: `confirmation` or `error` is its outcome, `taken` whether that is raised or returned to a caller,
    `waiter` a future that its outcome resolves.
    """

    __slots__ = ("_reports", "_returned", "confirmation", "error", "position", "publication", "taken", "waiter")

    def __init__(self, reports: Reports, position: int, publication: Publication) -> None:
        self._reports = reports
        self.confirmation: Confirmation | None = None
        self.error: errors.HarebellError | None = None
        self._returned: Returned | None = None
        self.taken = False
        self.waiter: asyncio.Future[None] | None = None
        self.position = position
        self.publication = publication

    @property
    def done(self) -> bool:
        """Whether it has its outcome."""
        return self.confirmation is not None or self.error is not None

    def __await__(self) -> Generator[Any, None, Confirmation]:
        """Its Confirmation. Nacked, Unroutable, PublishOrphaned, or why the channel was closed."""
        self.taken = True
        self._reports.awaited(self.position)
        if not self.done:
            if self.waiter is None:
                self.waiter = self._reports.loop.create_future()
            yield from asyncio.shield(self.waiter).__await__()
        if self.confirmation is not None:
            return self.confirmation
        assert self.error is not None  # it is done
        raise copy_of(self.error)

    # -- as the waiter for its confirm -------------------------------------------------------------------------------

    def settle(self, publish_tag: int, acked: bool) -> None:
        publication, returned = self.publication, self._returned
        where = f"exchange {publication.exchange!r} with routing key {publication.routing_key!r}"
        if returned is not None:
            self._end(
                error=errors.Unroutable(
                    f"publication {publish_tag} to {where} reached no queue ({returned.reply_code} "
                    f"{returned.reply_text}): bind a queue to it, or publish without mandatory",
                    returned,
                )
            )
        elif acked:
            self._end(Confirmation(publish_tag, True))
        else:
            self._end(error=errors.Nacked(f"the broker refused publication {publish_tag} to {where}", (publish_tag,)))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned = returned

    def orphaned(self, publish_tag: int) -> None:
        reports = self._reports
        self._returned = None
        if reports.on_orphan == "retry":
            reports.again(self)
        elif reports.on_orphan == "park":
            reports.park(publish_tag, self.publication)
            self._end(Confirmation(publish_tag, False, orphaned=True))
        else:
            self._end(
                error=errors.PublishOrphaned(
                    f"the connection was lost before the answer to publication {publish_tag} to exchange "
                    f"{self.publication.exchange!r} with routing key {self.publication.routing_key!r}: it may or may "
                    "not have arrived",
                    (publish_tag,),
                )
            )

    def fail(self, reason: errors.HarebellError) -> None:
        self._end(error=reason)

    def leave(self) -> None:
        """It is no longer awaited."""
        self.taken = False
        if self.error is not None:
            self._reports.failed(self.position, self.error)

    def _end(self, confirmation: Confirmation | None = None, *, error: errors.HarebellError | None = None) -> None:
        self.confirmation, self.error = confirmation, error
        if error is not None and not self.taken:
            self._reports.failed(self.position, error)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        self._reports.finished()
