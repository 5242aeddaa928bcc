"""The branches of a node: begun, prepared, committed or rolled back, and recovered after a restart.

- A branch that is not prepared is rolled back when a session that works in it ends, and when its time is over. Its
  manager learns that from its next command for it, and then the branch is forgotten; without one, after its timeout.
- A prepared branch stays, over a restart too, until its manager, or an operator, commits it or rolls it back. It is
  on disk before its `prepare` is answered.
- A commit is written to the disk first, then its messages go to their queues, and what was taken is settled; it is
  complete when all of that is on disk. One that a kill interrupts is done to its end at the start (`store.prepared`).
- A queue that refuses a message at the commit makes the outcome mixed: the branch stays, over a restart too, until its
  manager forgets it, as does one that an administrator has decided about. A queue that is gone gets nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink, keys_of, route_message
from harebell.broker.message import Message
from harebell.broker.queues.base import Back, Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.existing import existing
from harebell.broker.queues.settling import DELIVERIES_PER_STEP, LETTERS_PER_STEP, returning
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.slices import Work
from harebell.broker.store.positions import NUMBER, Positions
from harebell.broker.store.prepared import KeptBranch, Place, PreparedBranches
from harebell.broker.timers import Timers
from harebell.broker.transactions.branch import Branch, BranchState, Publication, Taken, Xid
from harebell.broker.transactions.record import Record
from harebell.errors import NotFound, ResourceError
from harebell.routing import Route, Router

__all__ = ["DEFAULT_TIMEOUT", "MAX_BRANCHES", "MAX_TIMEOUT", "Branches"]

log = logging.getLogger("harebell.broker.transactions")

DEFAULT_TIMEOUT: Final = 60  # seconds
MAX_TIMEOUT: Final = 3600
MAX_BRANCHES: Final = 65_536  # of a node
ROLLED_BACK: Final = (BranchState.ROLLED_BACK, BranchState.TIMED_OUT)  # and the manager does not know yet
PUBLICATIONS_PER_STEP: Final = 32  # or queues of one


class Home(Protocol):
    """The part of a virtual host that branches use."""

    @property
    def router(self) -> Router: ...
    @property
    def queues(self) -> Mapping[str, Queue]: ...
    def receivers(self, names: Sequence[str]) -> tuple[Queue, ...]: ...
    def exchange_sinks(self, route: Route, keys: tuple[str, ...]) -> tuple[Sink, ...]: ...
    def count_publications(self, exchange: str, sinks: tuple[Sink, ...], count: int) -> None: ...


class Branches:
    """All branches of a node. `vhosts` are its virtual hosts by name."""

    def __init__(
        self,
        vhosts: Mapping[str, Home],
        batch: Batch,
        timers: Timers,
        prepared: PreparedBranches,
        positions: Positions,
    ) -> None:
        self._vhosts, self._batch, self._timers = vhosts, batch, timers
        self._prepared, self._positions = prepared, positions
        self._branches: dict[tuple[str, Xid], Branch] = {}
        self._recovered: list[Branch] = []  # in the order of the file, until `recover`

    def __iter__(self) -> Generator[Branch, None, None]:
        yield from self._branches.values()

    def get(self, vhost: str, xid: Xid) -> Branch | None:
        return self._branches.get((vhost, xid))

    def find(self, vhost: str, xid: Xid) -> Branch:
        """The branch. NotFound when there is none."""
        branch = self._branches.get((vhost, xid))
        if branch is None:
            raise NotFound(f"no {Branch(xid, vhost, '', 0)} in vhost '{vhost}'")
        return branch

    def begin(self, vhost: str, xid: Xid, user: str) -> Branch:
        """A new branch, with the default timeout. ResourceError when there are too many."""
        if len(self._branches) >= MAX_BRANCHES:
            raise ResourceError(f"there are {MAX_BRANCHES} transactions")
        branch = self._branches[vhost, xid] = Branch(xid, vhost, user, DEFAULT_TIMEOUT)
        self.set_timeout(branch, DEFAULT_TIMEOUT)
        return branch

    def set_timeout(self, branch: Branch, timeout: int) -> None:
        """Roll the branch back in `timeout` seconds from now, unless it is prepared before.

        One that is rolled back already is forgotten then.
        """
        branch.timeout = timeout
        if branch.state is BranchState.ACTIVE or branch.state in ROLLED_BACK:
            self._arm(branch)

    def _arm(self, branch: Branch) -> None:
        self._cancel(branch)
        branch.timer = self._timers.at(self._timers.now() + 1000 * branch.timeout, partial(self._time_out, branch))

    def _cancel(self, branch: Branch) -> None:
        if branch.timer is not None:
            branch.timer.cancel()
            branch.timer = None

    def _time_out(self, branch: Branch) -> None:
        if branch.state is BranchState.ACTIVE:
            self._batch.slices.run(self.failing(branch, BranchState.TIMED_OUT))
        elif branch.associated:
            self._arm(branch)  # these sessions do not know yet that it is rolled back
        else:
            self.forget(branch)

    def forget(self, branch: Branch) -> None:
        """Nobody can ask for the branch any more."""
        self._cancel(branch)
        if self._branches.get((branch.vhost, branch.xid)) is branch:
            del self._branches[branch.vhost, branch.xid]
        self._end_kept(branch)

    def forget_vhost(self, vhost: str) -> None:
        """A virtual host is deleted, with its branches."""
        for branch in [each for each in self if each.vhost == vhost]:
            self.forget(branch)

    # -- the end of a branch -------------------------------------------------------------------------------------

    def failing(self, branch: Branch, state: BranchState = BranchState.ROLLED_BACK) -> Work:
        """Roll an active branch back; its manager learns it from its next command for it."""
        if branch.state in ROLLED_BACK and self._is_known(branch):
            self._arm(branch)  # a session has left it: its manager has the whole time to ask
        if branch.state is not BranchState.ACTIVE:
            return
        branch.state = state
        self._arm(branch)
        yield from self._returning(branch)

    def preparing(self, branch: Branch) -> Work:
        """Prepare a branch: it is on disk at the end of the work."""
        self._cancel(branch)
        branch.state = BranchState.PREPARING
        yield from self._keeping(branch, decided=False)
        if branch.kept is not None:
            yield from self._safe()
        branch.state = BranchState.PREPARED

    def _keeping(self, branch: Branch, *, decided: bool) -> Work:
        """Write what a branch holds, in steps: at the end it is `kept`, unless it has transient messages only."""
        record = Record(KeptBranch(branch.xid, branch.vhost, branch.user, [], []), self._prepared, self._batch)

        def adding() -> Work:
            yield from record.adding_messages(branch.publications)
            stored = list[tuple[Queue, int]]()
            for share in _shares(branch.taken):
                stored += [(queue, position) for queue, position, _ in share if queue.stored]
                yield
            yield from record.adding_taken(stored)

        for _ in adding():
            yield
            if not self._is_known(branch):  # its virtual host was deleted
                record.give_up()
                return
        if not record.is_empty:
            record.end(decided=decided)
            branch.kept, branch.places = record.kept, record.places

    def _is_known(self, branch: Branch) -> bool:
        return self._branches.get((branch.vhost, branch.xid)) is branch

    def committing(self, branch: Branch, *, by_hand: bool = False) -> Work:
        """Commit a branch, prepared or not: everything is on disk at the end of the work.

        It is forgotten then, unless a queue has refused a message, or it was done `by_hand`.
        """
        self._cancel(branch)
        branch.state = BranchState.ENDING
        if branch.kept is not None:
            self._prepared.decide(branch.kept, by_hand=by_hand)
        else:
            yield from self._keeping(branch, decided=True)
        work = None
        if branch.kept is not None:
            work = self._positions.begin_work()
            yield from self._safe()
        yield from self._carrying_out(branch, work, by_hand=by_hand)
        if branch.state is BranchState.ENDING:
            self.forget(branch)

    def rolling_back(self, branch: Branch, *, by_hand: bool = False) -> Work:
        """Roll a branch back, prepared or not, and forget it, unless it is done `by_hand`."""
        self._cancel(branch)
        branch.state = BranchState.ENDING
        yield from self._returning(branch)
        if by_hand:
            yield from self._remembering(branch, BranchState.ROLLED_BACK_BY_HAND)
            return
        if branch.kept is not None:
            self._end_kept(branch)
            yield from self._safe()
        self.forget(branch)

    def deciding(self, branch: Branch, *, commits: bool) -> Work:
        """Commit or roll back a prepared branch in its manager's stead, who learns it from the next command for it."""
        yield from (self.committing if commits else self.rolling_back)(branch, by_hand=True)

    def _carrying_out(self, branch: Branch, work: object, *, by_hand: bool = False, seen: bool = False) -> Work:
        """Publish the messages and settle what was taken, and wait until that is on disk.

        seen  the messages may have been delivered before
        """
        vhost, batch, kept = self._vhosts.get(branch.vhost), self._batch, branch.kept
        publications, branch.publications = branch.publications, []
        refused = 0
        published = 0
        for number, (message, sinks) in enumerate(publications):
            if vhost is None:  # it is being deleted
                break
            queues, place = existing(vhost.queues, sinks), branch.places.get(number)
            if kept is not None and place is not None:
                message = kept.number(message, place)
                if place in kept.stored:
                    queues = self._without_stored(queues, kept.stored[place])
            vhost.count_publications(message.address.exchange, queues, 1)
            for queue in queues:
                publish = queue.publish_again if seen and isinstance(queue, ClassicQueue) else queue.publish
                refused += not publish(message)
                published += 1
                if published % PUBLICATIONS_PER_STEP == 0:
                    batch.relieve()
                    yield
        self._batch.slices.discard(publications)
        taken, branch.taken = branch.taken, []
        settled: set[Queue] = set()
        for share in _shares(taken):
            for queue, entries in _by_queue(share).items():
                queue.counts.ack += len(entries)
                queue.counts_010.ack += len(entries)
                settled.add(queue)
                queue.settle([position for position, _ in entries])
                for _, given in entries:
                    queue.acked(given)
                yield
        self._batch.slices.discard(taken)
        yield from self._rejecting(branch, settled)
        for queue in settled:
            queue.sync_settlements()
        if refused:
            log.error("%s: %d messages were refused by their queues, the rest of it is committed", branch, refused)
        batch.cover_earlier()
        yield from self._safe()
        if (refused and not branch.is_local) or by_hand:
            yield from self._remembering(branch, BranchState.MIXED if refused else BranchState.COMMITTED_BY_HAND)
        else:
            self._end_kept(branch)
        if work is not None:
            batch.when_safe(partial(self._positions.end_work, work))

    def _rejecting(self, branch: Branch, settled: set[Queue]) -> Work:
        """Reject what a commit of the class tx rejects: settled when its letters are on disk."""
        rejected, branch.rejected = branch.rejected, []
        if not rejected:
            return
        for share in _shares(rejected, LETTERS_PER_STEP):
            for queue, entries in _by_queue(share).items():
                settled.add(queue)
                queue.reject(entries)
                yield
        self._batch.cover_earlier()
        yield from self._safe()

    def _remembering(self, branch: Branch, outcome: BranchState) -> Work:
        """Let its manager learn what became of the branch, until it forgets it: on disk at the end of the work."""
        if branch.vhost in self._vhosts and self._branches.setdefault((branch.vhost, branch.xid), branch) is branch:
            branch.kept = branch.kept or KeptBranch(branch.xid, branch.vhost, branch.user, [], [])
            self._prepared.remember(branch.kept, outcome.value)
            yield from self._safe()
        else:
            self._end_kept(branch)
        branch.state = outcome

    def _without_stored(self, queues: tuple[Sink, ...], stored: Collection[str]) -> tuple[Sink, ...]:
        for queue in queues:
            if isinstance(queue, ClassicQueue) and str(queue) in stored:
                queue.sync_recovered()  # the process before may have been killed before its sync
        return tuple(queue for queue in queues if str(queue) not in stored)

    def _returning(self, branch: Branch) -> Work:
        """Drop the messages, and return what was taken to its queues."""
        taken, branch.taken = branch.taken, []
        self._batch.slices.discard(branch.publications)
        branch.publications = []
        yield from self.returning(taken)

    def returning(self, taken: list[Taken]) -> Work:
        """Return messages to their queues, which deliver nothing until all are there. The list is emptied then."""
        yield from returning(_shares(taken), _give_back, queues_of=_queues_of)
        self._batch.slices.discard(taken)

    def _end_kept(self, branch: Branch) -> None:
        if branch.kept is not None:
            self._prepared.end(branch.kept)
            branch.kept = None

    def _safe(self) -> Work:
        """Wait until the batch is on disk."""
        self._batch.slices.wait(self._batch.when_safe)
        yield

    # -- after a restart -----------------------------------------------------------------------------------------

    def take_again(self) -> None:
        """Take from their queues what the transactions of before the restart hold.

        That comes before anything else may take or drop it: a length limit, an expiry, another of these transactions.
        """
        found, self._prepared.found = self._prepared.found, {}
        known = set[tuple[str, Xid]]()
        for kept in sorted(found.values(), key=lambda kept: kept.outcome != ""):
            branch, vhost = Branch(Xid(*kept.xid), kept.vhost, kept.user, DEFAULT_TIMEOUT), self._vhosts.get(kept.vhost)
            branch.kept = kept
            if vhost is None or (kept.vhost, branch.xid) in known:
                self._prepared.end(kept)
                continue
            if not branch.is_local:
                known.add((kept.vhost, branch.xid))
            branch.taken += _taken_again(vhost, kept.taken, branch)
            branch.rejected += _taken_again(vhost, kept.rejected, branch)
            kept.taken, kept.rejected = [], []
            self._recovered.append(branch)

    def recover(self, *, suspect: bool) -> None:
        """Go on with the branches of `take_again`: carry out the commits that had begun.

        suspect  the machine stopped with the last broker: what a commit had published may have been delivered, though
                 the queue knows nothing of it any more
        """
        self.take_again()  # where there is no virtual host
        recovered, self._recovered = self._recovered, []
        for branch in recovered:
            kept = branch.kept
            assert kept is not None
            self._route_again(branch, kept)
            if kept.outcome:
                branch.state = BranchState(kept.outcome)
                self._branches[kept.vhost, branch.xid] = branch
            elif kept.decided:
                log.warning("%s in vhost '%s': its commit was interrupted, and is done now", branch, kept.vhost)
                work = self._positions.begin_work()
                branch.state = BranchState.ENDING
                if kept.by_hand:
                    self._branches[kept.vhost, branch.xid] = branch
                self._batch.slices.run(self._carrying_out(branch, work, by_hand=kept.by_hand, seen=suspect))
            else:
                log.info("%s in vhost '%s' is prepared", branch, kept.vhost)
                branch.state = BranchState.PREPARED
                self._branches[kept.vhost, branch.xid] = branch

    def _route_again(self, branch: Branch, kept: KeptBranch) -> None:
        """Find the queues of the branch's messages, and which of them have these already."""
        vhost = self._vhosts[kept.vhost]
        for name, (offset, folder) in kept.streams.items():
            stream = vhost.queues.get(name)
            if isinstance(stream, StreamQueue):
                first = offset if folder in ("", stream.folder) else 0  # else it was declared again
                for key, stored in map(NUMBER.unpack, stream.log.numbers(first)):
                    if key == kept.key:
                        kept.stored.setdefault(stored, set()).add(str(stream))
        for place, (message, told) in enumerate(kept.messages):
            queues: tuple[Sink, ...] = (
                _routed(vhost, message)
                if told is None
                else tuple(vhost.queues[name] for name in told if name in vhost.queues)
            )
            if message.ttl is not None:
                for sink in queues:
                    sink.enrich()
            branch.publications.append(Publication(message, queues))
            branch.places[place] = place
        kept.messages = []


def _taken_again(vhost: Home, places: Iterable[Place], holder: Branch) -> Iterator[Taken]:
    """What is at these places, where it is still there: not in a queue that was declared again."""
    for name, position, folder in places:
        queue = vhost.queues.get(name)
        if isinstance(queue, ClassicQueue) and folder in ("", queue.folder):
            queue.enrich()
            queue.finish_enriching()
            held = queue.take_at(position, holder)
            if held is not None:
                yield Taken(queue, position, held)


def _shares(taken: Sequence[Taken], count: int = DELIVERIES_PER_STEP) -> Iterator[Sequence[Taken]]:
    """What was taken, so many at a time."""
    entries = iter(taken)
    while share := list(islice(entries, count)):
        yield share


def _queues_of(taken: Iterable[Taken]) -> set[Queue]:
    return {each.queue for each in taken}


def _give_back(taken: Iterable[Taken]) -> None:
    for queue, entries in _by_queue(taken).items():
        queue.before_requeue()
        queue.requeue(entries, failed=False)


def _by_queue(taken: Iterable[Taken]) -> dict[Queue, list[Back]]:
    found: dict[Queue, list[Back]] = {}
    for queue, position, message in taken:
        found.setdefault(queue, []).append((position, message))
    return found


def _routed(vhost: Home, message: Message) -> tuple[Sink, ...]:
    """Where a message goes whose route has more than queues: as if it were published now."""
    exchange, content, keys = message.address.exchange, message.content, keys_of(message)
    if not vhost.router.has_exchange(exchange):
        return ()
    route = route_message(vhost.router, exchange, keys, content.decode_properties, lambda: content.body, lenient=True)
    return (*vhost.receivers(route.queues), *vhost.exchange_sinks(route, keys))
