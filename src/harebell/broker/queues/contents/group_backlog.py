"""The backlog of a queue with message groups: which message a consumer may have, and who holds which group."""

from __future__ import annotations

from collections.abc import Hashable

from harebell.broker.message import Held, Message
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.group_lines import Group, GroupHeld, GroupLines, Holder
from harebell.broker.queues.contents.removed import Container, Entries, Removed
from harebell.broker.swept import SLACK
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing.table_values import canonical

__all__ = ["GroupBacklog"]


class GroupBacklog(Backlog):
    """A backlog that knows which consumer may take which message; `header` names the group.

    lines   all messages by their groups
    others  those that selectors want: they are notified of holders and of messages that leave
    """

    def __init__(self, header: str) -> None:
        super().__init__()
        self._header = header
        self._name = bytes([len(name := header.encode())]) + name
        self._groups: dict[Hashable | None, Group] = {}
        self._held: dict[Hashable | None, Group] = {}  # those of `_groups` that have holders
        self._holds: dict[Holder, int] = {}  # number of groups
        self.lines = GroupLines(self._groups)
        self.others: list[GroupLines] = []

    # -- messages come and go ------------------------------------------------------------------------------------

    def push(self, held: Held) -> None:
        assert isinstance(held, GroupHeld)
        held.group, held.holding = self._group_of(held.message), False
        super().push(held)
        self.lines.add(held)

    def put_back(self, held: Held) -> Held:
        """Put back a copy: an entry in the middle of the heap of returned messages cannot be removed at once."""
        assert isinstance(held, GroupHeld)
        again = held.renewed()
        returned = self.levels[0].returned
        if len(returned) > 2 * self.count + SLACK:
            returned.sweep()
        super().put_back(again)
        self.lines.put_back(again)
        return again

    def remove(self, held: Held) -> None:
        assert isinstance(held, GroupHeld)
        super().remove(held)
        self.lines.lost(held.group)
        for lines in self.others:
            lines.lost(held.group)
        self._forget_if_unused(held.group)

    def pop(self) -> Held | None:
        held = self.first()
        if held is not None:
            self.remove(held)
        return held

    def pop_lowest(self) -> Held | None:
        return self.pop()  # groups have no priorities

    def first(self) -> Held | None:
        """The oldest message, of any group: the one that a limit drops."""
        return self.levels[0].first()

    def new_lines(self) -> GroupLines:
        """Lines for those messages that a selector wants, without any yet."""
        return GroupLines(self._groups)

    def remove_all(self) -> Removed:
        """Remove the ready messages; consumers still hold their groups."""
        others: list[Container] = [Entries(self._groups), *self.lines.containers()]
        for lines in self.others:
            others += lines.containers()
        self._groups = self._held.copy()
        self.lines = GroupLines(self._groups)
        return super().remove_all().and_then(Removed(0, (), others))

    def _group_of(self, message: Message) -> Hashable | None:
        frames = message.content.frames
        if frames.find(self._name, 0, header_frame_size(frames)) < 0:
            return None
        value = (message.content.decode_properties().headers or {}).get(self._header)
        return None if value is None else canonical(value)

    def _forget_if_unused(self, key: Hashable | None) -> None:
        group = self._groups.get(key)
        if group is not None and group.holder is None and not any(key in each for each in (self.lines, *self.others)):
            del self._groups[key]

    # -- groups and holders -------------------------------------------------------------------------------------

    def take(self, holder: Holder | None) -> GroupHeld | None:
        """Take the oldest message that this holder may have; it holds the group until `release` (None: no holder)."""
        held = self.lines.first(holder)
        if held is not None:
            self.take_for(holder, held)
        return held

    def take_for(self, holder: Holder | None, held: GroupHeld) -> None:
        """Take this message for a holder that may have it."""
        if holder is not None and held.group is not None:
            self._hold(held.group, holder)
            held.holding = True
        self.remove(held)

    def may_have(self, holder: Holder, held: GroupHeld) -> bool:
        """Whether nobody else holds the message's group."""
        group = self._groups.get(held.group)
        return held.group is None or group is None or group.holder in (None, holder)

    def _hold(self, key: Hashable, holder: Holder) -> None:
        group = self._groups[key]
        group.out += 1
        if group.holder is None:
            group.holder = holder
            self._held[key] = group
            self._holds[holder] = self._holds.get(holder, 0) + 1
            self._relist(key)

    def release(self, held: GroupHeld) -> None:
        """End one delivery: acknowledged, dropped or returned. The last one of those that hold a group frees it."""
        if not held.holding:
            return
        held.holding = False
        group = self._groups[held.group]
        group.out -= 1
        if group.out:
            return
        holder, group.holder = group.holder, None
        del self._held[held.group]
        assert holder is not None
        self._holds[holder] -= 1
        if not self._holds[holder]:
            del self._holds[holder]
            for lines in (self.lines, *self.others):
                lines.forget_holder(holder)
        self._relist(held.group)
        self._forget_if_unused(held.group)

    def _relist(self, key: Hashable | None) -> None:
        for lines in (self.lines, *self.others):
            lines.relist(key)
