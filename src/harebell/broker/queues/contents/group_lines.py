"""Messages by their groups, and who may have the first of each: all of a queue's, or those that a selector wants.

Each group has a line. The first positions of the lines are in heaps: one of the groups without a holder, and one for
each holder. Who holds a group is known to all `GroupLines` of a queue, in their common `Group`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from harebell.broker.message import Held
from harebell.broker.queues.contents.backlog import Level
from harebell.broker.queues.contents.removed import Container, Entries
from harebell.broker.swept import SLACK, Heap

__all__ = ["Group", "GroupHeld", "GroupLines", "Holder"]

Holder: TypeAlias = object
"""A consumer, a channel that uses basic.get, or a transaction."""


class GroupHeld(Held):
    """A message with its group: `group` is a key for the value of the header; None: it has none.

    holding  whether it was taken by one who holds the group for it
    """

    __slots__ = ("group", "holding")

    group: Hashable | None
    holding: bool

    def renewed(self) -> GroupHeld:
        held = super().renewed()
        assert isinstance(held, GroupHeld)
        held.group, held.holding = self.group, False
        return held


class Group:
    """Who holds a group, and how many deliveries of it are outstanding."""

    __slots__ = ("holder", "out")

    def __init__(self) -> None:
        self.holder: Holder | None = None
        self.out = 0


class _Line:
    """The messages of one group. `listed` is its position in a heap, at most its head's; None when it is in none."""

    __slots__ = ("group", "level", "listed")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.level = Level()
        self.listed: int | None = None

    def __lt__(self, other: _Line) -> bool:
        return False  # in a heap of (position, line), where positions are equal only for one line


_Heads: TypeAlias = "Heap[tuple[int, _Line]]"


def _heads(holder: Holder | None) -> _Heads:
    """A heap for the groups of this holder, by the positions at which they are listed."""

    def is_gone(entry: tuple[int, _Line]) -> bool:
        at, line = entry
        return line.group.holder is not holder or line.listed != at

    return Heap(is_gone)


class GroupLines:
    """The lines. `groups` has the groups that are held, or have messages in any lines."""

    def __init__(self, groups: dict[Hashable | None, Group]) -> None:
        self._groups = groups
        self._lines: dict[Hashable | None, _Line] = {}
        self._free = _heads(None)
        self._held: dict[Holder, _Heads] = {}

    def __contains__(self, key: Hashable | None) -> bool:
        """Whether there is a line for this group."""
        return key in self._lines

    def containers(self) -> list[Container]:
        """What has the lines, for one who takes all of them."""
        heaps = (self._free, *self._held.values())
        return [Entries(self._lines), *(part for heads in heaps for part in heads.containers())]

    def add(self, held: GroupHeld) -> None:
        """Add a message behind all others of its group."""
        line = self._line(held.group)
        line.level.line.append(held)
        self._list(line)

    def put_back(self, held: GroupHeld) -> None:
        """Add a message at its place."""
        line = self._line(held.group)
        last = line.level.line.last()
        if last is None or last.position < held.position:
            line.level.line.append(held)
        else:
            line.level.returned.push(held)
        self._list(line)

    def lost(self, key: Hashable | None) -> None:
        """Note that a message of a group has left the queue."""
        line = self._lines.get(key)
        if line is not None:
            line.level.lost_one()
            self._forget_if_empty(key, line)

    def relist(self, key: Hashable | None) -> None:
        """Note that a group has another holder, or none."""
        line = self._lines.get(key)
        if line is not None:
            line.listed = None
            self._forget_if_empty(key, line)
            self._list(line)

    def forget_holder(self, holder: Holder) -> None:
        """Note that a holder has no group any more."""
        self._held.pop(holder, None)

    @property
    def any_free(self) -> bool:
        """Whether any consumer may take a message."""
        return self._head(self._free) is not None

    def waiting_holders(self) -> list[Holder]:
        """The holders of groups with messages."""
        return [holder for holder, heads in self._held.items() if self._head(heads) is not None]

    def first(self, holder: Holder | None) -> GroupHeld | None:
        """The oldest message that this holder may have: of its own groups, or of one without a holder."""
        entry = self._head(self._free)
        own = None if holder is None else self._held.get(holder)
        own_entry = None if own is None else self._head(own)
        if own_entry is not None and (entry is None or own_entry < entry):
            entry = own_entry
        if entry is None:
            return None
        held = entry[1].level.first()
        assert isinstance(held, GroupHeld)
        return held

    def _line(self, key: Hashable | None) -> _Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._groups.setdefault(key, Group()))
        return line

    def _forget_if_empty(self, key: Hashable | None, line: _Line) -> None:
        if line.group.holder is None and line.level.first() is None:
            del self._lines[key]
            line.listed = None

    def _list(self, line: _Line) -> None:
        """Put the line into its heap, at its head's position or before."""
        head = line.level.first()
        if head is None or (line.listed is not None and line.listed <= head.position):
            return
        holder = line.group.holder
        if holder is None:
            heads = self._free
            if len(heads) > 2 * len(self._lines) + SLACK:
                heads.sweep()
        else:
            if holder not in self._held:
                self._held[holder] = _heads(holder)
            heads = self._held[holder]
        line.listed = head.position
        heads.push((head.position, line))

    def _head(self, heads: _Heads) -> tuple[int, _Line] | None:
        """The first entry of a heap, after outdated ones are removed."""
        while (entry := heads.first()) is not None:
            position, line = entry
            head = line.level.first()
            if head is not None and head.position == position:
                return entry
            heads.pop()
            line.listed = None
            self._list(line)
        return None
