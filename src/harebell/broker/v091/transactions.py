"""The transactions of one channel (tx): publications and acknowledgements take effect at the commit, or never.

A commit publishes first and acknowledges then (RabbitMQ's order). It has two steps on disk: when the publications are
synced, the acknowledgements and rejections are written; when these are synced too, commit-ok is sent. So a commit that
was answered is never half done, whatever ends the process or the machine. Routed publications wait in
`Publisher.transaction`; acknowledgements wait here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from harebell.broker.connections.settling import rejected_in_steps, returning
from harebell.broker.counts import ChannelCounts
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.existing import existing
from harebell.broker.slices import Work
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.consumer import Entry
from harebell.broker.v091.publisher import Publisher, Target
from harebell.broker.v091.unacked import Unacked
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError, PreconditionFailed
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


STEP: Final = 32  # publications of one step
SHARE: Final = 512  # deliveries settled in one step


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

    @property
    def settled(self) -> int:
        """The number of deliveries that the current transaction settles."""
        return sum(len(settlement.taken) for settlement in self._settlements)

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

    def commit(self) -> Work:
        """Commit the transaction; commit-ok is sent when it is durable."""
        publications = self._publications()
        publisher, batch = self._publisher, self._channel.vhost.batch
        publisher.transaction = []
        accepted, stored = True, False
        refusal: AmqpError | None = None  # a service's: the rest of the transaction is committed, as after a rejection
        for number, (target, message, queues) in enumerate(publications, 1):
            try:
                accepted &= yield from publisher.deliver_in_steps(
                    target, message, existing(self._channel.vhost.queues, queues)
                )
            except AmqpError as error:
                refusal = refusal or error
            stored |= target.stored or target.per_message
            if number % STEP == 0:
                batch.relieve()
                yield
        for number, (target, _, _) in enumerate(publications):
            if target.count:  # the topology may have changed since, and the targets with it
                self._channel.counts.publish += target.flush_counts(self._channel.vhost)
            if number % SHARE == SHARE - 1:
                yield
        batch.slices.discard(publications)
        settlements, self._settlements = self._settlements, []
        settled: set[Queue] = set()
        for settlement in settlements:
            shares = _shares(settlement.taken)
            if settlement.requeue:
                yield from returning(shares, partial(self._apply, settlement, settled))
            else:
                for share in shares:
                    for taken in (share,) if settlement.positive else rejected_in_steps(share):
                        self._apply(settlement, settled, taken)
                        yield
        batch.cover_earlier()
        if refusal is not None:
            raise refusal
        if not accepted:
            raise PreconditionFailed("partial tx completion")
        if settled:
            self._commits.expect_commit()
            batch.when_safe(partial(self._sync_settlements, settled))
        elif publications:
            self._commits.commit(stored)
        else:
            self._channel.reply(m.TxCommitOk())

    def _apply(self, settlement: Settlement, settled: set[Queue], taken: dict[int, Entry]) -> None:
        """Settle a share of the deliveries; the stored queues among theirs are added to `settled`."""
        self._channel.vhost.batch.cover_earlier()
        settled.update(queue for queue, *_ in taken.values() if queue.stored)
        if settlement.positive:  # only when the disk has the publications: a transaction is atomic
            self._unacked.ack(taken, when_safe=True)
        else:
            self._unacked.reject(taken, settlement.requeue, failed=settlement.failed)

    def _sync_settlements(self, queues: Collection[Queue]) -> None:
        """Let commit-ok wait until the settlements of these queues are on the disk."""
        for queue in queues:
            queue.sync_settlements()
        self._commits.commit(stored=True)

    def rollback(self) -> None:
        """Drop the publications; acknowledged or rejected deliveries are unacknowledged again, and not redelivered."""
        self._channel.vhost.batch.slices.discard(self._publications())
        self._publisher.transaction = []
        self.restore()
        self._channel.reply(m.TxRollbackOk())

    def restore(self) -> None:
        """Make deliveries that were acknowledged or rejected since the last commit unacknowledged again."""
        if self._settlements:
            self._unacked.restore(settlement.taken for settlement in self._settlements)
            self._settlements.clear()

    def _publications(self) -> list[tuple[Target, Message, tuple[Sink, ...]]]:
        if self._publisher.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return self._publisher.transaction


def _shares(taken: dict[int, Entry]) -> Iterator[dict[int, Entry]]:
    if len(taken) <= SHARE:
        yield taken
    else:
        entries = iter(taken.items())
        while share := dict(islice(entries, SHARE)):
            yield share
