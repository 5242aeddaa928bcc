"""Streams of what changes: rows of boards every two seconds or so, changes and acts as they happen; server-sent events.

Rules:

- One look at each board serves all streams, however many there are. Without a stream there are no looks. With so many
  objects that a look takes long they come more seldom: the messages need the processor.
- A stream begins with the columns and all rows of its topics. From then on it has what changed. One whose client is too
  slow for that begins anew, so that nothing waits for it in memory.
- Before each part is sent, the user is asked for again: one that has logged out, is deleted, or has lost its tags hears
  no more, and one whose virtual hosts are others begins anew.
- A stream is no request of its user: a session that is not used otherwise ends, and its streams with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from harebell.admin.answers import encode
from harebell.admin.history.counts import Counts
from harebell.admin.live.acts import Acts
from harebell.admin.live.board import Board
from harebell.admin.live.changes import Changes
from harebell.admin.live.kinds import BY_USER, NODE, kinds
from harebell.admin.login.users import User
from harebell.broker.node import Node
from harebell.broker.timers import Timer
from harebell.routing.steps import Steps

__all__ = ["AUDIT", "CHANGES", "PERIOD", "Feed"]

log = logging.getLogger("harebell.admin")

CHANGES: Final = "changes"
"""The topic of the broker's events."""
AUDIT: Final = "audit"
"""The topic of the acts of the audit log."""
EVENTS: Final = {CHANGES: "change", AUDIT: "act"}  # the topics that have no rows, and the name of each event
PERIOD: Final = 2.0  # seconds between two looks, or more:
FACTOR: Final = 50  # so many times what the last one took, so that looks take 2 % of a core ...
LONGEST: Final = 10.0  # ... but no more seconds than this
HEARTBEAT: Final = 15.0  # seconds without an event until a comment is sent, which finds a client that has left
TOGETHER: Final = 0.1  # seconds of changes or acts that are sent together


def event(name: str, data: bytes) -> bytes:
    """A server-sent event; the data are JSON, which has no line ends."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def pause_after(spent: float) -> float:
    """The seconds until the next look, after one that took so many."""
    return max(PERIOD, min(FACTOR * spent, LONGEST))


class _Event(Protocol):
    """Something that happened, as JSON."""

    @property
    def text(self) -> bytes: ...
    def is_for(self, user: User) -> bool: ...


class _Events(Protocol):
    """A topic without rows. What happens has numbers; it is noted while anybody listens."""

    @property
    def number(self) -> int: ...
    def listen(self) -> None: ...
    def leave(self) -> None: ...
    def after(self, number: int) -> tuple[Sequence[_Event], bool]: ...


class _Listener:
    """One stream: what it has been told."""

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = topics
        self.woken = asyncio.Event()
        self.seen: dict[str, tuple[int, Collection[str] | None]] = {}  # of each board: look, groups
        self.told = {name: 0 for name in topics if name in EVENTS}  # the number of the last one


class Feed:
    """The streams of one node.

    gauges  the figures of the process
    """

    def __init__(
        self,
        node: Node,
        counts: Counts,
        gauges: Callable[[], Mapping[str, Any]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._counts = node, counts
        self._stopwatch = node.batch.slices.stopwatch
        self._boards = {kind.topic: Board(kind) for kind in kinds(node, counts, gauges, lambda: int(clock() * 1000))}
        self._events: dict[str, _Events] = {
            CHANGES: Changes(node, self._happened, clock), AUDIT: Acts(node.events.audit, self._happened),
        }  # fmt: skip
        self._listeners: set[_Listener] = set()
        self._timer: Timer | None = None
        self._looked = 0.0
        self._looking = self._again = False
        self._together: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def topics(self) -> tuple[str, ...]:
        return (*self._boards, *self._events)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def stream(self, user: User, topics: Collection[str], holds: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The events of these topics for a user, until it may not have them any more: `holds` says whether it may."""
        listener = _Listener(topics)
        self._join(listener)
        try:
            yield event("topics", encode({name: self._boards[name].about for name in topics if name in self._boards}))
            while holds() and not self._stopped:
                for name in topics:
                    for part in self._parts(listener, user, name):
                        yield part
                        await asyncio.sleep(0)  # a long list must not keep the loop
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        await listener.woken.wait()
                except TimeoutError:
                    yield b":\n\n"
                listener.woken.clear()
            yield event("end", b"{}")
        finally:
            self._leave(listener)

    def _parts(self, listener: _Listener, user: User, name: str) -> Iterator[bytes]:
        """What the stream has not been told of a topic."""
        if name in EVENTS:
            happened, lost = self._events[name].after(listener.told[name])
            listener.told[name] = self._events[name].number
            if lost:
                yield event("lost", b"{}")
            for each in happened:
                if each.is_for(user):
                    yield event(EVENTS[name], each.text)
            return
        board, groups = self._boards[name], _groups(user, name)
        seen = listener.seen.get(name)
        if not board.number or seen == (board.number, groups):
            return
        listener.seen[name] = board.number, groups
        if seen == (board.number - 1, groups):
            for piece in board.changes(groups):
                yield event("rows", piece)
            return
        yield event("reset", encode({"topic": name}))
        for piece in board.whole(groups):
            yield event("rows", piece)
        yield event("complete", encode({"topic": name}))

    def stop(self) -> None:
        """End all streams."""
        self._stopped = True
        self._wake(self._listeners)
        if self._together is not None:
            self._together.cancel()

    # -- looks

    def _join(self, listener: _Listener) -> None:
        self._listeners.add(listener)
        for name in listener.told:
            self._events[name].listen()
            listener.told[name] = self._events[name].number
        if any(name in self._boards and not self._boards[name].number for name in listener.topics):
            self._look_now()
        listener.woken.set()

    def _leave(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        for name in listener.told:
            self._events[name].leave()
        wanted = self._wanted()
        for name, board in self._boards.items():
            if name not in wanted:
                board.forget()
        if not wanted and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wanted(self) -> set[str]:
        return {name for each in self._listeners for name in each.topics if name in self._boards}

    def _look_now(self) -> None:
        """Look as soon as possible, also at boards that nobody listened to yet."""
        if self._looking:
            self._again = True
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looking = True
        self._node.batch.slices.run(self._look())
        self._node.batch.end()

    def _ring(self) -> None:
        self._timer = None
        if not self._looking and self._wanted():
            self._looking = True
            self._node.batch.slices.run(self._look())

    def _look(self) -> Steps[None]:
        node, wanted = self._node, self._wanted()
        now = node.timers.now() / 1000
        seconds, self._looked = max(now - self._looked, 0.1), now
        spent, began = 0.0, self._stopwatch()
        try:
            for _ in self._looking_at(wanted, seconds):
                spent += self._stopwatch() - began
                yield
                began = self._stopwatch()
            spent += self._stopwatch() - began
        finally:
            self._looking = False
        for name in wanted - self._wanted():
            self._boards[name].forget()
        self._wake(each for each in self._listeners if not wanted.isdisjoint(each.topics))
        if self._again:
            self._again = False
            self._timer = node.timers.at(node.timers.now(), self._ring)
        elif self._wanted():
            self._timer = node.timers.at(node.timers.now() + round(pause_after(spent) * 1000), self._ring)

    def _looking_at(self, boards: Iterable[str], seconds: float) -> Steps[None]:
        yield from _tried("the counts", self._counts.refreshing())
        for name in boards:
            if not (yield from _tried(name, self._boards[name].looking(seconds))):
                self._boards[name].forget()  # its streams begin anew with the next look

    def _happened(self) -> None:
        """A change or an act was noted: tell it, with those that follow at once."""
        if self._together is None:
            self._together = asyncio.get_running_loop().call_later(TOGETHER, self._tell)

    def _tell(self) -> None:
        self._together = None
        self._wake(each for each in self._listeners if each.told)

    def _wake(self, listeners: Iterable[_Listener]) -> None:
        for each in listeners:
            each.woken.set()


def _tried(what: str, work: Steps[None]) -> Steps[bool]:
    """Do the work; an error is logged, so that it ends no other view. Returns whether it was done.

    An OSError too: outside, it would be one of the store.
    """
    try:
        yield from work
    except Exception:
        log.exception("the live views: a look at %s failed", what)
        return False
    return True


def _groups(user: User, topic: str) -> frozenset[str] | None:
    """The groups of a board that the user sees; None: all."""
    if user.monitors:
        return None
    if topic == NODE:
        return frozenset()
    if topic in BY_USER:
        return frozenset({user.name})
    return frozenset(user.entered())
