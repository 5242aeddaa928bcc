"""Many deliveries that are settled or returned in shares, so that other clients have their turns in between.

A queue to which many return delivers nothing meanwhile (`returning`), so that newer messages do not overtake them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.routing.steps import Steps

__all__ = ["DELIVERIES_PER_STEP", "LETTERS_PER_STEP", "counted", "rejected_in_steps", "returning"]

DELIVERIES_PER_STEP: Final = 512
LETTERS_PER_STEP: Final = 8  # deliveries that are rejected, and may be dead-lettered to many queues

E = TypeVar("E", bound="tuple[Any, ...]")  # a delivery: its first part is its queue
S = TypeVar("S")  # deliveries of a share


def _queues_of(share: Any) -> set[Queue]:
    return {entry[0] for entry in share.values()}


def returning(
    shares: Iterable[S],
    give_back: Callable[[S], None],
    queues: Iterable[Queue] = (),
    *,
    queues_of: Callable[[S], set[Queue]] = _queues_of,
) -> Work:
    """Give shares of deliveries back to their queues, which deliver nothing until the last one has returned.

    A queue is held from its first delivery on, `queues` from the first share on. `queues_of` says which are a share's:
    else it is a table of deliveries, each of which begins with its queue.
    """
    held = dict.fromkeys(queues)
    for queue in held:
        queue.hold()
    try:
        for taken in shares:
            for queue in queues_of(taken).difference(held):
                queue.hold()
                held[queue] = None
            give_back(taken)
            yield
    finally:
        for queue in held:
            queue.release()


def counted(queues: Iterator[Queue]) -> Steps[Counter[Queue]]:
    """How often each queue is among these, in steps."""
    found = Counter[Queue]()
    while share := list(islice(queues, DELIVERIES_PER_STEP)):
        found.update(share)
        yield
    return found


def rejected_in_steps(taken: dict[int, E]) -> Iterator[dict[int, E]]:
    """The deliveries of a share that are rejected in one step: few, if each may become a letter to many queues."""
    if all(entry[0].settings.dead_letter_exchange is None for entry in taken.values()):
        yield taken
        return
    entries = iter(taken.items())
    while part := dict(islice(entries, LETTERS_PER_STEP)):
        yield part
