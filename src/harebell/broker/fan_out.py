"""The publication of one message to its queues: to many in steps, so that other clients have their turns in between."""

from __future__ import annotations

from typing import Final

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.routing.steps import Steps

__all__ = ["UNTIMED_QUEUES", "is_wide", "publish_in_steps"]

UNTIMED_QUEUES: Final = 8  # queues of one message, above which its time is looked at
WIDE_QUEUES: Final = 128  # ..., above which they get it in steps
QUEUES_PER_STEP: Final = 8


def is_wide(batch: Batch, count: int, *, stored: bool) -> bool:
    """Whether so many queues get a message in steps; `stored`: it may have to reach the disk."""
    return count > WIDE_QUEUES or (stored and batch.writes_long(count))


def publish_in_steps(batch: Batch, message: Message, sinks: tuple[Sink, ...]) -> Steps[bool]:
    """Publish a message to its sinks: to a few at once, to more in steps. Returns whether every sink took it."""
    accepted = True
    for start in range(0, len(sinks), QUEUES_PER_STEP):
        if start:
            batch.relieve()
            batch.letters.hold_back()
            yield
        for sink in sinks[start : start + QUEUES_PER_STEP]:
            accepted &= sink.publish(message)
    batch.cover_earlier()
    return accepted
