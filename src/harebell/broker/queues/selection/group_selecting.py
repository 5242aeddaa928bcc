"""The contents of a queue with message groups some of whose consumers have a selector.

What a selector wants is listed by its group when it was looked at, because another consumer may hold the group: it gets
the first message that is listed and that it may have, and looks on when there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from harebell.broker.message import Held
from harebell.broker.queues.consumer import OUTPUT_BYTES, Consumer
from harebell.broker.queues.contents.group_backlog import GroupBacklog
from harebell.broker.queues.contents.group_lines import GroupHeld, GroupLines
from harebell.broker.queues.contents.plain import Contents
from harebell.broker.queues.selection.picker import Picker
from harebell.broker.queues.selection.selecting import Selecting
from harebell.broker.timers import Timers

__all__ = ["GroupSelecting"]


class GroupSelecting(Selecting):
    """The contents, around the backlog `groups`."""

    def __init__(
        self, inner: Contents, groups: GroupBacklog, timers: Timers, feed: Callable[[Consumer, list[Held]], None]
    ) -> None:
        self._groups = groups
        self._lines: dict[Picker, GroupLines] = {}
        super().__init__(inner, timers, feed)

    def restarted(self, picker: Picker) -> None:
        self._lines[picker] = self._groups.new_lines()
        self._groups.others = list(self._lines.values())

    def forgotten(self, picker: Picker) -> None:
        del self._lines[picker]
        self._groups.others = list(self._lines.values())

    def take(self, consumer: Consumer, most: int) -> list[Held]:
        holder, run = None if consumer.no_ack else consumer, list[Held]()
        while len(run) < most and (held := self._groups.take(holder)) is not None:
            run.append(held)
        return run

    def pick(self, consumer: Consumer, picker: Picker, most: int, searched: int) -> tuple[list[Held], int]:
        lines, holder, run = self._lines[picker], None if consumer.no_ack else consumer, list[Held]()
        looked = size = 0
        while len(run) < most and size <= OUTPUT_BYTES:
            held = lines.first(holder)
            if held is not None and not picker.has_returned_before(held.position):
                self._groups.take_for(holder, held)
                run.append(held)
                size += held.size
                continue
            if picker.idle or looked >= searched:
                break
            wanted, count = picker.next(self._groups.order(), self.facts_of, searched - looked)
            looked += count
            if wanted is not None:
                assert isinstance(wanted, GroupHeld)
                lines.put_back(wanted)
        return run, looked
