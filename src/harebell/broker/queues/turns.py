"""The order in which a queue's consumers are served.

Consumers of higher priority (`x-priority`) first while their windows have room; among equals strict turns. With a
single active consumer only that one; when it goes, the waiting one of the highest priority follows, in order of
arrival. A new consumer of higher priority does not take over (RabbitMQ's classic queues).

A queue with a thousand busy consumers must not look at all of them for each message. So one that has no room is set
aside until it has room again, if it announces that (`reopen`, `reconsider`); then it goes behind the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from harebell.broker.queues.consumer import Consumer

__all__ = ["Consumers"]

FEW: Final = 8  # consumers of one priority that are looked at for each message, with room or without


class Consumers:
    """The consumers of one queue. `single`: only one consumer is active at a time; `active` is that one."""

    def __init__(self, *, single: bool = False) -> None:
        self.single = single
        self.active: Consumer | None = None
        self.only: Consumer | None = None  # the consumer, when there is only one
        self._levels: dict[int, deque[Consumer]] = {}
        self._order: list[deque[Consumer]] = []  # highest priority first
        self._count = 0
        self._arrivals: dict[object, tuple[int, Consumer]] = {}
        self._arrived = 0
        self._exclusive = 0
        self._aside: dict[Consumer, None] = {}  # they are in no level

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Consumer]:
        self.reconsider()
        for level in self._order:
            yield from level

    def find(self, one: object) -> Consumer | None:
        """The consumer, if it is one of the queue's."""
        found = self._arrivals.get(one)
        return None if found is None else found[1]

    def serves(self, consumer: Consumer) -> bool:
        """Whether the consumer may get messages: with a single active consumer only that one."""
        return not self.single or consumer is self.active

    @property
    def any_room(self) -> bool:
        """Whether a consumer that may get messages has room for one."""
        return any(consumer.room() > 0 for level in self.levels() for consumer in level)

    @property
    def exclusive(self) -> bool:
        """Whether one of them is exclusive."""
        return self._exclusive > 0

    def add(self, consumer: Consumer) -> None:
        self._levels.setdefault(consumer.priority, deque()).append(consumer)
        self._arrivals[consumer] = self._arrived, consumer
        self._arrived += 1
        self._exclusive += consumer.exclusive
        self._sort()
        if self.single and self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer) -> bool:
        """Remove a consumer. Returns whether it was one of the queue's."""
        self.reconsider()
        level = self._levels.get(consumer.priority)
        if level is None or consumer not in level:
            return False
        level.remove(consumer)
        del self._arrivals[consumer]
        self._exclusive -= consumer.exclusive
        if not level:
            del self._levels[consumer.priority]
        self._sort()
        if self.active is consumer:
            self.active = next(iter(self), None)
        return True

    def set_single(self, single: bool) -> None:
        """Make only one consumer active from now on, or all of them.

        The active one is the first to have arrived among those of the highest priority.
        """
        if single != self.single:
            self.reconsider()
            self.single = single
            if single:  # taking turns has rotated the levels
                for priority, level in self._levels.items():
                    self._levels[priority] = deque(sorted(level, key=lambda consumer: self._arrivals[consumer][0]))
                self._sort()
            self.active = next(iter(self), None) if single else None

    def clear(self) -> None:
        self.reconsider()
        self._levels.clear()
        self._arrivals.clear()
        self._exclusive = 0
        self.active = None
        self._sort()

    def _sort(self) -> None:
        self._order = [self._levels[priority] for priority in sorted(self._levels, reverse=True)]
        self._count = len(self._arrivals)
        self.only = self._order[0][0] if self._count == 1 else None

    def levels(self) -> Iterator[deque[Consumer]]:
        """The consumers that may take messages, those of one priority together, the highest first.

        The caller moves one that has had its turn to the end.
        """
        self.reconsider()
        if self.single:
            yield deque(() if self.active is None else (self.active,))
        else:
            yield from tuple(self._order)

    def next(self) -> tuple[Consumer, int] | None:
        """The next consumer and its room; None when no consumer takes messages now."""
        if self.only is not None:
            room = self.only.room()
            return (self.only, room) if room > 0 else None
        if self.single:
            active = self.active
            room = active.room() if active is not None else 0
            return (active, room) if active is not None and room > 0 else None
        for level in self._order:
            for _ in range(len(level)):
                consumer = level[0]
                room = consumer.room()
                if room <= 0 and len(level) > FEW and consumer.announces:
                    level.popleft()
                    consumer.aside = True
                    self._aside[consumer] = None
                    continue
                if len(level) > 1:
                    level.rotate(-1)
                if room > 0:
                    return consumer, room
        return None

    def reopen(self, consumer: Consumer) -> None:
        """Note that a consumer which is `aside` has room again."""
        del self._aside[consumer]
        consumer.aside = False
        self._levels[consumer.priority].append(consumer)

    def reconsider(self) -> None:
        """Note that any of them may have room again."""
        if self._aside:
            for consumer in self._aside:
                consumer.aside = False
                self._levels[consumer.priority].append(consumer)
            self._aside.clear()
