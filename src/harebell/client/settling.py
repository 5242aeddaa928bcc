"""A delivery settled exactly once: by whoever works on it, or by how the work ends.

    async with delivery.process():        # also: with delivery.process()
        ...                               # the end of the block acknowledges; an error rejects

How a block ends, unless the program has settled the delivery itself:

    it comes to its end      ack
    `raise Reject`           reject: dead-lettered or dropped; the exception ends here
    `raise Requeue`          back into the queue, for this consumer or another one; the exception ends here
    any other error          reject, or with requeue=True back into the queue; the error goes on
    cancelled, interrupted   back into the queue; the cancellation goes on

A delivery that was orphaned meanwhile cannot be settled: the broker delivers it again. That is reported (`on_orphan`,
or the log) and is no error: the work has been done, and the next delivery need not suffer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from harebell import errors

__all__ = ["Acknowledger", "NoAcknowledgement", "Reject", "Requeue", "Settling"]

logger = logging.getLogger("harebell.client")


class Reject(Exception):
    """Raised in a handler: this message will never succeed. It becomes a dead letter, or is dropped where there is no
    dead-letter queue."""


class Requeue(Exception):
    """Raised in a handler: not here, not now. The message goes back into its queue."""


class Acknowledger(Protocol):
    """The channel of a delivery, as far as the delivery knows it."""

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None: ...
    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None: ...
    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None: ...


class NoAcknowledgement:
    """What deliveries are bound to that came with no_ack: the broker has forgotten them."""

    __slots__ = ()

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        raise _unneeded("ack", delivery_tag)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        raise _unneeded("nack", delivery_tag)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        raise _unneeded("reject", delivery_tag)


def _unneeded(how: str, delivery_tag: int) -> errors.LocalProtocolError:
    return errors.LocalProtocolError(
        f"{how} of delivery {delivery_tag}, which came with no_ack: the broker has forgotten it, and needs no answer"
    )


class Unsettled(Protocol):
    """A delivery, as far as settling it needs."""

    acknowledger: Acknowledger

    @property
    def delivery_tag(self) -> int: ...
    @property
    def stream_offset(self) -> int | None: ...
    def ack(self) -> None: ...
    def reject(self, *, requeue: bool = False) -> None: ...


D = TypeVar("D", bound=Unsettled)


class Settling(Generic[D]):
    """One delivery in process. It takes the place of the delivery's channel, so that nothing settles it twice.

    settled   it has been settled, by the program or by the end of its processing, or needs no acknowledgement
    orphaned  it could not be: the broker delivers it again
    """

    __slots__ = ("_acknowledger", "_delivery", "_first", "_on_orphan", "_requeue", "orphaned", "settled")

    def __init__(self, delivery: D, *, requeue: bool = False, on_orphan: Callable[[D], object] | None = None) -> None:
        self._delivery = delivery
        self._acknowledger = delivery.acknowledger
        self._requeue = requeue
        self._on_orphan = on_orphan
        self._first = ""  # how it was settled
        self.settled = False
        self.orphaned = False
        if isinstance(self._acknowledger, NoAcknowledgement):
            self.settled = True
        else:
            delivery.acknowledger = self

    # -- as the delivery's channel -----------------------------------------------------------------------------------

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        self._once("ack", multiple)
        self._acknowledger.ack(delivery_tag)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._once(f"nack(requeue={bool(requeue)})", multiple)
        self._acknowledger.nack(delivery_tag, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        self._once(f"reject(requeue={bool(requeue)})", False)
        self._acknowledger.reject(delivery_tag, requeue=requeue)

    def _once(self, how: str, multiple: bool) -> None:
        tag = self._delivery.delivery_tag
        if multiple:
            raise errors.LocalProtocolError(
                f"{how} of delivery {tag} with multiple=True would settle deliveries that others work on: settle this "
                "one alone"
            )
        if self.settled:
            raise errors.LocalProtocolError(
                f"{how} of delivery {tag}, which was settled before ({self._first}): settle each delivery once"
            )
        self.settled = True
        self._first = how

    # -- how the work ends -------------------------------------------------------------------------------------------

    def done(self) -> None:
        """Acknowledge it, unless it is settled."""
        if not self.settled:
            self._settle(lambda delivery: delivery.ack())

    def refuse(self, *, requeue: bool) -> None:
        """Back into its queue, or dead-lettered or dropped, unless it is settled.

        A stream takes nothing back (540, and the connection is gone) and loses nothing either: it gets an ack.
        """
        if not self.settled:
            stream = self._delivery.stream_offset is not None
            self._settle(lambda delivery: delivery.ack() if stream else delivery.reject(requeue=requeue))

    def _settle(self, settle: Callable[[D], None]) -> None:
        delivery = self._delivery
        try:
            settle(delivery)
        except (errors.AcknowledgeOrphans, errors.ChannelClosed) as error:
            self.orphaned = True
            logger.warning("delivery %d was worked on, and comes again: %s", delivery.delivery_tag, error)
            if self._on_orphan is not None:
                self._on_orphan(delivery)

    def ended(self, error: BaseException | None) -> bool:
        """The work has ended, with this error or without: settle it. Whether the error ends here."""
        if error is None:
            self.done()
            return False
        if isinstance(error, Reject | Requeue):
            self.refuse(requeue=isinstance(error, Requeue))
            return True
        self.refuse(requeue=self._requeue or not isinstance(error, Exception))
        return False

    def __enter__(self) -> D:
        return self._delivery

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.ended(error)

    async def __aenter__(self) -> D:
        return self._delivery

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.ended(error)
