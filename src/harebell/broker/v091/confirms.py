"""The confirms of one channel: in order, one `multiple` per batch, and only when the disk has the stored messages.

A batch that reached a stored queue waits for the sync that covers it (its ticket); later publications wait for it too.
A publication that a queue refused is nacked in its order. The answer to tx.commit waits in the same order.

The confirms watch no queue: a deleted queue counts as one that has the message. Messages in its log are synced when the
log is closed, which completes the ticket; messages not in its log have no ticket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Protocol

from harebell.broker.batch import Batch
from harebell.broker.counts import ChannelCounts
from harebell.protocol.v091.methods import BasicAck, BasicNack, Method, TxCommitOk

__all__ = ["Confirms"]


class ConfirmedChannel(Protocol):
    """The channel whose publications are confirmed."""

    counts: ChannelCounts
    open: bool
    batch: Batch

    def reply(self, method: Method) -> None: ...


class Confirms:
    """The confirms of one channel; `published` counts the publications since confirm.select."""

    __slots__ = (
        "_channel", "_confirmed", "_expected", "_in_batch", "_pending", "_rejected", "_replies", "_stored", "published",
    )  # fmt: skip

    def __init__(self, channel: ConfirmedChannel) -> None:
        self._channel = channel
        self.published = 0
        self._confirmed = 0
        self._in_batch = self._stored = False
        self._rejected: list[int] = []  # publications of the current batch
        self._replies = self._expected = 0
        self._pending: deque[tuple[int, int, list[int], int]] = deque()  # ticket, last, rejected, tx replies

    def add(self, accepted: bool, stored: bool) -> None:
        """Add a publication; `stored` when one of its queues may have to reach the disk."""
        self.published += 1
        if not accepted:
            self._rejected.append(self.published)
        if stored:
            self._stored = True
        if not self._in_batch:
            self._in_batch = True
            self._channel.batch.confirming.append(self)

    def add_run(self, count: int, refused: Collection[int], stored: bool) -> None:
        """Add so many publications; `refused` are the places of those that a queue refused. As `add`."""
        self._rejected += [self.published + place + 1 for place in refused]
        self.published += count
        if stored:
            self._stored = True
        if not self._in_batch:
            self._in_batch = True
            self._channel.batch.confirming.append(self)

    @property
    def outstanding(self) -> int:
        """Publications that are neither confirmed nor refused yet."""
        return self.published - self._confirmed

    @property
    def awaited(self) -> bool:
        """Whether a commit-ok is outstanding."""
        return bool(self._replies or self._pending or self._expected)

    def expect_commit(self) -> None:
        """Note that `commit` follows when the publications are on the disk: the transaction settles messages then."""
        self._expected += 1

    def commit(self, stored: bool) -> None:
        """Add a tx.commit-ok, to send when the batch's publications are delivered, and durable if `stored`."""
        self._expected = max(0, self._expected - 1)
        self._replies += 1
        self._stored |= stored
        if not self._in_batch:
            self._in_batch = True
            self._channel.batch.confirming.append(self)

    def end_batch(self, ticket: int) -> bool:
        """Confirm the publications of the batch, or let them wait for the ticket. Returns whether any wait."""
        self._in_batch = False
        self._pending.append((ticket if self._stored else 0, self.published, self._rejected, self._replies))
        self._stored, self._rejected, self._replies = False, [], 0
        return self.confirm()

    def close(self) -> None:
        """Confirm the last publications before the channel is closed, except those that wait for the disk."""
        if self._in_batch and not self._stored and not self._replies:
            self._pending.append((0, self.published, self._rejected, 0))
            self._rejected = []
        self.confirm()

    def confirm(self) -> bool:
        """Send the confirms whose sync is done. Returns whether any are left."""
        pending, batch = self._pending, self._channel.batch
        if not self._channel.open:
            pending.clear()
        upto = 0
        while pending and batch.is_safe(pending[0][0]):
            _, last, rejected, replies = pending.popleft()
            for tag in rejected:
                self._ack(tag - 1)
                self._send(BasicNack(tag, multiple=False, requeue=False))
                self._confirmed = tag
            upto = last
            if replies:
                self._ack(upto)
                for _ in range(replies):
                    self._send(TxCommitOk())
        self._ack(upto)
        return bool(pending)

    def _ack(self, upto: int) -> None:
        count = upto - self._confirmed
        if count > 0:
            self._channel.counts.confirm += count
            self._send(BasicAck(upto, multiple=count > 1))
            self._confirmed = upto

    def _send(self, method: Method) -> None:
        self._channel.reply(method)
