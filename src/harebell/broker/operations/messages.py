"""Single messages of a queue for users without an AMQP connection: get, with all of RabbitMQ's ways to acknowledge."""

from __future__ import annotations

from typing import Final, Literal

from harebell.broker.counts import QueueCounts
from harebell.broker.message import Held
from harebell.broker.queues.base import Queue
from harebell.broker.vhost import VirtualHost
from harebell.routing.steps import Steps

__all__ = ["Outcome", "getting"]

Outcome = Literal["ack", "requeue", "reject_requeue", "reject"]
"""What becomes of a message that was got: it is acknowledged, given back, rejected back, or rejected for good."""

STEP: Final = 64  # messages taken in one step


class _Getter:
    """A user of basic.get, which settles everything at once."""

    def watch_acks(self) -> None:
        """Nothing: what is got is settled at once."""


def getting(
    vhost: VirtualHost, queue: Queue, count: int, outcome: Outcome, *, most_bytes: int
) -> Steps[list[tuple[Held, int]]]:
    """Take up to `count` messages, and no more after `most_bytes` bytes of body.

    Returns them, each with the number of messages behind it.

    Those that go back do so when all are taken; until then the queue delivers nothing. Raises 540 for a queue that
    gives none out.
    """
    got, size, returns = list[tuple[Held, int]](), 0, outcome in ("requeue", "reject_requeue")
    getter = None if outcome == "ack" else _Getter()
    counts: tuple[QueueCounts, ...] = (vhost.counts, queue.counts)
    if returns:
        queue.hold()
    try:
        while len(got) < count and size < most_bytes:
            held = queue.take(getter)
            if held is None:
                for each in counts:
                    each.get_empty += 1
                break
            size += held.size
            got.append((held, queue.message_count))
            for each in counts:
                each.redeliver += held.count > 0
                if outcome == "ack":
                    each.get_no_ack += 1
                else:
                    each.get += 1
            if not len(got) % STEP:
                yield
        if outcome == "reject":
            queue.reject((held.position, held) for held, _ in got)
        return got
    finally:
        if returns:
            queue.before_requeue()
            queue.requeue([(held.position, held) for held, _ in got], failed=outcome == "reject_requeue")
            queue.release()
