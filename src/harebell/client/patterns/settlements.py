"""How the deliveries of one consumer of handlers are settled: once each, and alone, but for a batch.

Whether a delivery is settled already, by its handler, is read from the channel's table (`core.unacked`); so nothing is
made for each of them. A delivery that an outage has orphaned cannot be settled: the broker delivers it again. That is
reported, and is no error: the work has been done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.messages import Acknowledger, Delivery

__all__ = ["OneByOne", "Settlements"]

logger = logging.getLogger("harebell.client")


class OneByOne:
    """What deliveries to handlers are bound to: each is settled alone, for others work on those before it."""

    __slots__ = ("_channel", "_settler")

    def __init__(self, channel: Channel, settler: Acknowledger | None = None) -> None:
        self._channel = channel
        self._settler: Acknowledger = channel if settler is None else settler

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        _check("ack", delivery_tag, multiple)
        self._settler.ack(delivery_tag)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        _check("nack", delivery_tag, multiple)
        self._settler.nack(delivery_tag, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        self._settler.reject(delivery_tag, requeue=requeue)

    def queue_of(self, consumer_tag: str) -> str | None:
        """The queue of a consumer of the channel."""
        return self._channel.core.queue_of(consumer_tag)


def _check(how: str, delivery_tag: int, multiple: bool) -> None:
    if multiple:
        raise errors.LocalProtocolError(
            f"{how} of delivery {delivery_tag} with multiple=True would settle deliveries that others work on: settle "
            "this one alone"
        )


class Settlements:
    """What settles the deliveries of one consumer, on its channel.

    on_orphan  called with a delivery that could not be settled any more
    started    the channel; None before `start`
    """

    def __init__(self, on_orphan: Callable[[Delivery], object] | None) -> None:
        self._on_orphan = on_orphan
        self.started: Channel | None = None

    def start(self, channel: Channel) -> None:
        """The consumer begins, on this channel."""
        self.started = channel

    @property
    def channel(self) -> Channel:
        assert self.started is not None  # no delivery comes before `start`
        return self.started

    def is_settled(self, delivery: Delivery) -> bool:
        """Whether the program has settled it."""
        deliveries, tag = self.channel.core.deliveries, delivery.delivery_tag
        return tag not in deliveries.unacked and tag not in deliveries.orphans

    def is_orphan(self, delivery: Delivery) -> bool:
        """Whether an outage has given it back to the broker."""
        return delivery.delivery_tag in self.channel.core.deliveries.orphans

    def done(self, delivery: Delivery) -> None:
        """Acknowledge it, unless it is settled."""
        if delivery.delivery_tag in self.channel.core.deliveries.unacked:
            delivery.acknowledger.ack(delivery.delivery_tag)
        elif self.is_orphan(delivery):
            self._orphaned(delivery)

    def done_together(self, batch: Sequence[Delivery]) -> None:
        """Acknowledge those that are not settled, with one acknowledgement where that covers none but them."""
        table = self.channel.core.deliveries
        tags = [delivery.delivery_tag for delivery in batch if delivery.delivery_tag in table.unacked]
        last = max(tags, default=0)
        if len(tags) > 1 and not table.orphans and sum([tag <= last for tag in table.unacked]) == len(tags):
            self.channel.ack(last, multiple=True)
        else:
            for delivery in batch:
                self.done(delivery)

    def refuse(self, delivery: Delivery, *, requeue: bool) -> None:
        """Back into its queue, or dead-lettered or dropped, unless it is settled.

        A stream takes nothing back (540, and the connection is gone) and loses nothing either: it gets an ack.
        """
        if self.is_orphan(delivery):
            self._orphaned(delivery)
        elif not self.is_settled(delivery):
            if delivery.stream_offset is not None:
                delivery.ack()
            else:
                delivery.reject(requeue=requeue)

    def _orphaned(self, delivery: Delivery) -> None:
        self.channel.core.deliveries.orphans.discard(delivery.delivery_tag)
        logger.warning(
            "delivery %d was worked on, and comes again: its channel was lost meanwhile", delivery.delivery_tag
        )
        if self._on_orphan is not None:
            try:
                self._on_orphan(delivery)
            except Exception:  # a callback's failure is not the consumer's
                logger.exception("on_orphan failed on %r", delivery)
