"""The publication of one message to its queues: to many in steps, so that other clients have their turns in between."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue

__all__ = ["FEW", "existing", "is_wide", "publish_in_steps"]

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
        yield
    batch.cover_earlier()
    return accepted


def existing(queues: Mapping[str, Queue], sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
    """The sinks by name: a queue that was declared again replaces the old one, deleted ones are left out."""
    if not any(isinstance(sink, Queue) and sink.deleted for sink in sinks):
        return sinks
    there: list[Sink] = []
    for sink in sinks:
        if isinstance(sink, Queue) and sink.deleted:
            queue = queues.get(sink.name)
            if queue is not None:
                queue.enrich()  # the new queue does not know yet that such messages come
                there.append(queue)
        else:
            there.append(sink)
    return tuple(there)
