"""Message groups: the messages of one group go, in order, to one consumer at a time.

The argument `x-message-group` names a header; messages with the same value of it are a group. A consumer that gets the
first message of a group holds the group while it has unacknowledged messages of it: only this consumer gets the next
ones, up to its window. When none is outstanding, the next consumer takes the group. A returned message goes to its old
place, before the rest of its group. Messages without the header belong to no group. basic.get holds groups for its
channel; deliveries without acknowledgement hold nothing.

So messages leave from the middle of the queue. To find the next one for a consumer without visiting the others, each
group has a line of its own, and the heads of these lines are in heaps: one of the groups without a holder, and one for
each holder.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeAlias

from harebell.broker.message import Given, Held, Message
from harebell.broker.queues.base import Back
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.consumer import Consumer, Getter
from harebell.broker.queues.contents.backlog import Backlog, Level
from harebell.broker.queues.contents.removed import Removed
from harebell.broker.swept import SLACK, Heap
from harebell.errors import NotImplemented as NotImplemented540
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing.table_values import canonical

__all__ = ["GroupBacklog", "GroupHeld", "GroupQueue"]

HANDED: Final = 32  # what a delivery costs in a share
Holder: TypeAlias = "Consumer | Getter"


class GroupHeld(Held):
    """A message with its group: `group` is a key for the value of the header; None: it has none."""

    __slots__ = ("group",)

    group: Hashable | None

    def renewed(self) -> GroupHeld:
        held = super().renewed()
        assert isinstance(held, GroupHeld)
        held.group = self.group
        return held


class _Group:
    """The line of one group. `listed` is its position in a heap, at most its head's; None when it is in none."""

    __slots__ = ("holder", "line", "listed", "out")

    def __init__(self) -> None:
        self.line = Level()
        self.holder: Holder | None = None
        self.out = 0  # unacknowledged deliveries of it
        self.listed: int | None = None

    def __lt__(self, other: _Group) -> bool:
        return False  # in a heap of (position, group), where positions are equal only for one group


_Heads: TypeAlias = "Heap[tuple[int, _Group]]"


def _heads(holder: Holder | None) -> _Heads:
    """A heap for the groups of this holder, by the positions at which they are listed."""

    def is_gone(entry: tuple[int, _Group]) -> bool:
        at, group = entry
        return group.holder is not holder or group.listed != at

    return Heap(is_gone)


class GroupBacklog(Backlog):
    """A backlog that knows which consumer may take which message; `header` names the group."""

    def __init__(self, header: str) -> None:
        super().__init__()
        self._header = header
        self._name = bytes([len(name := header.encode())]) + name
        self._groups: dict[Hashable | None, _Group] = {}
        self._free = _heads(None)
        self._held: dict[Holder, _Heads] = {}  # of the holders of groups
        self._holds: dict[Holder, int] = {}  # number of groups

    # -- messages come and go ------------------------------------------------------------------------------------

    def push(self, held: Held) -> None:
        assert isinstance(held, GroupHeld)
        held.group = self._group_of(held.message)
        super().push(held)
        group = self._group(held.group)
        group.line.line.append(held)
        self._list(group)

    def put_back(self, held: Held) -> None:
        """Put back a copy: an entry in the middle of the heap of returned messages cannot be removed at once."""
        assert isinstance(held, GroupHeld)
        again = GroupHeld(held.message, held.position, held.deadline)
        again.count, again.group = held.count, held.group
        returned = self.levels[0].returned
        if len(returned) > 2 * self.count + SLACK:
            returned.sweep()
        super().put_back(again)
        group = self._group(again.group)
        group.line.returned.push(again)
        self._list(group)

    def remove(self, held: Held) -> None:
        assert isinstance(held, GroupHeld)
        super().remove(held)
        group = self._groups.get(held.group)
        if group is not None:
            group.line.lost_one()
            self._forget_if_empty(held.group, group)

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

    def remove_all(self) -> Removed:
        """Remove the ready messages; consumers still hold their groups."""
        removed = super().remove_all()
        self._free = _heads(None)
        self._held = {holder: _heads(holder) for holder in self._held}
        self._groups = {key: group for key, group in self._groups.items() if group.holder is not None}
        for group in self._groups.values():
            group.line, group.listed = Level(), None
        return removed

    def _group_of(self, message: Message) -> Hashable | None:
        frames = message.content.frames
        if frames.find(self._name, 0, header_frame_size(frames)) < 0:
            return None
        value = (message.content.decode_properties().headers or {}).get(self._header)
        return None if value is None else canonical(value)

    def _group(self, key: Hashable | None) -> _Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        return group

    def _forget_if_empty(self, key: Hashable | None, group: _Group) -> None:
        if group.holder is None and group.line.first() is None:
            self._groups.pop(key, None)
            group.listed = None

    # -- groups and holders -------------------------------------------------------------------------------------

    @property
    def any_free(self) -> bool:
        """Whether any consumer may take a message."""
        return self._head(self._free) is not None

    def waiting_holders(self) -> list[Holder]:
        """The holders of groups with ready messages."""
        return [holder for holder, heads in self._held.items() if self._head(heads) is not None]

    def take(self, holder: Holder | None) -> GroupHeld | None:
        """Take the oldest message that this holder may have; it holds the group until `release` (None: no holder)."""
        first, own_first = self._head(self._free), None
        own = self._held.get(holder) if holder is not None else None
        if own is not None:
            own_first = self._head(own)
        if own is not None and own_first is not None and (first is None or own_first < first):
            heads, first = own, own_first
        else:
            heads = self._free
        if first is None:
            return None
        heads.pop()
        group = first[1]
        group.listed = None
        held = group.line.first()
        assert isinstance(held, GroupHeld)
        group.line.drop_first(held)
        if holder is not None and held.group is not None:
            self._hold(group, holder)
        self.remove(held)
        self._list(group)
        return held

    def _hold(self, group: _Group, holder: Holder) -> None:
        if group.holder is None:
            group.holder = holder
            self._holds[holder] = self._holds.get(holder, 0) + 1
            self._held.setdefault(holder, _heads(holder))
        group.out += 1

    def release(self, held: GroupHeld) -> None:
        """End one delivery that held its group: acknowledged, dropped or returned. The last one frees the group."""
        group = self._groups.get(held.group)
        if group is None or group.holder is None:
            return
        group.out -= 1
        if group.out:
            return
        holder, group.holder, group.listed = group.holder, None, None
        self._holds[holder] -= 1
        if not self._holds[holder]:
            del self._holds[holder], self._held[holder]
        self._forget_if_empty(held.group, group)
        self._list(group)

    def _list(self, group: _Group) -> None:
        """Put the group into its heap, at its head's position or before."""
        head = group.line.first()
        if head is None or (group.listed is not None and group.listed <= head.position):
            return
        if group.holder is None and len(self._free) > 2 * len(self._groups) + SLACK:
            self._free.sweep()
        group.listed = head.position
        heads = self._free if group.holder is None else self._held[group.holder]
        heads.push((head.position, group))

    def _head(self, heads: _Heads) -> tuple[int, _Group] | None:
        """The first entry of a heap, after outdated ones are removed."""
        while (entry := heads.first()) is not None:
            position, group = entry
            head = group.line.first()
            if head is not None and head.position == position:
                return entry
            heads.pop()
            group.listed = None
            self._list(group)
        return None


class GroupQueue(ClassicQueue):
    """A classic or quorum queue with message groups."""

    held_type = GroupHeld
    groups: GroupBacklog

    def enrich(self) -> None:
        if self.backlog is None:
            self.groups = GroupBacklog(self.settings.message_group or "")
            self.use_backlog(self.groups)

    def add_consumer(self, consumer: Consumer) -> None:
        if consumer.selector is not None:
            raise NotImplemented540(f"a selector on {self}, which has message groups")
        super().add_consumer(consumer)
        consumer.watch_acks()

    def deliver_share(self) -> bool:
        if self.on_hold:
            return True
        if not self.drop_expired():
            return False
        groups, share = self.groups, self.batch.slices.share.begin()
        while groups.any_free and (turn := self.consumers.next()) is not None:
            self._hand_to(turn[0])
            if share.spend(HANDED):
                return False
        for holder in groups.waiting_holders():
            consumer = self.consumers.find(holder)
            while consumer is not None and consumer.room() > 0 and self._hand_to(consumer):
                if share.spend(HANDED):
                    return False
        if self.views:
            self.show_views()
        return True

    def _hand_to(self, consumer: Consumer) -> bool:
        held = self.groups.take(None if consumer.no_ack else consumer)
        if held is None:
            return False
        self.hand(held, consumer)
        return True

    def attempt_delivery(self, held: Held) -> bool:
        self.deliver()
        if self.message_count:
            return False
        deadline, held.deadline = held.deadline, 0  # it has expired, but not before this attempt
        self.groups.push(held)
        self.deliver()
        held.deadline = deadline
        if not held.gone:
            self.groups.remove(held)
            return False
        return True

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        self.renew_lease()
        self.drop_all_expired()
        if getter is not None:
            getter.watch_acks()
        held = self.groups.take(getter)
        if held is not None and self.journal is not None:
            self.journal.fed(held.position, 1, getter is None and (fits is None or fits(held)))
        return held

    def take_at(self, position: int) -> Held | None:
        return None  # a message that was browsed has no holder of its group

    def as_held(self, held: Held) -> Held:
        grouped = GroupHeld(held.message, held.position, held.deadline)
        grouped.count = held.count
        return grouped

    def acked(self, message: Given | None) -> None:
        self._release((message,))

    def requeue(self, entries: Iterable[Back], *, failed: bool, counted: bool = True) -> None:
        entries = list(entries)
        super().requeue(entries, failed=failed, counted=counted)
        self._release(message for _, message in entries)

    def reject(self, entries: Iterable[Back]) -> None:
        entries = list(entries)
        super().reject(entries)
        self._release(message for _, message in entries)

    def _release(self, messages: Iterable[Given | None]) -> None:
        for message in messages:
            if isinstance(message, GroupHeld):
                self.groups.release(message)
        self.schedule()
