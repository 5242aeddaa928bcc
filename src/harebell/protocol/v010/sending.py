"""The sending half of a session: the commands that this peer has sent, until the other one has executed them.

It keeps what may have to be sent again after a loss. The other peer says with session.completed what it has executed,
with session.confirmed what it will certainly execute, and with session.expected, after a loss, what it has not
received. No I/O and no clock; what is sent again, and on which channel, is for the caller to encode.

A command is kept by itself (`send`), or with others that were sent together (`send_run`), which costs next to nothing
for each: a broker sends thousands of transfers at a time.

Rules:
1. Commands are numbered from `first`, without holes. What is sent again has the number that it had.
2. A completed or confirmed command is not sent again. If the other peer expects one, it is told of the gap.
3. What the other peer says of a command that was never sent is RemoteProtocolError (542).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from operator import itemgetter
from typing import Final, Generic, TypeVar

from harebell import errors
from harebell.protocol.v010.ranges import Marks
from harebell.protocol.v010.runs import MOST_IN_RUN, Run, Runs
from harebell.protocol.v010.serial import narrow_ranges, wide_ranges
from harebell.protocol.v010.values import MAX_RANGES, Ranges

__all__ = ["Replay", "SendingHalf"]

MAX_COMMANDS: Final = 65_536  # commands kept to be sent again; twice a slow peer's second
MAX_BYTES: Final = 64 << 20  # bytes of these
FLUSH_COMMANDS: Final = 1024  # commands after which the other peer is asked what it has completed
FLUSH_BYTES: Final = 1 << 20

REMEMBERED: Final = 1 << 30  # numbers below the mark that are named: a range is shorter than 2**31

T = TypeVar("T")

_NUMBER: Final = itemgetter(0)


class Replay(Generic[T]):
    """What to send after a loss.

    gaps  numbers that the other peer expects and that cannot be sent again, as pairs
    runs  commands to send again: the number of the first, and the commands, one after the other
    lost  the other peer knows nothing of the session: its state is lost
    """

    __slots__ = ("gaps", "lost", "runs")

    def __init__(self, lost: bool = False) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.runs: list[tuple[int, list[T]]] = []
        self.lost = lost


class _Kept(Run, Generic[T]):
    """Commands that were sent one behind the other: what is kept of each, and what makes a command of that again."""

    __slots__ = ("_make", "_makes", "_parts", "_size")

    def __init__(
        self,
        first: int,
        parts: list[bytes],
        size: int,
        make: Callable[[bytes], T],
        makes: list[Callable[[bytes], T]] | None,
    ) -> None:
        super().__init__(first, len(parts))
        self._parts: list[bytes | None] = list(parts)  # None: it is safe
        self._size = size
        self._make = make
        self._makes = makes  # of each, where they are not all the same

    def extend(
        self, parts: list[bytes], size: int, make: Callable[[bytes], T], makes: list[Callable[[bytes], T]] | None
    ) -> None:
        count = len(parts)
        if self._makes is not None:
            self._makes += repeat(make, count) if makes is None else makes
        elif makes is not None or make is not self._make:
            self._makes = [*repeat(self._make, len(self._parts)), *(repeat(make, count) if makes is None else makes)]
        self._parts += parts
        self._size += size
        self.left += count
        self.stop += count

    def drop(self, low: int, high: int) -> int:
        """Drop the commands from `low` to `high`, all of which are still there. Returns their bytes."""
        at, end = low - self.first, high - self.first + 1
        self.left -= end - at
        if not self.left:
            return self._size
        size = sum(map(len, filter(None, self._parts[at:end])))
        self._parts[at:end] = repeat(None, end - at)
        self._size -= size
        return size

    def kept(self, low: int, high: int) -> list[tuple[int, T]]:
        """The commands from `low` to `high` that are still there, with their numbers."""
        at, end = low - self.first, high - self.first + 1
        makes = repeat(self._make) if self._makes is None else self._makes[at:end]
        parts = zip(range(low, high + 1), self._parts[at:end], makes)  # noqa: B905  `repeat` has no end
        return [(number, make(part)) for number, part, make in parts if part is not None]


class SendingHalf(Generic[T]):
    """Commands sent and not yet complete.

    next           number of the next command
    pending_bytes  bytes of the commands kept to be sent again
    """

    __slots__ = ("_complete", "_items", "_max_bytes", "_max_commands", "_runs", "_safe", "_unflushed",
                 "_unflushed_bytes", "first", "next", "pending_bytes")  # fmt: skip

    def __init__(self, first: int = 0, *, max_commands: int = MAX_COMMANDS, max_bytes: int = MAX_BYTES) -> None:
        self.first = first
        self.next = first
        self.pending_bytes = 0
        self._max_commands = max_commands
        self._max_bytes = max_bytes
        self._complete = Marks(first)
        self._safe = Marks(first)  # complete or confirmed
        # Those that are not safe, by number: single ones with their bytes, and those sent together.
        self._items: dict[int, tuple[T, int]] = {}
        self._runs: Runs[_Kept[T]] = Runs()
        self._unflushed = 0
        self._unflushed_bytes = 0

    @property
    def started(self) -> bool:
        """True when a command has been sent."""
        return self.next != self.first

    @property
    def room(self) -> bool:
        """True when `send` takes another command."""
        return self._kept < self._max_commands and self.pending_bytes < self._max_bytes

    @property
    def _kept(self) -> int:
        return len(self._items) + self._runs.count

    @property
    def incomplete(self) -> int:
        """How many commands are sent and not complete."""
        return self.next - self._complete.mark - self._complete.above

    @property
    def mark(self) -> int:
        """The lowest number that is not complete."""
        return self._complete.mark

    @property
    def flush_due(self) -> bool:
        """True when so much was sent that the other peer should be asked with session.flush what is complete."""
        return self._unflushed >= FLUSH_COMMANDS or self._unflushed_bytes >= FLUSH_BYTES

    def flushed(self) -> None:
        """Note that session.flush was sent."""
        self._unflushed = self._unflushed_bytes = 0

    def send(self, item: T, size: int) -> int:
        """The number of a command that is sent now; `item` (of `size` bytes) is kept to be sent again.

        Raises LocalProtocolError when there is no room.
        """
        if not self.room:
            raise self._no_room()
        number = self._count(1, size)
        self._items[number] = (item, size)
        return number

    def send_run(
        self,
        parts: list[bytes],
        size: int,
        make: Callable[[bytes], T],
        makes: list[Callable[[bytes], T]] | None = None,
    ) -> int:
        """The number of the first of the commands that are sent now, one behind the other.

        parts  what is kept of each, to be sent again: none is empty
        size   the bytes of all of them
        make   makes a command of what is kept
        makes  one for each, where they are not all the same

        Raises LocalProtocolError when there is no room for one of them.
        """
        count, runs = len(parts), self._runs
        if len(self._items) + runs.count + count > self._max_commands or self.pending_bytes >= self._max_bytes:
            raise self._no_room()
        first, last = self._count(count, size), runs.last
        if last is not None and last.stop == first and first - last.first + count <= MOST_IN_RUN:
            last.extend(parts, size, make, makes)
            runs.count += count
        else:
            runs.append(_Kept(first, parts, size, make, makes))
        return first

    def _no_room(self) -> errors.LocalProtocolError:
        return errors.LocalProtocolError(
            f"{self._kept} commands ({self.pending_bytes} bytes) are not complete; wait for their completion"
        )

    def _count(self, count: int, size: int) -> int:
        """Count commands as sent. Returns the number of the first."""
        first = self.next
        self.next = first + count
        self.pending_bytes += size
        self._unflushed += count
        self._unflushed_bytes += size
        return first

    def completed(self, ranges: Ranges) -> list[tuple[int, int]]:
        """Take session.completed; the result are the numbers that are newly complete, as sorted pairs."""
        found: list[tuple[int, int]] = []
        for low, high in self._sent(ranges, "completed"):
            added = self._complete.add(low, high)
            found += added
            for start, end in added:
                self._drop(start, end)
        if found:
            self._unflushed = self._unflushed_bytes = 0
        return found

    def confirmed(self, ranges: Ranges) -> None:
        """Take session.confirmed: these commands will not be sent again, but are not complete yet."""
        for low, high in self._sent(ranges, "confirmed"):
            self._drop(low, high)

    def expected(self, ranges: Ranges) -> Replay[T]:
        """Take session.expected after a loss: what to send again.

        The last range goes on without end. A half that has sent nothing takes its first number from there: the other
        peer knows commands of an earlier life, and must not take new ones for these.
        """
        if not ranges:
            return Replay(lost=True)
        pairs = self._wide(ranges, "expected")
        if not self.started:
            self._begin_at(pairs[-1][0])
            return Replay()
        if pairs[-1][0] > self.next:
            raise self._never_sent("expected", pairs[-1][0])
        replay: Replay[T] = Replay()
        for index, (low, high) in enumerate(pairs):
            last = self.next - 1 if index == len(pairs) - 1 else min(high, self.next - 1)
            replay.gaps += self._safe.present(low, last)
            for start, end in self._safe.missing(low, last):
                replay.runs.append((start, self._between(start, end)))
        return replay

    def unsafe(self) -> list[T]:
        """The commands that are neither complete nor confirmed, in order: what may be lost with the other's state."""
        return self._between(self.first, self.next)

    def unsafe_singles(self) -> list[T]:
        """As `unsafe`, but only what was sent by `send`."""
        return [item for item, _ in self._items.values()]

    def _singles(self, low: int, high: int) -> list[int]:
        """The numbers of the single commands from `low` to `high`, in order."""
        items, some = self._items, range(low, high + 1)
        return [each for each in (some if len(some) < len(items) else items) if each in items and each in some]

    def _between(self, low: int, high: int) -> list[T]:
        """The kept commands from `low` to `high`, in order."""
        found = {number: self._items[number][0] for number in self._singles(low, high)}
        if self._runs.count:
            for run, start, end in self._runs.between(low, high):
                found.update(run.kept(start, end))
            return [item for _, item in sorted(found.items(), key=_NUMBER)]
        return list(found.values())

    def known(self) -> Ranges:
        """What session.known-completed says: the commands that this half knows to be complete."""
        mark = self._complete.mark
        pairs = [(max(self.first, mark - REMEMBERED), mark - 1)] if mark > self.first else []
        return narrow_ranges([*pairs, *self._complete.ranges()[: MAX_RANGES - 1]])

    def successor(self) -> SendingHalf[T]:
        """A half that goes on with the numbers and has sent nothing."""
        return SendingHalf(self.next, max_commands=self._max_commands, max_bytes=self._max_bytes)

    def abandon(self, low: int, high: int) -> list[tuple[int, int]]:
        """Send these commands never again, and count them as complete; the result is what to announce as a gap."""
        found = self._complete.add(low, min(high, self.next - 1))
        for start, end in found:
            self._drop(start, end)
        return found

    def _begin_at(self, number: int) -> None:
        self.first = self.next = number
        self._complete, self._safe = Marks(number), Marks(number)

    def _drop(self, low: int, high: int) -> None:
        items, runs = self._items, self._runs
        for start, end in self._safe.add(low, high):
            if items:
                for number in self._singles(start, end):
                    self.pending_bytes -= items.pop(number)[1]
            if runs.count:
                for run, first, last in runs.between(start, end):
                    self.pending_bytes -= run.drop(first, last)

    def _sent(self, ranges: Ranges, said: str) -> list[tuple[int, int]]:
        pairs = self._wide(ranges, said)
        if pairs and pairs[-1][1] >= self.next:
            raise self._never_sent(said, pairs[-1][1])
        return [(max(low, self.first), high) for low, high in pairs if high >= self.first]

    def _wide(self, ranges: Ranges, said: str) -> list[tuple[int, int]]:
        try:
            return wide_ranges(ranges, self.next)
        except ValueError as error:
            raise refused(f"session.{said}: {error}") from None

    def _never_sent(self, said: str, number: int) -> errors.RemoteProtocolError:
        return refused(f"session.{said} names command {number}; the next to be sent is {self.next}")


def refused(said: str) -> errors.RemoteProtocolError:
    """The error (542) for a set of commands that cannot be."""
    return errors.RemoteProtocolError(errors.WrongArgument, said, 2, scope="channel")
