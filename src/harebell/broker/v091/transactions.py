"""The transactions of one channel (tx): publications and acknowledgements take effect at the commit, or never.

A commit publishes first and acknowledges then (RabbitMQ's order); commit-ok is sent when everything is durable. Routed
publications wait in `Publisher.transaction`; acknowledgements wait here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harebell.broker.counts import ChannelCounts
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.consumer import Entry
from harebell.broker.v091.publisher import Publisher, Target
from harebell.broker.v091.unacked import Unacked
from harebell.broker.vhost import VirtualHost
from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import methods as m

__all__ = ["Settlement", "Transactions"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """Deliveries that a client acknowledged (`positive`), or rejected, with or without requeue.

    `failed` is True for basic.reject and False for basic.nack, for delayed retry.
    """

    taken: dict[int, Entry]
    positive: bool = True
    requeue: bool = False
    failed: bool = False


class TransactionalChannel(Protocol):
    """The channel of the transactions."""

    counts: ChannelCounts
    vhost: VirtualHost

    @property
    def publisher(self) -> Publisher: ...
    @property
    def unacked(self) -> Unacked: ...
    def reply(self, method: m.Method) -> None: ...


class Transactions:
    """The transactions of one channel. In the order of `commits`, tx.commit-ok waits for the disk."""

    def __init__(self, channel: TransactionalChannel, commits: Confirms) -> None:
        self._channel = channel
        self._publisher, self._unacked = channel.publisher, channel.unacked
        self._commits = commits
        self._settlements: list[Settlement] = []

    def select(self) -> None:
        """Make the channel transactional."""
        if self._publisher.confirms is not None:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self._publisher.transaction is None:
            self._publisher.transaction = []
        self._channel.reply(m.TxSelectOk())

    def settle(self, settlement: Settlement) -> None:
        """Acknowledge or reject now, or at the commit of the transaction."""
        if self._publisher.transaction is not None:
            self._settlements.append(settlement)
        elif settlement.positive:
            self._unacked.ack(settlement.taken)
        else:
            self._unacked.reject(settlement.taken, settlement.requeue, failed=settlement.failed)

    def commit(self) -> None:
        """Commit the transaction; commit-ok is sent when it is durable."""
        publications = self._publications()
        publisher, unacked = self._publisher, self._unacked
        publisher.transaction = []
        accepted, stored = True, False
        for target, message, queues in publications:
            accepted &= publisher.deliver(target, message, self._still_there(queues))
            stored |= target.stored or target.per_message
        for target, _, _ in publications:  # the topology may have changed since, and the targets with it
            self._channel.counts.publish += target.flush_counts(self._channel.vhost)
        settlements, self._settlements = self._settlements, []
        for settlement in settlements:
            if settlement.positive:  # only when the disk has the publications: a transaction is atomic
                unacked.ack(settlement.taken, when_safe=True)
            else:
                unacked.reject(settlement.taken, settlement.requeue, failed=settlement.failed)
        if not accepted:
            raise PreconditionFailed("partial tx completion")
        if publications:
            self._commits.commit(stored)
        else:
            self._channel.reply(m.TxCommitOk())

    def rollback(self) -> None:
        """Drop the publications; acknowledged or rejected deliveries are unacknowledged again, and not redelivered."""
        self._publications().clear()
        self.restore()
        self._channel.reply(m.TxRollbackOk())

    def restore(self) -> None:
        """Make deliveries that were acknowledged or rejected since the last commit unacknowledged again."""
        for settlement in self._settlements:
            self._unacked.restore(settlement.taken)
        self._settlements.clear()

    def _publications(self) -> list[tuple[Target, Message, tuple[Sink, ...]]]:
        if self._publisher.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return self._publisher.transaction

    def _still_there(self, sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
        """The sinks by name: a queue that was declared again replaces the old one, deleted ones are left out."""
        if not any(isinstance(sink, Queue) and sink.deleted for sink in sinks):
            return sinks
        there: list[Sink] = []
        for sink in sinks:
            if isinstance(sink, Queue) and sink.deleted:
                queue = self._channel.vhost.queues.get(sink.name)
                if queue is not None:
                    queue.enrich()  # the new queue does not know yet that such messages come
                    there.append(queue)
            else:
                there.append(sink)
        return tuple(there)
