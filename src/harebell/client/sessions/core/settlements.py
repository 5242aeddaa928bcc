"""Settlements of one turn of the loop, as few commands as they fit: message.accept, message.release, message.reject.

A thread of the blocking API notes them while it holds the turn, and a signal may interrupt it anywhere. So noting one
is a single call of C, an append; everything else is done on the loop, before the turn's output is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from harebell.protocol.v010 import Command, commands as c
from harebell.protocol.v010.serial import narrow_ranges
from harebell.protocol.v010.values import MAX_RANGES, Ranges

__all__ = ["Settlements", "ranges_of"]


class Settlements:
    """The numbers of transfers that are done, and the commands that say so.

    accepted  noted, to be accepted; `taken`: with nothing to settle
    """

    __slots__ = ("_pending", "_rejected", "_released", "accepted", "taken")

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.taken: list[int] = []
        self._released: dict[bool, list[int]] = {}
        self._rejected: dict[str | None, list[int]] = {}
        self._pending: list[Command] = []

    def __bool__(self) -> bool:
        """Whether there are commands to send, or will be."""
        return bool(self._pending or self.accepted or self._released or self._rejected)

    def released(self, set_redelivered: bool) -> list[int]:
        """Where to note what is to be released."""
        return self._released.setdefault(set_redelivered, [])

    def rejected(self, text: str | None) -> list[int]:
        """Where to note what is to be rejected with this text."""
        return self._rejected.setdefault(text, [])

    def clear(self) -> None:
        for noted in (self.accepted, self.taken, self._released, self._rejected, self._pending):
            noted.clear()

    def gather(self, complete: Callable[[int, int], None]) -> tuple[int, int, int]:
        """Complete the transfers that were noted: `complete` gets ranges, first and last. Their commands come next.

        Returns how many are accepted, released and rejected.
        """
        released, rejected = list(chain(*self._released.values())), list(chain(*self._rejected.values()))
        counts = len(self.accepted), len(released), len(rejected)
        if not any(counts) and not self.taken:
            return counts
        for low, high in _pairs([*self.accepted, *released, *rejected, *self.taken]):
            complete(low, high)
        pending = self._pending
        pending += [c.MessageAccept(ranges) for ranges in ranges_of(self.accepted)]
        for marked, numbers in self._released.items():
            pending += [c.MessageRelease(ranges, marked) for ranges in ranges_of(numbers)]
        for text, numbers in self._rejected.items():
            pending += [c.MessageReject(ranges, 0, text) for ranges in ranges_of(numbers)]
        for noted in (self.accepted, self.taken, self._released, self._rejected):
            noted.clear()
        return counts

    def commands(self) -> list[Command]:
        """The commands for all that was gathered, which are forgotten."""
        found, self._pending = self._pending, []
        return found


def _pairs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The numbers as ranges, each from its first to its last."""
    pairs: list[tuple[int, int]] = []
    low = high = -2
    for number in sorted(numbers):
        if number <= high + 1:
            high = number
            continue
        if high >= 0:
            pairs.append((low, high))
        low = high = number
    if high >= 0:
        pairs.append((low, high))
    return pairs


def ranges_of(numbers: Iterable[int]) -> list[Ranges]:
    """The numbers as sets that fit a command."""
    pairs = _pairs(numbers)
    return [narrow_ranges(pairs[at : at + MAX_RANGES]) for at in range(0, len(pairs), MAX_RANGES)]
