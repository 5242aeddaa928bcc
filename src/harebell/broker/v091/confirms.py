"""The confirms of one channel: in order, one `multiple` per batch, and not before the disk has what must be there.

A batch that reached a stored queue waits for the sync that covers it (its ticket); what was published after it waits
behind it. What a queue refused is nacked in its place. The answer to tx.commit waits in the same line.

No queue is waited for, so none has to be watched: a queue that is deleted counts as one that has the message. What was
written to its log is synced when the log is closed, which makes the ticket good; what was not written asked for none.
"""

from __future__ import annotations

from collections import deque
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
    """`published` counts the publications since confirm.select."""

    __slots__ = ("_channel", "_confirmed", "_in_batch", "_pending", "_rejected", "_replies", "_stored", "published")

    def __init__(self, channel: ConfirmedChannel) -> None:
        self._channel = channel
        self.published = 0
        self._confirmed = 0
        self._in_batch = self._stored = False
        self._rejected: list[int] = []  # of the current batch
        self._replies = 0
        self._pending: deque[tuple[int, int, list[int], int]] = deque()  # ticket, last, rejected, tx replies

    def add(self, accepted: bool, stored: bool) -> None:
        """One more publication; `stored` when a queue of it may have to reach the disk."""
        self.published += 1
        if not accepted:
            self._rejected.append(self.published)
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
        """Whether a commit-ok is due."""
        return bool(self._replies or self._pending)

    def commit(self, stored: bool) -> None:
        """A tx.commit-ok is due after what it published has been delivered, and is durable where it is `stored`."""
        self._replies += 1
        self._stored |= stored
        if not self._in_batch:
            self._in_batch = True
            self._channel.batch.confirming.append(self)

    def end_batch(self, ticket: int) -> bool:
        """Confirm what the batch published, or note what it waits for; whether anything waits."""
        self._in_batch = False
        self._pending.append((ticket if self._stored else 0, self.published, self._rejected, self._replies))
        self._stored, self._rejected, self._replies = False, [], 0
        return self.confirm()

    def close(self) -> None:
        """The channel is about to be closed: confirm what it published before that and what waits for no disk."""
        if self._in_batch and not self._stored and not self._replies:
            self._pending.append((0, self.published, self._rejected, 0))
            self._rejected = []
        self.confirm()

    def confirm(self) -> bool:
        """Send the confirms whose sync is done; whether any are left."""
        pending, synced = self._pending, self._channel.batch.commit.synced
        if not self._channel.open:
            pending.clear()
        upto = 0
        while pending and pending[0][0] <= synced:
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
