"""How the deliveries of one wire channel are acknowledged, refused and given back.

Delivery tags are public here: `unacked` says how they become those of the wire, which do not leave this package. Each
method raises AcknowledgeOrphans when some of its tags can no longer reach the broker; the others have been sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from harebell import errors
from harebell.client.core.unacked import Deliveries
from harebell.client.messages import Acknowledger, Delivery
from harebell.protocol.v091.hot import ClientFrames

__all__ = ["Settlement"]


class DeliveringChannel(Protocol):
    """The wire channel that the deliveries come on.

    last_tag  the highest public tag that came
    """

    @property
    def reason(self) -> errors.HarebellError | None: ...
    @property
    def last_tag(self) -> int: ...
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
            self._settle(delivery_tag, multiple, lambda tag: self._frames.ack(tag, multiple))
            return
        unacked.remove(delivery_tag)
        send, flush = self._send, self._flush  # CPython calls a local faster than an attribute that is no method
        send(self._ack % (delivery_tag - self._offset).to_bytes(8, "big"))
        flush()

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._settle(delivery_tag, multiple, lambda tag: self._frames.nack(tag, multiple, requeue))

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        self._settle(delivery_tag, False, lambda tag: self._frames.reject(tag, requeue))

    def _settle(self, delivery_tag: int, multiple: bool, frame: Callable[[int], bytes]) -> None:
        if delivery_tag < 0:
            raise errors.InvalidArgument(f"delivery tag {delivery_tag}: tags are 1 and up")
        if self._channel.reason is None:
            self._deliveries.last_tag = self._channel.last_tag
        send, error = self._deliveries.settle(delivery_tag, multiple)
        if send:
            self._channel.check_open()
            self._send(frame(delivery_tag - self._offset if delivery_tag else 0))
            self._flush()
        if error is not None:
            raise error

    def give_back(self, delivery: Delivery) -> None:
        """Put a delivery that will not be processed back into its queue.

        A stream queue takes nothing back (540, and the connection is gone) and lost nothing either: its deliveries,
        known by their offset, are left as they are.
        """
        if delivery.stream_offset is None:
            Settlement.nack(self, delivery.delivery_tag)  # not the program's: it passes no middleware

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
