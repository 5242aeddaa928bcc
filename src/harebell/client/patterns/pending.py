"""One publication of a producer under way: the waiter for its confirm, and what the program awaits.

What becomes of it is decided here (its confirm, its return, the policy for orphans), and told to its producer, which
knows the window and what nobody has heard of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.messages import Confirmation, Publication, Returned

if TYPE_CHECKING:
    from harebell.client.patterns.producer import Producer

__all__ = ["Pending"]


class Pending:
    """A publication under way: `await` it for its Confirmation, or for the error.

    position     its number among those of the producer, from 0
    publication  what was published
    """

    __slots__ = ("_confirmation", "_error", "_producer", "_returned", "_taken", "_waiter", "position", "publication")

    def __init__(self, producer: Producer[Any], position: int, publication: Publication) -> None:
        self._producer = producer
        self._confirmation: Confirmation | None = None
        self._error: errors.HarebellError | None = None
        self._returned: Returned | None = None
        self._taken = False  # somebody awaits it, and so hears of its error
        self._waiter: asyncio.Future[None] | None = None
        self.position = position
        self.publication = publication

    @property
    def done(self) -> bool:
        """Whether it has its outcome."""
        return self._confirmation is not None or self._error is not None

    def __await__(self) -> Generator[Any, None, Confirmation]:
        """Its Confirmation. Nacked, Unroutable, PublishOrphaned, or why the channel was closed."""
        self._taken = True
        self._producer._told(self.position)
        if not self.done:
            if self._waiter is None:
                self._waiter = self._producer._loop.create_future()
            yield from asyncio.shield(self._waiter).__await__()
        if self._confirmation is not None:
            return self._confirmation
        assert self._error is not None  # it is done
        raise copy_of(self._error)

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
        producer = self._producer
        self._returned = None
        if producer._on_orphan == "retry":
            producer._send_again(self)
        elif producer._on_orphan == "park":
            producer.parked.append((publish_tag, self.publication))
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

    def _leave(self) -> None:
        """Nobody awaits it any more."""
        self._taken = False
        if self._error is not None:
            self._producer._keep(self.position, self._error)

    def _end(self, confirmation: Confirmation | None = None, *, error: errors.HarebellError | None = None) -> None:
        self._confirmation, self._error = confirmation, error
        if error is not None and not self._taken:
            self._producer._keep(self.position, error)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._producer._settled()
