"""The publication of one message to its queues: to many in steps, so that other clients have their turns in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message

__all__ = ["FEW", "is_wide", "publish_in_steps"]

FEW: Final = 8  # queues of one message, above which its time is looked at
WIDE: Final = 128  # ..., above which they get it in steps
STEP: Final = 8  # queues of a step


def is_wide(batch: Batch, count: int, *, stored: bool) -> bool:
    """Whether so many queues get a message in steps; `stored`: it may have to reach the disk."""
    return count > WIDE or (stored and batch.writes_long(count))


def publish_in_steps(batch: Batch, message: Message, queues: tuple[Sink, ...]) -> Generator[None, None, bool]:
    """Publish a message to its queues, in steps. Returns whether every queue took it."""
    accepted = True
    for start in range(0, len(queues), STEP):
        for queue in queues[start : start + STEP]:
            accepted &= queue.publish(message)
        batch.relieve()
        batch.letters.hold_back()
        yield
    batch.cover_earlier()
    return accepted
