"""The queues of a message that was routed some time ago: those that are still there."""

from __future__ import annotations

from collections.abc import Mapping

from harebell.broker.forwarding import Sink
from harebell.broker.queues.base import Queue

__all__ = ["existing"]


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
