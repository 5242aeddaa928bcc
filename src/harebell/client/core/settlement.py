"""How the deliveries of one wire channel are acknowledged, refused and given back.

Delivery tags are public here: `unacked` says how they become those of the wire, which do not leave this package. Each
method raises AcknowledgeOrphans when some of its tags can no longer reach the broker; the others have been sent. It
raises LocalProtocolError, and sends nothing, for a delivery that was settled before or that the program has not got.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from harebell import errors
from harebell.client.core.unacked import Deliveries, Unseen
from harebell.client.messages import Acknowledger, Delivery
from harebell.protocol.v091.hot import ClientFrames

__all__ = ["Settlement"]


class DeliveringChannel(Protocol):
    """The wire channel that the deliveries come on.

    last_tag  the highest public tag that came
    unseen    what lies in the buffers of its consumers
    """

    @property
    def reason(self) -> errors.HarebellError | None: ...
    @property
    def last_tag(self) -> int: ...
    @property
    def unseen(self) -> Unseen: ...
    def check_open(self) -> None: ...
    def queue_of(self, consumer_tag: str) -> str | None: ...


class Settlement:
    """What settles the deliveries of one wire channel."""

    def __init__(
        self,
        channel: DeliveringChannel,
        deliveries: Deliveries,
        frames: ClientFrames,
        send: Callable[[bytes], None],
        flush: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._deliveries = deliveries
        self._frames = frames
        self._send = send
        self._flush = flush
        self._offset = deliveries.offset
        self._at_once = deliveries.unacked  # what is acknowledged without asking the table; empty on a closed channel
        self._ack = frames.ack_prefix.replace(b"%", b"%%") + b"%b\x00\xce"

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        unacked = self._at_once
        if multiple or delivery_tag not in unacked:
            self._settle(delivery_tag, multiple, "ack", self._frames.ack)
            return
        unacked.remove(delivery_tag)
        send, flush = self._send, self._flush  # CPython calls a local faster than an attribute that is no method
        send(self._ack % (delivery_tag - self._offset).to_bytes(8, "big"))
        flush()

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        how = f"nack(requeue={bool(requeue)})"
        self._settle(delivery_tag, multiple, how, lambda tag, several: self._frames.nack(tag, several, requeue))

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        how = f"reject(requeue={bool(requeue)})"
        self._settle(delivery_tag, False, how, lambda tag, several: self._frames.reject(tag, requeue))

    def _settle(self, delivery_tag: int, multiple: bool, how: str, frame: Callable[[int, bool], bytes]) -> None:
        deliveries, channel = self._deliveries, self._channel
        if deliveries.ended:
            channel.check_open()
        if channel.reason is None:
            deliveries.last_tag = channel.last_tag
        sent, error = deliveries.settle(delivery_tag, multiple, how, channel.unseen)
        if sent:
            for tag, several in sent:
                self._send(frame(tag - self._offset, several))
            self._flush()
        if error is not None:
            raise error

    def give_back(self, delivery: Delivery) -> None:
        """Put a delivery that the program has not got back into its queue.

        A stream queue takes nothing back (540, and the connection is gone) and lost nothing either: its deliveries,
        known by their offset, are left as they are.
        """
        tag = delivery.delivery_tag
        self._deliveries.gave_back(tag)
        if self._channel.reason is None and delivery.stream_offset is None:
            self._send(self._frames.nack(tag - self._offset, False, True))
            self._flush()

    def ack_uncounted(self, wire_tag: int) -> None:
        """Acknowledge everything up to this tag of the wire, for a reader that counts what it was sent by itself."""
        self._channel.check_open()
        self._send(self._frames.ack(wire_tag, True))
        self._flush()

    def queue_of(self, consumer_tag: str) -> str | None:
        """The queue of a consumer of the channel."""
        return self._channel.queue_of(consumer_tag)

    def begin_transaction(self) -> None:
        """Every acknowledgement goes through the table from now on, which remembers those that are not committed."""
        self._at_once = set()
        self._deliveries.begin()

    def replace_by(self, other: Acknowledger) -> None:
        """Have the deliveries of this channel acknowledged on another one."""
        self.ack, self.nack, self.reject = other.ack, other.nack, other.reject  # type: ignore[method-assign]
