"""The contents of a queue some of whose consumers have a selector: each of these gets the messages that it wants.

Around the queue's other contents (`contents.Contents`), while there is such a consumer. Each consumer in turn gets the
first message that it wants; a message that a selector does not want stays for others. A consumer that looks for a
message and finds none among SEARCHED gives its turn away, and goes on from there: a queue of a million messages holds
nobody up, and nobody looks at a message twice (`picker`). So while a new consumer goes through a long queue, others
may take messages that it would have wanted.

Until all messages are in a backlog, from whose middle they may leave, only consumers without a selector get any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.consumer import OUTPUT_BYTES, Consumer
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.plain import Contents
from harebell.broker.queues.contents.removed import Removed
from harebell.broker.queues.selection.facts import HeldFacts
from harebell.broker.queues.selection.picker import Picker
from harebell.broker.queues.selection.trail import Trail
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Share
from harebell.broker.swept import SLACK
from harebell.broker.timers import Timers
from harebell.routing.selectors import Selector

__all__ = ["Selecting"]

FEED: Final = 512  # messages that one consumer gets until the share is looked at
SEARCHED: Final = 64  # messages that one consumer looks at in its turn
TURN: Final = 8  # what a consumer's turn costs, beside its messages, in a share
LOOKED: Final = 12  # what a message costs that a selector looks at ...
LONG: Final = 64  # parts of a selector, which looks at one SEARCHED for so many more of them
STEPS: Final = 8  # ... and so many parts of the selector cost as much as one message that is delivered
KNOWN: Final = 256  # messages whose properties are kept decoded, until the end of a share
SWEPT: Final = 16  # blocks of the trails that are swept at a time


class Selecting:
    """The contents. `feed` delivers messages that were taken out to a consumer."""

    def __init__(self, inner: Contents, timers: Timers, feed: Callable[[Consumer, list[Held]], None]) -> None:
        self.inner = inner
        self._timers, self._feed = timers, feed
        self._pickers: dict[str, Picker] = {}
        self._facts: dict[Held, HeldFacts] = {}
        self.use(inner)

    def use(self, inner: Contents) -> None:
        """Be around these contents from now on."""
        self.inner = inner
        self._backlog = inner if isinstance(inner, Backlog) else None
        self.restart()

    def restart(self) -> None:
        """Look at all messages anew: their levels have changed."""
        self._trails = [] if self._backlog is None else [Trail(level) for level in self._backlog.levels]
        for picker in self._pickers.values():
            picker.restart(self._trails)
            self.restarted(picker)

    def restarted(self, picker: Picker) -> None:  # a hook
        """A selector begins at the first message."""

    def forgotten(self, picker: Picker) -> None:  # a hook
        """No consumer has this selector any more."""

    def add(self, selector: Selector) -> None:
        """Note one more consumer with this selector."""
        picker = self._pickers.get(selector.text)
        if picker is None:
            picker = self._pickers[selector.text] = Picker(selector, self._trails)
            self.restarted(picker)
        picker.users += 1

    def remove(self, selector: Selector) -> bool:
        """Note one consumer less. Returns whether any consumer with a selector is left."""
        picker = self._pickers[selector.text]
        picker.users -= 1
        if not picker.users:
            del self._pickers[selector.text]
            self.forgotten(picker)
        return bool(self._pickers)

    # -- as contents ---------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return self.inner.count

    @property
    def end(self) -> int:
        return self.inner.end

    def pop(self) -> Held | None:
        return self.inner.pop()

    def put_back(self, held: Held) -> None:
        if self._backlog is None:
            self.inner.put_back(held)
            return
        entry = self._backlog.put_back(held)
        if not entry.gone:
            for picker in self._pickers.values():
                picker.put_back(entry, self._backlog.count)

    def is_ready(self, held: Held) -> bool:
        return self.inner.is_ready(held)

    def remove_all(self) -> Removed:
        removed = self.inner.remove_all()
        self.restart()
        return removed

    def deliver(self, consumers: Consumers, share: Share) -> bool:
        """Deliver to consumers in turn, up to their windows, for one share. Returns whether there is no more to do."""
        self._read_new()
        try:
            return all(self._deliver_to(level, share) for level in consumers.levels())
        finally:
            self._facts.clear()

    def _read_new(self) -> None:
        new = [trail.read_new() for trail in self._trails]
        if any(new):
            for picker in self._pickers.values():
                picker.idle = False
        if self._backlog is not None and sum(trail.size for trail in self._trails) > 2 * self._backlog.count + SLACK:
            for trail in self._trails:
                trail.sweep(SWEPT)

    def _deliver_to(self, level: deque[Consumer], share: Share) -> bool:
        """Deliver to consumers of one priority, until none takes anything. Returns False when the share is used up."""
        alone, busy = len(level) == 1, True
        while busy:
            busy = False
            for consumer in tuple(level):
                room = consumer.room()
                if room <= 0:
                    continue
                cost, had_turn = self._serve(consumer, min(room, FEED) if alone else 1)
                if had_turn:
                    busy = True
                    if not alone and consumer in level:
                        level.remove(consumer)
                        level.append(consumer)
                if cost and share.spend(cost):
                    return False
        return True

    def _serve(self, consumer: Consumer, most: int) -> tuple[int, bool]:
        """Deliver up to `most` messages. Returns what that costs in a share, and whether the consumer has had its turn.

        It has not, if there is nothing for it.
        """
        selector, cost, more = consumer.selector, 0, False
        if selector is None:
            run = self.take(consumer, most)
        elif self._backlog is None:
            return 0, False
        else:
            picker = self._pickers[selector.text]
            run, looked = self.pick(consumer, picker, most, max(1, SEARCHED // (1 + selector.steps // LONG)))
            cost, more = looked * (LOOKED + selector.steps // STEPS), not picker.idle
        if run:
            self._feed(consumer, run)
            cost += TURN + 2 * len(run)
        return cost, bool(run) or more

    def take(self, consumer: Consumer, most: int) -> list[Held]:
        """Take up to `most` messages for a consumer that takes any."""
        if self._backlog is not None:
            return self._backlog.pop_many(most, OUTPUT_BYTES)
        held = self.inner.pop()
        return [] if held is None else [held]

    def pick(self, consumer: Consumer, picker: Picker, most: int, searched: int) -> tuple[list[Held], int]:
        """Take up to `most` messages that its selector wants, among the next `searched`; and how many it looked at."""
        backlog, run, looked, size = self._backlog, list[Held](), 0, 0
        while backlog is not None and not picker.idle and len(run) < most and looked < searched:
            held, count = picker.next(backlog.order(), self.facts_of, searched - looked)
            looked += count
            if held is None:
                break
            size += held.size
            run.append(backlog.take_out(held))
            if size > OUTPUT_BYTES:
                break
        return run, looked

    def taker(self, consumers: Consumers, held: Held) -> tuple[Consumer | None, int]:
        """The consumer that would get a message that comes now, and what it costs in a share to find it.

        It has room, wants the message, and no other one before that.
        """
        facts, others, cost = HeldFacts(held, self._timers), self.count, 0
        for level in consumers.levels():
            for consumer in level:
                selector = consumer.selector
                if selector is None:
                    cost, wants = cost + 1, not others
                else:
                    cost, wants = cost + LOOKED + selector.steps // STEPS, selector.wants(facts)
                if wants and consumer.room() > 0:
                    return consumer, cost
        return None, cost

    def facts_of(self, held: Held) -> HeldFacts:
        facts = self._facts.get(held)
        if facts is None:
            if len(self._facts) >= KNOWN:
                self._facts.clear()
            facts = self._facts[held] = HeldFacts(held, self._timers)
        return facts
