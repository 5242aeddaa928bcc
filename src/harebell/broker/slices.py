"""Long work in slices, so that no client waits for the work of another one.

A work is an iterator whose steps take a fraction of a millisecond each: a part of the input of one connection, some of
a million deliveries that return to their queues. The works take turns, and after a turn of all of them the sockets are
read again. A work that fits into one slice is done at once.

A work that has to wait for something else, as for the disk, says so before it yields (`Slices.wait`).

A work has side effects in its steps only, and another work, or a client, may change anything between two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

__all__ = ["CHECK", "SLICE", "InputShare", "Share", "Slices", "Work"]

SLICE: Final = 0.002  # seconds of one work until the next one's turn
TURN: Final = 0.003  # seconds of works until the sockets are read again
DISCARD: Final = 512  # objects freed in one step
CHECK: Final = 512  # operations of a share between two looks at the stopwatch

Work: TypeAlias = Iterator[None]


class _Container(Protocol):
    """A list, a deque or a set of objects."""

    def __len__(self) -> int: ...
    def pop(self) -> object: ...


class Share:
    """The part of a slice that one queue has for its deliveries."""

    __slots__ = ("_end", "_left", "_seconds", "_stopwatch")

    def __init__(self, stopwatch: Callable[[], float], seconds: float = SLICE) -> None:
        self._stopwatch, self._seconds = stopwatch, seconds
        self._end, self._left = 0.0, CHECK

    def begin(self) -> Share:
        """Start anew."""
        self._end, self._left = 0.0, CHECK
        return self

    def spend(self, count: int) -> bool:
        """Count so many operations. Returns whether the share is used up."""
        self._left -= count
        if self._left > 0:
            return False
        now, self._left = self._stopwatch(), CHECK
        if not self._end:
            self._end = now + self._seconds
        return now >= self._end


class InputShare(Share):
    """The part of a slice that one connection has for publications that cost more than others.

    These go to many queues, or many bindings or consumers are asked for them. What happens to a message far from the
    connection that published it is charged to the connection whose input is processed now.
    """

    __slots__ = ("_spend",)

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        super().__init__(stopwatch, TURN)
        self._spend: Callable[[int], None] | None = None

    def enter(self, spend: Callable[[int], None]) -> Callable[[int], None] | None:
        """Begin the share of a connection, which `spend` counts operations for. Returns what `leave` is given."""
        self.begin()
        outer, self._spend = self._spend, spend
        return outer

    def leave(self, outer: Callable[[int], None] | None) -> None:
        """End the share of a connection."""
        self._spend = outer

    def charge(self, count: int) -> None:
        """Count operations for the connection whose input is processed now, if any."""
        if self._spend is not None:
            self._spend(count)


class Slices:
    """The works of a node.

    call_soon   runs a callable in the broker's thread, after the sockets were read
    stopwatch   seconds, to measure slices
    end         called after each slice: ends the batch
    fail        called with the error of a work that the disk refused
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        stopwatch: Callable[[], float],
        end: Callable[[], None],
        fail: Callable[[OSError], None],
    ) -> None:
        self.stopwatch = stopwatch
        self.share = Share(stopwatch)  # of a queue's deliveries
        self.input_share = InputShare(stopwatch)
        self._call_soon, self._end, self._fail = call_soon, end, fail
        self._works: deque[Work] = deque()
        self._called = False
        self._wait: Callable[[Callable[[], None]], None] | None = None
        self._waiting: dict[Work, None] = {}
        self._end_of_slice = 0.0  # of the work that runs now; 0: none

    def run(self, work: Work) -> bool:
        """Run a work: one slice at once, the rest in turns. Returns whether it is done. The caller ends the batch."""
        done = self._advance(work)
        if done is False:
            self.later(work)
        return done is True

    @property
    def idle(self) -> bool:
        """Whether no work waits for its turn."""
        return not self._works

    @property
    def waiting(self) -> int:
        """The number of works that are not done."""
        return len(self._works) + len(self._waiting)

    def later(self, work: Work) -> None:
        """Run a work in turns, none of it now."""
        self._works.append(work)
        self._call()

    def wait(self, condition: Callable[[Callable[[], None]], None]) -> None:
        """Let the work that runs now have no turn after its next yield, until `condition` calls what it is given.

        Nothing without a work that runs.
        """
        if self._end_of_slice:
            self._wait = condition

    def give_way(self) -> None:
        """End the slice of the work that runs now with its next yield: it waits for other works."""
        self.wait(_at_once)

    def _resume(self, work: Work) -> None:
        if work in self._waiting:
            del self._waiting[work]
            self.later(work)

    def discard(self, *containers: _Container) -> None:
        """Free the objects in these containers, which nothing else uses."""
        work = _discard(containers)
        if sum(map(len, containers)) > DISCARD:
            self.run(work)

    def finish(self) -> None:
        """Run all works to their ends, without waiting: the broker stops, and writes everything then."""
        while self._works or self._waiting:
            self._works.extend(self._waiting)
            self._waiting.clear()
            self._turn()

    def _advance(self, work: Work) -> bool | None:
        """Run one slice. Returns whether the work is done; None: it waits, and has its next turn then."""
        stopwatch, outer = self.stopwatch, self._end_of_slice
        end = self._end_of_slice = outer or stopwatch() + SLICE
        try:
            for _ in work:
                if self._wait is not None:
                    wait, self._wait = self._wait, None
                    self._waiting[work] = None
                    wait(lambda: self._resume(work))
                    return None
                if stopwatch() >= end:
                    return False
            return True
        except OSError as error:
            self._fail(error)
            return True
        finally:
            self._end_of_slice = outer

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._called = False
        works = self._works
        end = self.stopwatch() + TURN
        try:
            while works:
                work = works.popleft()
                try:
                    if self._advance(work) is False:
                        works.append(work)
                finally:
                    self._end()
                if self.stopwatch() >= end:
                    break
        finally:
            if works:
                self._call()


def _at_once(resume: Callable[[], None]) -> None:
    resume()


def _discard(containers: tuple[_Container, ...]) -> Work:
    for container in containers:
        pop = container.pop
        while container:
            for _ in range(min(DISCARD, len(container))):
                pop()
            yield
