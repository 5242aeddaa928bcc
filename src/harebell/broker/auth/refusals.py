"""The latest refusals of permissions: who was refused what, how often, and the smallest grant that would have done.

A refusal that comes again is counted. Only so many different ones are kept, those that came last; a restart empties
them. Logins that are refused are in the audit log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from harebell.broker.auth.acts import Right
from harebell.routing.pattern_language import literal

__all__ = ["Refusal", "Refusals", "widened"]

MOST: Final = 1000
LONGEST_NAME: Final = 255  # of anything that there can be; arguments may name what there cannot be


class Refusal(NamedTuple):
    """What was refused: a right on a queue or an exchange, or on a routing key of a topic exchange.

    act       as in `acts.ACTS`
    name      of the queue or exchange, with amq.default for the default exchange; or the routing key
    exchange  the topic exchange, of which `name` is a key; else None
    """

    user: str
    vhost: str
    act: str
    right: Right
    kind: str
    name: str
    exchange: str | None = None


@dataclass(slots=True)
class Times:
    """How often and when, in milliseconds since 1970."""

    count: int
    first_at: int
    last_at: int


class Refusals:
    """The latest refusals, the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._times: dict[Refusal, Times] = {}

    def __iter__(self) -> Iterator[tuple[Refusal, Times]]:
        return iter(tuple(self._times.items()))

    def note(self, refusal: Refusal) -> None:
        if len(refusal.name) > LONGEST_NAME:
            return
        now = int(self._clock() * 1000)
        times = self._times.pop(refusal, None) or Times(0, now, now)
        times.count, times.last_at = times.count + 1, now
        self._times[refusal] = times
        if len(self._times) > MOST:
            del self._times[next(iter(self._times))]


def widened(pattern: str | None, name: str) -> str:
    """The pattern that matches what this one does, and the name. None and "" match nothing that has a name."""
    alone = f"^{literal(name)}$"
    return f"{pattern}|{alone}" if pattern and pattern != "^$" else alone
