"""Commits of the class tx, of both dialects, as one unit: all of it is done, or nothing, over a kill and a power cut.

- What a commit publishes and settles is written to the file of transactions (`store.prepared`) and synced before any of
  it takes effect. The rest is done at the next start, if a kill interrupts it (`branches.Branches.recover`).
- The end is written a little later, when the disk has all effects: nobody waits for it.
- The last commit of a session of AMQP 0-10 that outlives its connection is remembered, over a restart too, until the
  next one or the session's end: a client that did not get the answer learns that it was done.
- A commit that only acknowledges needs no such record, nor one that only publishes to one queue: what is missing after
  a kill are some of its last messages, or acknowledgements; unless its session asks for it. Messages that do not last
  are no part of the record.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from functools import partial
from typing import TypeAlias

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.store.positions import Positions
from harebell.broker.store.prepared import LOCAL, KeptBranch, LastCommit, PreparedBranches
from harebell.broker.timers import Timers
from harebell.broker.transactions.record import LOOKED_AT, Record

__all__ = ["Commit", "Commits"]

Session: TypeAlias = "tuple[str, str, bytes]"  # its virtual host, user and name


class Commit:
    """A commit that has begun: from now on it is carried out, whatever happens to the broker."""

    __slots__ = ("_commits", "_kept", "_places", "_work")

    def __init__(self, commits: Commits, kept: KeptBranch, places: dict[int, int], work: object) -> None:
        self._commits, self._kept, self._places, self._work = commits, kept, places, work

    def message(self, number: int, message: Message) -> Message:
        """What is published in place of the message of that publication."""
        place = self._places.get(number)
        return message if place is None else self._kept.number(message, place)

    def carried_out(self) -> None:
        """Note that everything was done: it is on disk with this batch and those before."""
        self._commits.carried_out(self._kept, self._work)


class Commits:
    """The commits of a node."""

    def __init__(self, batch: Batch, prepared: PreparedBranches, positions: Positions) -> None:
        self._batch, self._prepared, self._positions = batch, prepared, positions
        self._sessions = dict[Session, tuple[bytes, int] | None]()  # key and number of the last commit of each

    def recover(self, timers: Timers) -> None:
        """Remember the last commits of before a restart, as long as their sessions last."""
        for key, last in self._prepared.last.items():
            self._sessions[last.session] = (key, last.number)
            timers.at(timers.now() + 1000 * last.timeout, partial(self._expire, last.session, key))
        self._prepared.last.clear()

    def _expire(self, session: Session, key: bytes) -> None:
        last = self._sessions.get(session)
        if last is not None and last[0] == key:
            self.forget(session)

    def last_of(self, session: Session) -> int | None:
        """The number of the session's last commit; None where nothing is known of one."""
        last = self._sessions.get(session)
        return None if last is None else last[1]

    def forget(self, session: Session) -> None:
        """The session has ended, or is another one of that name: nobody asks for its last commit."""
        last = self._sessions.pop(session, None)
        if last is not None:
            self._prepared.forget_last(last[0])

    def beginning(
        self,
        vhost: str,
        user: str,
        publications: Sequence[tuple[object, Message, tuple[Sink, ...]]],
        taken: Collection[tuple[Queue, int]],
        rejected: Collection[tuple[Queue, int]],
        by: LastCommit | None = None,
    ) -> Generator[None, None, Commit | None]:
        """Begin a commit: it is on disk at the end of the work. Returns None for one that needs no record.

        publications  routed messages, each with its queues
        taken         stored queue and position of each message that is acknowledged
        rejected      ... and that is rejected, and does not return to its queue
        by            the session that may ask for the commit; it needs a record if it changes anything on disk
        """
        if by is None and (not publications or not (taken or rejected or (yield from _is_spread(publications)))):
            return None
        record = Record(KeptBranch(LOCAL, vhost, user, [], []), self._prepared, self._batch)
        yield from record.adding_messages((message, queues) for _, message, queues in publications)
        if not record.places and (by is None or not taken):
            return None
        yield from record.adding_taken(taken)
        yield from record.adding_taken(rejected, rejected=True)
        if by is not None:
            self._sessions.setdefault(by.session)
        record.end(decided=True, by=by)
        work = self._positions.begin_work()
        self._batch.cover_earlier()
        self._batch.slices.wait(self._batch.when_safe)
        yield
        return Commit(self, record.kept, record.places, work)

    def carried_out(self, kept: KeptBranch, work: object) -> None:
        """Note that the commit is over, when the disk has the data of this batch and those before."""
        self._batch.cover_earlier()
        self._batch.when_safe(partial(self._end, kept, work))

    def _end(self, kept: KeptBranch, work: object) -> None:
        by, before = kept.by, None
        if by is not None and by.session in self._sessions:
            before, self._sessions[by.session] = self._sessions[by.session], (kept.key, by.number)
        else:
            kept.by = None  # the session has ended meanwhile
        self._prepared.end_later(kept, partial(self._positions.end_work, work))
        if before is not None:
            self._prepared.forget_last(before[0])


def _is_spread(publications: Sequence[tuple[object, Message, tuple[Sink, ...]]]) -> Generator[None, None, bool]:
    """Whether they go to more than one stored queue."""
    found, last = set[Sink](), None
    for number, (_, _, queues) in enumerate(publications, 1):
        if queues is not last:
            last = queues
            found.update(queue for queue in queues if queue.stored)
            if len(found) > 1:
                return True
        if number % LOOKED_AT == 0:
            yield
    return False
