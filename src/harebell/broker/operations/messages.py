"""Single messages of a queue for users without an AMQP connection: get, with all of RabbitMQ's ways to acknowledge;
browse, which takes nothing out; drop, copy or move one that was browsed, by its position; and move all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Literal, NamedTuple

from harebell.broker.counts import QueueCounts
from harebell.broker.message import STORED_CHANNEL, Address, Held, Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.browse import Walk
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.selection.facts import HeldFacts
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.vhost import VirtualHost
from harebell.errors import NotImplemented as NotImplemented540, PreconditionFailed
from harebell.protocol.v091.content import stored_content
from harebell.routing.selectors import Selector
from harebell.routing.steps import Steps

__all__ = [
    "Browsed", "Outcome", "browsing", "copying", "dropping", "examining", "getting", "moving", "moving_all",
    "withdrawing",
]  # fmt: skip

Outcome = Literal["ack", "requeue", "reject_requeue", "reject"]
"""What becomes of a message that was got: it is acknowledged, given back, rejected back, or rejected for good."""

STEP: Final = 64  # messages taken in one step
MOST_EXAMINED: Final = 100_000  # messages that one browsing looks at behind its offset


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


class Browsed(NamedTuple):
    """Messages of a queue, and the offset to go on at; None at the queue's end."""

    messages: list[Held]
    next_offset: int | None


def browsing(
    queue: Queue, *, offset: int, limit: int, most_bytes: int, selector: Selector | None = None
) -> Steps[Browsed]:
    """Look at ready messages behind the first `offset` ones, in the order of their delivery; none is taken or marked.

    Up to `limit` messages that the selector wants, none after `most_bytes` bytes of body, among MOST_EXAMINED.
    """
    found, size, seen, enough = list[Held](), 0, 0, False
    if isinstance(queue, StreamQueue):
        seen = min(offset, queue.message_count)
    walk = _ready(queue, seen)
    try:
        for held in walk:
            if held is None:
                yield
                continue
            if enough:  # and here is one more
                return Browsed(found, seen)
            seen += 1
            if seen > offset and (selector is None or selector.wants(HeldFacts(held, queue.timers))):
                found.append(held)
                size += held.size
            enough = len(found) >= limit or size >= most_bytes or seen - offset >= MOST_EXAMINED
        return Browsed(found, None)
    finally:
        walk.close()


def _ready(queue: Queue, skip: int = 0) -> Generator[Held | None, None, None]:
    """The ready messages; None where a step ends. Of a stream those behind the first `skip` ones."""
    if isinstance(queue, StreamQueue):
        cursor = queue.log.cursor(queue.log.first + skip)
        while not queue.deleted and (records := cursor.read(STEP)):
            for record in records:
                content = stored_content(STORED_CHANNEL, record.frames)
                yield Held(Message(Address.read(record.address), content), record.offset)
            yield None
        return
    assert isinstance(queue, ClassicQueue)
    while not queue.drop_expired():
        yield None
    with Walk(queue) as walk:
        count = 0
        while True:
            if queue.is_enriching:
                for _ in queue.finishing_enriching():
                    yield None
            if (held := walk.next()) is None:
                return
            if not walk.was_passed(held):
                yield held
            count += 1
            if not count % STEP:
                yield None


def examining(queue: Queue, look: Callable[[Held], bool]) -> Steps[None]:
    """Show `look` the ready messages in the order of their delivery, until it returns False."""
    walk = _ready(queue)
    try:
        for held in walk:
            if held is None:
                yield
            elif not look(held):
                return
    finally:
        walk.close()


def copying(queue: Queue, position: int, target: Queue) -> Steps[bool]:
    """Publish a ready message to another queue too, as it is. Returns False when it is not at that position any more.

    Raises PreconditionFailed when the target refuses it.
    """
    first = queue.log.first if isinstance(queue, StreamQueue) else 0
    walk = _ready(queue, max(0, position - first) if isinstance(queue, StreamQueue) else 0)
    try:
        for held in walk:
            if held is None:
                yield
            elif held.position == position:
                _publish(held.message, target)
                return True
        return False
    finally:
        walk.close()


def dropping(queue: Queue, position: int) -> Steps[bool]:
    """Drop a ready message, as if it had been acknowledged. Returns False when it is not at that position any more."""
    queue = _classic(queue)
    held = yield from _taking(queue, position)
    if held is None:
        return False
    queue.settle([position])
    return True


def moving(queue: Queue, position: int, target: Queue) -> Steps[bool]:
    """Move a ready message to the end of another queue, as it is: address, headers and properties stay.

    It leaves its queue when it is safe in the other one. Returns False when it is not at that position any more. Raises
    PreconditionFailed when the target refuses it: it is in its old place then.
    """
    queue = _classic(queue)
    held = yield from _taking(queue, position)
    if held is None:
        return False
    _pass(queue, held, target)
    return True


def moving_all(queue: Queue, target: Queue, most: int | None = None) -> Steps[int]:
    """Move the first `most` ready messages to the end of another queue, as they are; None: until there are no more.

    Whoever could have got them next: also those of a group that a consumer holds. Each leaves its queue when it is safe
    in the other one. Returns their number. Raises PreconditionFailed when the target refuses one: that one and those
    behind it are in their old places then. 540 for a stream's.
    """
    queue = _classic(queue)
    moved, left = 0, queue.message_count
    while not queue.deleted and (queue.message_count > 0 if most is None else moved < most):
        while not queue.drop_expired():
            yield
        step = max(STEP, 2 * (queue.message_count - left))  # more than come in beside it: it ends
        for _ in range(step if most is None else min(step, most - moved)):
            held = queue.evict()
            if held is None:
                return moved
            _pass(queue, held, target)
            moved += 1
        left = queue.message_count
        queue.batch.relieve()
        yield
    return moved


def withdrawing(queue: Queue, target: Queue, *, all_of_them: bool) -> Steps[int]:
    """Move what a purge would drop to another queue: the messages that are ready, and those that wait for a retry.

    The queue delivers nothing meanwhile. `all_of_them`: those too that are published meanwhile.
    """
    queue = _classic(queue)
    queue.hold()
    try:
        while queue.retry_some():
            yield
        return (yield from moving_all(queue, target, None if all_of_them else queue.message_count))
    finally:
        queue.release()


def _classic(queue: Queue) -> ClassicQueue:
    if not isinstance(queue, ClassicQueue):
        raise NotImplemented540(f"taking messages out not supported by stream {queue}")
    return queue


def _taking(queue: ClassicQueue, position: int) -> Steps[Held | None]:
    if queue.backlog is None:
        queue.enrich()
    while queue.backlog is None and not queue.deleted:
        yield
    while not queue.drop_expired():
        yield
    return None if queue.deleted else queue.take_at(position, None)


def _pass(queue: ClassicQueue, held: Held, target: Queue) -> None:
    """Give a message that was taken to the target, or put it back."""
    try:
        _publish(held.message, target)
    except PreconditionFailed:
        queue.give_back(held)
        raise
    queue.batch.when_safe(partial(queue.settle, [held.position]))


def _publish(message: Message, target: Queue) -> None:
    if target.deleted:
        raise PreconditionFailed(f"{target} was deleted meanwhile")
    if message.ttl is not None:
        target.enrich()
    if not target.publish(message):
        raise PreconditionFailed(f"{target} refuses the message: it is full")
