"""How a session survives a restart of the broker, as long as it only publishes.

A client without state is told what is expected when the session is on disk, so that it finds it again whatever it sends
then. Each durable message has the session and the number of its command on disk, and the file of positions says what is
complete (`store.positions`). After a restart the session goes on from there: a command that is sent again is executed
for the queues that do not have its message yet, and for no other.

A client that asks for what is complete too (Spark's sink) has its session on disk with the first durable message only:
one that begins anew, after its state was lost, must not look to the next attempt like one that goes on.

A session that holds more (subscriptions, a transaction, exclusive queues), or has sent messages to where numbers are
not kept (streams, delayed exchanges) or mean nothing (a route by chance), does not survive: its client learns that its
state is lost. If it is transactional, the client learns before that which commit was the last one
(`transactions.commits`).

A command that undoes something (purge, delete, unbind) is not executed twice either: it would take what was published
behind it, or find nothing. A session does not survive from before such a command until all that came with it is
complete, and goes on surviving with the next durable message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from harebell.broker.forwarding import Sink
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.store.positions import NUMBER, Known, Positions
from harebell.broker.transactions.commits import Commits
from harebell.broker.v010.outbox import Sent
from harebell.broker.vhost import VirtualHost
from harebell.protocol.v010 import Control, commands as c, controls as k
from harebell.protocol.v010.serial import narrow, wide, wide_ranges
from harebell.protocol.v010.session import Session as State

__all__ = ["Survival", "keeps_numbers"]


def keeps_numbers(queues: Iterable[Sink]) -> bool:
    """Whether those of the queues that store messages store their numbers too."""
    return all(isinstance(queue, ClassicQueue) for queue in queues if queue.stored)


class SurvivingSession(Protocol):
    """The session that survives."""

    vhost: VirtualHost
    user: str
    session_name: bytes
    timeout: int

    @property
    def state(self) -> State[Sent]: ...


class Survival:
    """Whether, and from where, one session goes on after a restart.

    stored  the queues that have the message of a command from before the restart, by its number: names
    """

    def __init__(self, session: SurvivingSession, positions: Positions, commits: Commits, known: Known | None) -> None:
        self._session, self._positions, self._commits = session, positions, commits
        self._asks = known is None  # its client may have it, where nothing is known of it but its last commit
        self._key = b"" if known is None else known.session
        self.stored = {} if known is None else known.stored
        self._plain = True
        self._pausing = False  # a command that undoes something may not be complete
        self._marked = known is not None  # messages have the session's numbers

    def begin(self) -> bool:
        """Let a session that is new to its client too survive, if it has a timeout; whether the disk has to be told."""
        if self._key or not self._plain or self._pausing or not self._session.timeout:
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        session = self._session
        self._key = self._positions.begin(
            session.vhost.name, session.user, session.session_name, session.timeout, self._position()
        )

    def last_commit(self, control: Control) -> Control | None:
        """What answers a client that still has the session, before it is told that it is a new one."""
        if not self._asks:
            return None
        if isinstance(control, k.SessionFlush) and control.completed:
            last = self._commits.last_of(self._name())
            return None if last is None else k.SessionCompleted(((narrow(last), narrow(last)),))
        if isinstance(control, k.SessionFlush | k.SessionCommandPoint):  # a client without it, or one that goes on
            self._asks = False
            self._commits.forget(self._name())
        return None

    def _name(self) -> tuple[str, str, bytes]:
        session = self._session
        return session.vhost.name, session.user, session.session_name

    def mark(self, number: int, kept: bool) -> bytes:
        """What the messages of this command have on disk; b"" where the session does not survive.

        kept  the queues keep numbers: else the session does not survive from now on
        """
        if not kept:
            self.give_up()
        elif not self._key and self._plain and self._session.timeout and self._goes_on(number):
            self._begin()
        if not self._key:
            return b""
        self._marked = True
        return NUMBER.pack(self._key, number)

    def marks(self, number: int, count: int, kept: bool) -> list[bytes]:
        """As `mark`, for so many commands from `number` on; [] where the session does not survive."""
        if not self.mark(number, kept):
            return []
        pack, key = NUMBER.pack, self._key
        return [pack(key, each) for each in range(number, number + count)]

    def _goes_on(self, number: int) -> bool:
        """Whether nothing is under way, before this command, that must not be executed twice."""
        if self._pausing and self._session.state.receiving.mark >= number:
            self._pausing = False
        return not self._pausing

    def take_stored(self, number: int, queues: Iterable[Sink]) -> Collection[Sink]:
        """The queues that have the message of this command from before the restart; it would go to `queues` now."""
        names = self.stored.pop(number, None)
        if names is None:
            return ()
        found = [queue for queue in queues if str(queue) in names]
        if len(found) < len(names):  # somebody has changed the bindings
            found = [queue for queue in self._session.vhost.queues.values() if str(queue) in names]
        for queue in found:
            if isinstance(queue, ClassicQueue):
                queue.sync_recovered()  # the process before may have been killed before its sync
        return found

    def moved(self) -> None:
        """Commands are complete."""
        if self._marked and self._key:
            self._positions.moved(self._key, self._position)

    def granted(self, timeout: int) -> None:
        """The session outlives a connection by so many seconds now."""
        session = self._session
        if self._key and timeout:
            self._positions.renew(self._key, session.vhost.name, session.user, session.session_name, timeout)
        elif self._key:
            self.end()

    def give_up(self) -> None:
        """The session holds more than publications from now on. OSError when the disk refuses."""
        self._plain = False
        self._end_position(self._positions.end_now)

    def pause(self) -> None:
        """The session does not survive until the command that comes now is complete. OSError when the disk refuses."""
        self._pausing = True
        self._end_position(self._positions.end_now)

    def start_over(self) -> None:
        """The client has lost its state of the session, and nothing of it is held any more."""
        self._plain, self._pausing = True, False
        self.stored.clear()
        self._commits.forget(self._name())
        self._end_position(self._positions.end_now)

    def end(self) -> None:
        """The session is over: a restart knows nothing of it, once that is written."""
        self._commits.forget(self._name())
        self._end_position(self._positions.end)

    def _end_position(self, end: Callable[[bytes], None]) -> None:
        key, self._key = self._key, b""
        self._marked = False
        if key:
            end(key)

    def _position(self) -> bytes:
        """What is complete, but for what the client may not have the answer of: that is lost with the process."""
        state = self._session.state
        received = state.receiving.received or 0
        unanswered: list[int] = []
        for sent in state.sending.unsafe_singles():
            if isinstance(sent, c.ExecutionResult):
                unanswered.append(wide(sent.command_id, received))
            elif isinstance(sent, c.MessageReject):
                for low, high in wide_ranges(sent.transfers, received):
                    unanswered += range(low, high + 1)
        return state.receiving.save(unanswered)
