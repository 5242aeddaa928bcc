"""The transactions of one channel (tx): publications and acknowledgements take effect at the commit, or never.

A commit publishes first and acknowledges then (RabbitMQ's order). Where it does both on durable queues, all of it is
written to disk before (`transactions.commits`): over a kill it is done to its end, or not at all. Any other commit has
two steps on disk: when the publications are synced, the acknowledgements and rejections are written. When everything is
synced, commit-ok is sent. So a commit that was answered is never half done, whatever ends the process or the machine.
Routed publications wait in
`Publisher.transaction`; acknowledgements wait here.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from harebell.broker.counts import ChannelCounts
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.existing import existing
from harebell.broker.queues.settling import DELIVERIES_PER_STEP, rejected_in_steps, returning
from harebell.broker.slices import Work
from harebell.broker.transactions.commits import Commit
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.consumer import Entry
from harebell.broker.v091.link import Link
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


PUBLICATIONS_PER_STEP: Final = 32


class TransactionalChannel(Protocol):
    """The channel of the transactions."""

    counts: ChannelCounts
    vhost: VirtualHost

    connection: Link
    number: int

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
        self.settled = 0  # the number of deliveries that the current transaction settles

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
            self.settled += len(settlement.taken)
        elif settlement.positive:
            self._unacked.ack(settlement.taken)
        else:
            self._unacked.reject(settlement.taken, settlement.requeue, failed=settlement.failed)

    def commit(self) -> Work:
        """Commit the transaction; commit-ok is sent when it is durable."""
        publications = self._publications()
        publisher, batch = self._publisher, self._channel.vhost.batch
        settlements, self._settlements, self.settled = self._settlements, [], 0
        publisher.transaction = []
        commit = yield from self._begin(publications, settlements)
        accepted, stored = True, commit is not None
        refusal: AmqpError | None = None  # a service's: the rest of the transaction is committed, as after a rejection
        for number, (target, message, queues) in enumerate(publications, 1):
            if commit is not None:
                message = commit.message(number - 1, message)
            try:
                accepted &= yield from publisher.deliver_in_steps(
                    target, message, existing(self._channel.vhost.queues, queues)
                )
            except AmqpError as error:
                refusal = refusal or error
            stored |= target.is_stored(queues)
            if number % PUBLICATIONS_PER_STEP == 0:
                batch.relieve()
                yield
        for number, (target, _, _) in enumerate(publications):
            if target.count:  # the topology may have changed since, and the targets with it
                self._channel.counts.publish += target.flush_counts(self._channel.vhost)
            if number % DELIVERIES_PER_STEP == DELIVERIES_PER_STEP - 1:
                yield
        some = bool(publications)
        batch.slices.discard(publications)
        settled, rejects = set[Queue](), False
        for settlement in settlements:
            rejects |= not settlement.positive
            yield from self._settling(settlement, settled, as_unit=commit is not None)
        batch.slices.discard(settlements)
        batch.cover_earlier()
        if commit is not None and not (settled and rejects):
            for queue in settled:  # nothing waits for a dead letter
                queue.sync_settlements()
            settled.clear()
            commit.carried_out()
        if not accepted:
            refusal = refusal or PreconditionFailed("partial tx completion")
        if settled:
            if refusal is None:
                self._commits.expect_commit()
            batch.when_safe(partial(self._sync_settlements, settled, commit, answers=refusal is None))
        if refusal is not None:
            raise refusal
        if some and not settled:
            self._commits.commit(stored)
        elif not settled:
            self._channel.reply(m.TxCommitOk())

    def _begin(
        self, publications: Sequence[tuple[Target, Message, tuple[Sink, ...]]], settlements: Iterable[Settlement]
    ) -> Generator[None, None, Commit | None]:
        """Write the commit to disk, if it has to be one unit."""
        taken, rejected = list[tuple[Queue, int]](), list[tuple[Queue, int]]()
        if publications:
            for settlement in settlements:
                if settlement.requeue:
                    continue  # after a kill they return as well
                places = taken if settlement.positive else rejected
                for share in _shares(settlement.taken):
                    places += [
                        (queue, position)
                        for queue, _, position, message in share.values()
                        if queue.stored and message is not None
                    ]
                    yield
        channel = self._channel
        commits, user = channel.connection.node.commits, channel.connection.user
        return (yield from commits.beginning(channel.vhost.name, user, publications, taken, rejected))

    def _settling(self, settlement: Settlement, settled: set[Queue], *, as_unit: bool) -> Work:
        """Settle deliveries; the stored queues among theirs are added to `settled`.

        `as_unit`: the commit is on disk; else it acknowledges only when the disk has the publications.
        """

        def apply(taken: dict[int, Entry]) -> None:
            self._channel.vhost.batch.cover_earlier()
            settled.update(queue for queue, *_ in taken.values() if queue.stored)
            if settlement.positive:
                self._unacked.ack(taken, when_safe=not as_unit)
            else:
                self._unacked.reject(taken, settlement.requeue, failed=settlement.failed)

        shares = _shares(settlement.taken)
        if settlement.requeue:
            yield from returning(shares, apply)
            return
        for share in shares:
            for taken in (share,) if settlement.positive else rejected_in_steps(share):
                apply(taken)
                yield

    def _sync_settlements(self, queues: Collection[Queue], commit: Commit | None, *, answers: bool) -> None:
        """Let commit-ok wait until the settlements of these queues are on the disk."""
        for queue in queues:
            queue.sync_settlements()
        if commit is not None:
            commit.carried_out()
        if answers:
            self._commits.commit(stored=True)

    def rollback(self) -> None:
        """Drop the publications; acknowledged or rejected deliveries are unacknowledged again, and not redelivered."""
        self._channel.vhost.batch.slices.discard(self._publications())
        self._publisher.transaction = []
        self.restore()
        self._channel.connection.work(self._channel.number, m.TxRollback(), self._rolling_back())

    def _rolling_back(self) -> Work:
        yield from self._unacked.restoring()
        self._channel.reply(m.TxRollbackOk())

    def restore(self) -> None:
        """Make deliveries that were acknowledged or rejected since the last commit unacknowledged again.

        Where these are many, that has only begun (`Unacked.restoring`).
        """
        if self._settlements:
            self._unacked.restore(_all_taken(self._settlements), self.settled)
            self._settlements, self.settled = [], 0

    def _publications(self) -> list[tuple[Target, Message, tuple[Sink, ...]]]:
        if self._publisher.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return self._publisher.transaction


def _all_taken(settlements: list[Settlement]) -> Iterator[dict[int, Entry]]:
    """The deliveries of the settlements, which are freed."""
    while settlements:
        yield settlements.pop().taken


def _shares(taken: dict[int, Entry]) -> Iterator[dict[int, Entry]]:
    if len(taken) <= DELIVERIES_PER_STEP:
        yield taken
    else:
        entries = iter(taken.items())
        while share := dict(islice(entries, DELIVERIES_PER_STEP)):
            yield share
