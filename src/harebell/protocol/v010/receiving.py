"""The receiving half of a session: which commands came from the other peer, and which of them are executed.

Every command is executed once. Its number is not on the wire: it is one more than that of the command before, and
session.command-point sets it. What comes a second time, after a loss, is known by its number and dropped.

Rules:
1. Until its first command a session takes its first number from the command-point. After that a command-point may go
   back, and forward only over commands that are complete or in a gap: else commands would be lost in silence (542).
2. Commands come after a command-point on each attachment (409).
3. Completions are reported when the other peer waits for one (sync, flush), and are one set for all: what is reported
   is repeated until the other peer says that it knows it.
4. A command that is executed out of order is complete at once; execution.sync when all before it are.
5. What is saved is what is complete. After a restart everything else is expected again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from struct import Struct, error as StructError
from typing import Final

from harebell import errors
from harebell.protocol.v010.ranges import Marks
from harebell.protocol.v010.sending import refused
from harebell.protocol.v010.serial import narrow_ranges, wide, wide_ranges
from harebell.protocol.v010.values import MAX_RANGES, Ranges

__all__ = ["ReceivingHalf"]

MAX_INCOMPLETE: Final = 65_536  # commands received and not complete: the other peer waits for their completion
MAX_KNOWN: Final = 1024  # ranges that the other peer knows out of order; beyond these they are reported again

_SAVED: Final = Struct(">BQQQ")  # version, known mark, complete mark, received
_PAIR: Final = Struct(">QQ")


class ReceivingHalf:
    """Commands received and executed.

    next      number of the command that comes next; None until the command-point of this attachment
    received  all commands below were received, or are missing after a restart; None where nothing is known
    begun     a command was received
    due       the other peer waits for session.completed
    fresh     how many commands are complete since the last report
    """

    __slots__ = (
        "_barriers", "_complete", "_known", "_max_incomplete", "_seen", "_syncs", "begun", "due", "fresh", "next",
        "received",
    )  # fmt: skip

    def __init__(self, *, max_incomplete: int = MAX_INCOMPLETE) -> None:
        self.next: int | None = None
        self.received: int | None = None
        self.begun = False
        self.due = False
        self.fresh = 0
        self._max_incomplete = max_incomplete
        self._complete = Marks()
        self._known = Marks()
        self._seen = Marks()  # received, or complete before a restart; what is not, below `received`, is missing
        self._syncs: list[int] = []  # commands whose completion the other peer waits for, ascending
        self._barriers: list[int] = []  # execution.sync commands, ascending

    @property
    def mark(self) -> int:
        """The execution mark: all commands below are complete."""
        return self._complete.mark

    @property
    def incomplete(self) -> int:
        """How many commands are received, or missing, and not complete."""
        return max(0, (self.received or 0) - self._complete.mark - self._complete.above)

    def detached(self, first: int | None = None) -> None:
        """Forget where the commands of an attachment were, which is lost; with `first`, expect that number if none yet.

        A peer that has the session, but nothing of it, says so: what was sent on the lost attachment is not executed.
        """
        self.next = None
        if self.received is None and first is not None:
            self._begin(first)

    def command_point(self, serial: int, offset: int) -> None:
        """Take session.command-point: the number of the command that comes next."""
        if offset:
            said = f"command-point at octet {offset} of a command: commands are sent again whole"
            raise errors.RemoteProtocolError(errors.NotImplemented, said, 2, 7, scope="channel")
        if self.received is None or not self.begun:
            self._begin(serial)
            self.next = serial
            return
        number = wide(serial, self.received)
        missing = self._complete.missing(self.received, number - 1)
        if missing:
            low, high = missing[0]
            raise refused(f"command-point {serial} leaves out commands {low} to {high}, which never came")
        self.next = number
        self._advance(number)

    def receive(self, sync: bool = False) -> int | None:
        """The number of a command that came, to be executed; None for one that is executed already, or is being so."""
        number = self.next
        if number is None or self.received is None:
            raise errors.RemoteProtocolError(
                errors.IllegalState, "a command before session.command-point", 2, 7, scope="channel"
            )
        self.next = number + 1
        self.begun = True
        if number >= self.received:
            complete = self._complete
            if number - complete.mark - complete.above >= self._max_incomplete:
                raise errors.RemoteProtocolError(
                    errors.ResourceError,
                    f"more than {self._max_incomplete} commands are not complete",
                    2,
                    scope="channel",
                )
            if number == self.received and self._seen.step(number):
                self.received = number + 1
            else:
                self._advance(number + 1)
        elif number in self._seen:
            if sync:
                self._await(number)
            return None
        else:
            self._seen.add(number, number)
        if sync:
            self._await(number)
        return number

    def receive_run(self, count: int, sync: bool = False) -> int | None:
        """The number of the first of so many commands that came, all of them new and to be executed.

        None when some of them may have come before, or must be refused: then each is received by itself.
        """
        number, complete = self.next, self._complete
        if number is None or number != self.received:
            return None
        after = number + count
        if after - complete.mark - complete.above > self._max_incomplete or not self._seen.step(number, count):
            return None
        self.next = self.received = after
        self.begun = True
        if sync:
            self._syncs += range(number, after)
        return number

    def complete(self, low: int, high: int | None = None) -> None:
        """Note that a command, or all from `low` to `high`, are executed, and their results sent.

        What could not be executed is never complete: execution.exception and session.detach end the session.
        """
        self._add(low, low if high is None else high)
        if self._barriers:
            self._complete_barriers()

    def complete_in_order(self, number: int) -> None:
        """Complete an execution.sync as soon as all commands before it are complete."""
        self._barriers.insert(bisect_left(self._barriers, number), number)
        self._complete_barriers()

    def expected(self) -> Ranges:
        """What session.expected says: the commands that are missing, and the next; empty in a session that is new."""
        if self.received is None:
            return ()
        missing = self._seen.missing(self._seen.mark, self.received - 1)[: MAX_RANGES - 1]
        first = self.received
        if missing and missing[-1][1] == first - 1:
            first = missing.pop()[0]
        return narrow_ranges([*missing, (first, self.received)])

    def completed(self) -> list[Ranges]:
        """What session.completed says, which goes out now: `unknown`."""
        self.due = False
        self.fresh = 0
        return self.unknown()

    def unknown(self) -> list[Ranges]:
        """What is complete and not known to be so, in sets that fit the wire; one empty set where there is nothing."""
        pairs: list[tuple[int, int]] = []
        for low, high in self._complete.present(self._known.mark, self._highest()):
            pairs += self._known.missing(low, high)
        wire = narrow_ranges(pairs)
        return [wire[at : at + MAX_RANGES] for at in range(0, len(wire), MAX_RANGES)] or [()]

    def known_completed(self, ranges: Ranges) -> None:
        """Take session.known-completed: these are not reported again."""
        for low, high in self._wide(ranges, "known-completed"):
            for start, end in self._complete.present(max(low, self._known.mark), high):
                if len(self._known) < MAX_KNOWN or start <= self._known.mark:
                    self._known.add(start, end)

    def gap(self, ranges: Ranges) -> None:
        """Take session.gap: these commands will never come, and count as complete."""
        if self.received is None:
            raise refused("session.gap before session.command-point")
        self.begun = True
        for low, high in self._wide(ranges, "gap"):
            self.complete(low, high)
            self._seen.add(low, high)
            if len(self._complete) > self._max_incomplete:
                raise refused(f"session.gap: more than {self._max_incomplete} ranges")
        self.received = self._seen.first_missing(self.received)

    def save(self, without: Iterable[int] = ()) -> bytes:
        """What is complete, as bytes for `load`: 25 where everything is complete, 16 more for each range out of order.

        `without`: numbers that are to be executed again, unless the other peer knows them to be complete. Nothing is to
        be saved of a session that is new.
        """
        complete, received = self._complete, self.received or 0
        out = sorted({number for number in without if number in complete and number not in self._known})
        if out:
            low = min(complete.mark, out[0])
            complete = Marks(low)
            for number in (*out, self._highest() + 1):
                for start, end in self._complete.present(low, number - 1):
                    complete.add(start, end)
                low = number + 1
        pairs = b"".join([_PAIR.pack(low, high) for low, high in complete.ranges()])
        return _SAVED.pack(0, min(self._known.mark, complete.mark), complete.mark, received) + pairs

    @classmethod
    def load(cls, raw: bytes, *, max_incomplete: int = MAX_INCOMPLETE) -> ReceivingHalf:
        """The half that was saved, after a restart: what was not complete is expected again. ValueError for others."""
        self = cls(max_incomplete=max_incomplete)
        try:
            version, known, mark, received = _SAVED.unpack_from(raw)
            pairs = list(_PAIR.iter_unpack(raw[_SAVED.size :]))
        except StructError as error:
            raise ValueError(f"no saved session: {error}") from None
        if version or not known <= mark <= received:
            raise ValueError(f"no saved session: version {version}, marks {known}, {mark}, {received}")
        self._known, self._complete, self._seen = Marks(known), Marks(mark), Marks(mark)
        for low, high in pairs:
            if not mark < low <= high:  # above `received` are gaps that the other peer has announced
                raise ValueError(f"no saved session: commands {low} to {high} behind {mark}")
            self._complete.add(low, high)
            self._seen.add(low, high)
        self.received, self.begun = self._seen.first_missing(received), True
        return self

    def is_complete(self, number: int) -> bool:
        """Whether the command is executed."""
        return number in self._complete

    def _begin(self, first: int) -> None:
        self.received = first
        self._complete, self._known, self._seen = Marks(first), Marks(first), Marks(first)

    def _advance(self, received: int) -> None:
        """Let `received` be at least that; the new numbers are received, or in a gap."""
        if self.received is not None and received > self.received:
            self._seen.add(self.received, received - 1)
            self.received = self._seen.first_missing(received)

    def _complete_barriers(self) -> None:
        passed = 0
        while passed < len(self._barriers) and self._barriers[passed] <= self._complete.mark:
            self._add(self._barriers[passed], self._barriers[passed])
            passed += 1
        del self._barriers[:passed]

    def _add(self, low: int, high: int) -> None:
        added = self._complete.add(low, high)
        for start, end in added:
            self.fresh += end - start + 1
        syncs = self._syncs
        if syncs and added:
            at = bisect_left(syncs, low)
            stop = bisect_right(syncs, high)
            if at < stop:
                del syncs[at:stop]
                self.due = True

    def _await(self, number: int) -> None:
        """Note that the other peer waits for the completion of a command."""
        if number in self._complete:
            self.due = True
            return
        at = bisect_left(self._syncs, number)
        if at == len(self._syncs) or self._syncs[at] != number:
            self._syncs.insert(at, number)

    def _highest(self) -> int:
        """No complete command has a higher number."""
        ranges = self._complete.ranges()
        return ranges[-1][1] if ranges else self._complete.mark - 1

    def _wide(self, ranges: Ranges, said: str) -> list[tuple[int, int]]:
        try:
            return wide_ranges(ranges, self.received or 0)
        except ValueError as error:
            raise refused(f"session.{said}: {error}") from None
