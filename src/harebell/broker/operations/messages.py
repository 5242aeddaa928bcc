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

__all__ = ["Browsed", "Outcome", "browsing", "copying", "dropping", "examining", "getting", "moving", "moving_all"]

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
    found, size, seen = list[Held](), 0, 0
    if isinstance(queue, StreamQueue):
        seen = min(offset, queue.message_count)
    walk = _ready(queue, seen)
    try:
        for held in walk:
            if held is None:
                yield
                continue
            seen += 1
            if seen > offset and (selector is None or selector.wants(HeldFacts(held, queue.timers))):
                found.append(held)
                size += held.size
            if len(found) >= limit or size >= most_bytes or seen - offset >= MOST_EXAMINED:
                return Browsed(found, seen)
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
        while (held := walk.next()) is not None:
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
    held = yield from _taking(queue, position)
    if held is None:
        return False
    queue.settle([position])
    queue.acked(held)
    return True


def moving(queue: Queue, position: int, target: Queue) -> Steps[bool]:
    """Move a ready message to the end of another queue, as it is: address, headers and properties stay.

    It leaves its queue when it is safe in the other one. Returns False when it is not at that position any more. Raises
    PreconditionFailed when the target refuses it: it is in its old place then.
    """
    held = yield from _taking(queue, position)
    if held is None:
        return False
    _pass(queue, held, target)
    return True


def moving_all(queue: Queue, target: Queue, most: int | None = None) -> Steps[int]:
    """Move the ready messages that are there now, or the first `most`, to the end of another queue, as they are.

    Each leaves its queue when it is safe in the other one. Returns their number. Raises PreconditionFailed when the
    target refuses one: that one and those behind it are in their old places then. 540 for a stream's.
    """
    if not isinstance(queue, ClassicQueue):
        raise NotImplemented540(f"moving messages not supported by stream {queue}")
    getter, moved = _Getter(), 0
    left = queue.message_count if most is None else most
    while moved < left and not queue.deleted:
        held = queue.take(getter)
        if held is None:
            break
        _pass(queue, held, target)
        moved += 1
        if not moved % STEP:
            queue.batch.relieve()
            yield
    return moved


def _taking(queue: Queue, position: int) -> Steps[Held | None]:
    if not isinstance(queue, ClassicQueue):
        raise NotImplemented540(f"taking single messages not supported by stream {queue}")
    if queue.backlog is None:
        queue.enrich()
    while queue.backlog is None and not queue.deleted:
        yield
    while not queue.drop_expired():
        yield
    return None if queue.deleted else queue.take_at(position, _Getter())


def _pass(queue: Queue, held: Held, target: Queue) -> None:
    """Give a message that was taken to the target, or put it back."""
    try:
        _publish(held.message, target)
    except PreconditionFailed:
        queue.before_requeue()
        queue.requeue([(held.position, held)], failed=False, counted=False)
        raise
    queue.batch.when_safe(partial(queue.settle, [held.position]))
    queue.acked(held)


def _publish(message: Message, target: Queue) -> None:
    if target.deleted:
        raise PreconditionFailed(f"{target} was deleted meanwhile")
    if message.ttl is not None:
        target.enrich()
    if not target.publish(message):
        raise PreconditionFailed(f"{target} refuses the message: it is full")
