"""Settlements of one turn of the loop, as few commands as they fit: message.accept, message.release, message.reject."""

from __future__ import annotations

from collections.abc import Iterable

from harebell.protocol.v010 import Command, commands as c
from harebell.protocol.v010.serial import narrow_ranges
from harebell.protocol.v010.values import MAX_RANGES, Ranges

__all__ = ["Settlements", "ranges_of"]


class Settlements:
    """The numbers of transfers that were settled and not reported yet; released ones by `set_redelivered`."""

    __slots__ = ("_accepted", "_rejected", "_released")

    def __init__(self) -> None:
        self._accepted: list[int] = []
        self._released: dict[bool, list[int]] = {}
        self._rejected: dict[str | None, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._accepted or self._released or self._rejected)

    def accept(self, number: int) -> None:
        self._accepted.append(number)

    def release(self, number: int, *, set_redelivered: bool) -> None:
        self._released.setdefault(set_redelivered, []).append(number)

    def reject(self, number: int, text: str | None) -> None:
        self._rejected.setdefault(text, []).append(number)

    def clear(self) -> None:
        self._accepted.clear()
        self._released.clear()
        self._rejected.clear()

    def commands(self) -> list[Command]:
        """The commands for all of them, which are forgotten."""
        found: list[Command] = [c.MessageAccept(ranges) for ranges in ranges_of(self._accepted)]
        for marked, numbers in self._released.items():
            found += [c.MessageRelease(ranges, marked) for ranges in ranges_of(numbers)]
        for text, numbers in self._rejected.items():
            found += [c.MessageReject(ranges, 0, text) for ranges in ranges_of(numbers)]
        self.clear()
        return found


def ranges_of(numbers: Iterable[int]) -> list[Ranges]:
    """The numbers as sets that fit a command."""
    pairs: list[tuple[int, int]] = []
    low = high = -2
    for number in sorted(numbers):
        if number == high + 1:
            high = number
            continue
        if high >= 0:
            pairs.append((low, high))
        low = high = number
    if high >= 0:
        pairs.append((low, high))
    return [narrow_ranges(pairs[at : at + MAX_RANGES]) for at in range(0, len(pairs), MAX_RANGES)]
