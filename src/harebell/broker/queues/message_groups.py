"""Message groups: the messages of one group go, in order, to one consumer at a time.

The argument `x-message-group` names a header; messages with the same value of it are a group. A consumer that gets the
first message of a group holds the group while it has unacknowledged messages of it: only this consumer gets the next
ones, up to its window. When none is outstanding, the next consumer takes the group. A returned message goes to its old
place, before the rest of its group. Messages without the header belong to no group. basic.get holds groups for its
channel; deliveries without acknowledgement hold nothing. A consumer with a selector gets the messages of its groups
that it wants, in order; those that it does not want wait until it holds the group no longer.

So messages leave from the middle of the queue. To find the next one for a consumer without visiting the others, each
group has a line of its own (`group_lines`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from harebell.broker.message import Given, Held
from harebell.broker.queues.base import Back
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.consumer import Consumer, Getter
from harebell.broker.queues.contents.group_backlog import GroupBacklog
from harebell.broker.queues.contents.group_lines import GroupHeld, Holder
from harebell.broker.queues.selection.group_selecting import GroupSelecting
from harebell.broker.queues.selection.selecting import Selecting
from harebell.broker.slices import Share

__all__ = ["GroupQueue"]

HANDED: Final = 32  # what a delivery costs in a share


class GroupQueue(ClassicQueue):
    """A classic or quorum queue with message groups."""

    held_type = GroupHeld
    groups: GroupBacklog

    def enrich(self) -> None:
        if self.backlog is None:
            self.groups = GroupBacklog(self.settings.message_group or "")
            self.use_backlog(self.groups)

    def add_consumer(self, consumer: Consumer) -> None:
        super().add_consumer(consumer)
        consumer.watch_acks()

    def deliver_share(self) -> bool:
        if self.on_hold:
            return True
        if not self.drop_expired():
            return False
        share = self.batch.slices.share.begin()
        if self.selecting is not None:
            done = self.selecting.deliver(self.consumers, share)
            self.searching = not done
        else:
            done = self._deliver_groups(share)
        if not done:
            return False
        if self.views:
            self.show_views()
        return not (self.starving and self.lets_look())

    def _deliver_groups(self, share: Share) -> bool:
        lines = self.groups.lines
        while lines.any_free and (turn := self.consumers.next()) is not None:
            self._hand_to(turn[0])
            if share.spend(HANDED):
                return False
        for holder in lines.waiting_holders():
            consumer = self.consumers.find(holder)
            if consumer is None or not self.consumers.serves(consumer):
                continue
            while consumer.room() > 0 and self._hand_to(consumer):
                if share.spend(HANDED):
                    return False
        return True

    def new_selecting(self) -> Selecting:
        return GroupSelecting(self.contents, self.groups, self.timers, self.feed)

    def _hand_to(self, consumer: Consumer) -> bool:
        held = self.groups.take(None if consumer.no_ack else consumer)
        if held is None:
            return False
        self.hand(held, consumer)
        return True

    def attempt_delivery(self, held: Held) -> bool:
        self.deliver()
        if self.message_count and self.selecting is None:
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
            self.journal.handed(held, getter is None and (fits is None or fits(held)))
        self.messages_left()
        return held

    def take_at(self, position: int, holder: Holder | None) -> Held | None:
        found = self.groups.after(0, position, 1, self.groups.end)
        held = found[0] if found else None
        if not isinstance(held, GroupHeld) or held.position != position:
            return None
        if holder is not None and not self.groups.may_have(holder, held):
            return None
        if self.journal is not None:
            self.journal.fed(position, 1, False)
        self.groups.take_for(holder, held)
        self.messages_left()
        return held

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

    def give_back(self, held: Held) -> None:
        super().give_back(held)
        self._release((held,))

    def reject(self, entries: Iterable[Back]) -> None:
        entries = list(entries)
        super().reject(entries)
        self._release(message for _, message in entries)

    def _release(self, messages: Iterable[Given | None]) -> None:
        for message in messages:
            if isinstance(message, GroupHeld):
                self.groups.release(message)
        self.schedule()
