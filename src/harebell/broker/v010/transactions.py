"""The transactions of one session (tx): transfers and message.accept take effect at the commit, or never.

As with Qpid, message.reject and message.release take effect at once, and deliveries with accept-mode none, which the
specification rules out (rule explicit-accepts), belong to no transaction. A commit publishes first and accepts then; it
is one unit on disk, and complete when the disk has both (see `v091.transactions`). After a rollback the
messages that were accepted are still acquired, and a new transaction has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.queues.existing import existing
from harebell.broker.queues.settling import DELIVERIES_PER_STEP
from harebell.broker.slices import Work
from harebell.broker.store.prepared import LastCommit
from harebell.broker.transactions.commits import Commit
from harebell.broker.v010.commands import LATER, Outcome
from harebell.broker.v010.completions import COMPLETE, Completions
from harebell.broker.v010.delivered import Delivered, Unsettled
from harebell.broker.v010.deliveries import ALL, Deliveries, Ranges
from harebell.broker.v010.publisher import Publisher, Target
from harebell.broker.vhost import VirtualHost
from harebell.errors import IllegalState, PreconditionFailed
from harebell.protocol.v010 import Command, commands as c

__all__ = ["HANDLERS", "Transactions"]

PUBLICATIONS_PER_STEP: Final = 32


class Demarcation(Protocol):
    """The distributed transactions of the session."""

    selected: bool


class TransactionalSession(Protocol):
    """The session of the transactions."""

    node: Node
    vhost: VirtualHost
    user: str
    session_name: bytes
    timeout: int
    batch: Batch
    ended: bool

    @property
    def publisher(self) -> Publisher: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def completions(self) -> Completions: ...
    @property
    def dtx(self) -> Demarcation: ...
    def work(self, number: int, command: Command, work: Work) -> None:
        """Execute a long command in slices; the connection's input waits until that is done."""


class Transactions:
    """The transactions of one session. `selected` from tx.select on."""

    def __init__(self, session: TransactionalSession) -> None:
        self._session = session
        self.selected = False
        self.publications: list[tuple[Target, Message, tuple[Sink, ...]]] = []
        self._accepted = Unsettled()

    @property
    def settled(self) -> int:
        """The number of deliveries that the current transaction settles."""
        return self._accepted.count

    def select(self) -> None:
        """Make the session transactional. IllegalState when it is already."""
        if self.selected or self._session.dtx.selected:
            raise IllegalState("tx.select: the session is transactional already")
        self.selected = self._session.publisher.holds_back = True

    def accepting(self, shares: Iterable[list[Delivered]]) -> Work:
        """Let deliveries wait for the commit; when the session ends, the rest returns with its other deliveries."""
        for share in shares:
            for run in share:
                self._accepted.insert(run)
            yield
            if self._session.ended:
                return

    def give_back(self, ranges: Ranges) -> list[Delivered]:
        """Take deliveries in these ranges out of the transaction: they are released before the commit."""
        return [run for low, high in ranges for run in self._accepted.take(low, high)]

    def check(self, command: str) -> None:
        """Raise IllegalState unless the session is transactional."""
        if not self.selected:
            raise IllegalState(f"{command}: the session is not transactional, tx.select comes first")

    def commit(self, number: int) -> Work:
        """Commit; the command completes when that is durable."""
        session, publisher, batch = self._session, self._session.publisher, self._session.batch
        publications, self.publications = self.publications, []
        taken, self._accepted = self._accepted, Unsettled()
        commit = yield from self._begin(number, publications, taken)
        accepted, stored = True, False
        for count, (target, message, queues) in enumerate(publications, 1):
            if commit is not None:
                message = commit.message(count - 1, message)
            accepted &= yield from publisher.deliver_in_steps(target, message, existing(session.vhost.queues, queues))
            stored |= target.stored
            if count % PUBLICATIONS_PER_STEP == 0:
                batch.relieve()
                yield
        settled: set[Queue] = set()
        for run in taken:
            batch.cover_earlier()
            settled |= session.deliveries.accept((run,), when_safe=commit is None)
            yield
        batch.cover_earlier()
        if commit is not None:
            for queue in settled:
                queue.sync_settlements()
            settled.clear()
            commit.carried_out()
            stored = True
        if not accepted:
            raise PreconditionFailed("tx.commit: a queue refused a message, the rest of the transaction is committed")
        if settled:
            batch.when_safe(partial(self._sync_settlements, settled, number))
        else:
            session.completions.add(number, COMPLETE, stored=stored)

    def _begin(
        self,
        number: int,
        publications: Sequence[tuple[Target, Message, tuple[Sink, ...]]],
        accepted: Iterable[Delivered],
    ) -> Generator[None, None, Commit | None]:
        """Write the commit to disk, if it has to be one unit."""
        session, taken = self._session, list[tuple[Queue, int]]()
        if publications or session.timeout:
            for run in accepted:
                for (queue, _), positions, messages in run.groups():
                    if queue.stored:
                        found = zip(positions, messages, strict=True)
                        taken += [(queue, position) for position, message in found if message is not None]
                yield
        vhost, user, by = session.vhost.name, session.user, None
        if session.timeout:
            by = LastCommit(vhost, user, session.session_name, number, session.timeout)
        return (yield from session.node.commits.beginning(vhost, user, publications, taken, [], by))

    def _sync_settlements(self, queues: Collection[Queue], number: int) -> None:
        """Let the completion wait until the settlements of these queues are on the disk."""
        for queue in queues:
            queue.sync_settlements()
        if not self._session.ended:
            self._session.completions.add(number, COMPLETE, stored=True)

    def rolling_back(self) -> Work:
        """Drop the publications; what was accepted is acquired again, in steps: the rest stays in the transaction."""
        self._session.batch.slices.discard(self.publications)
        self.publications = []
        for share in self._accepted.shares(ALL, DELIVERIES_PER_STEP):
            self._session.deliveries.restore(share)
            yield

    # -- commands ------------------------------------------------------------------------------------------------

    def _select(self, number: int, command: c.TxSelect) -> Outcome:
        self.select()
        return None

    def _commit(self, number: int, command: c.TxCommit) -> Outcome:
        self.check(command.NAME)
        self._session.work(number, command, self.commit(number))
        return LATER

    def _rollback(self, number: int, command: c.TxRollback) -> Outcome:
        self.check(command.NAME)
        self._session.work(number, command, self._roll_back(number))
        return LATER

    def _roll_back(self, number: int) -> Work:
        yield from self.rolling_back()
        self._session.completions.add(number, COMPLETE, stored=False)


Handler: TypeAlias = "Callable[[Transactions, int, Any], Outcome]"  # each takes the command type that is its key

HANDLERS: Final[dict[type[Command], Handler]] = {
    c.TxSelect: Transactions._select,
    c.TxCommit: Transactions._commit,
    c.TxRollback: Transactions._rollback,
}
