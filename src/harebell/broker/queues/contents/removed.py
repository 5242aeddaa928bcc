"""The messages of a queue that was purged or deleted: they are settled on disk and freed in steps.

The queue has forgotten them already: their number does not count any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from harebell.broker.message import Held
from harebell.broker.slices import Work
from harebell.broker.store.queue_log.journal import Journal

__all__ = ["Container", "Entries", "Removed"]

STEP: Final = 512  # messages


class Line(Protocol):
    """A deque of messages, or those that came back."""

    def __len__(self) -> int: ...
    def pop(self) -> Held: ...


class Container(Protocol):
    """A deque or a list of objects that need no settlement, or the entries of a dict (`Entries`)."""

    def __len__(self) -> int: ...
    def pop(self) -> object: ...


class Entries:
    """The entries of a dict, as a container."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def pop(self) -> object:
        return self._entries.popitem()


class Removed:
    """`count` messages: those of `lines` that are not gone, and those at `position` in a row, if there are any.

    `others` are freed too.
    """

    def __init__(
        self, count: int, lines: Sequence[Line], others: Sequence[Container] = (), position: int = 0, row: int = 0
    ) -> None:
        self.count = count
        self._lines, self._others = lines, others
        self._position, self._row = position, row

    def and_then(self, other: Removed) -> Removed:
        """These messages and the other ones; these are in lines only."""
        return Removed(
            self.count + other.count, (*self._lines, *other._lines), (*self._others, *other._others), other._position,
            other._row,
        )  # fmt: skip

    def steps(self, journal: Journal | None) -> Work:
        """Settle the messages in the journal, and free them."""
        if journal is not None and self._row:
            journal.settle(self._position, self._row)
        for line in self._lines:
            while line:
                taken = [line.pop() for _ in range(min(STEP, len(line)))]
                if journal is not None:
                    journal.settle_many(sorted(held.position for held in taken if not held.gone))
                yield
        for container in self._others:
            while container:
                for _ in range(min(STEP, len(container))):
                    container.pop()
                yield
