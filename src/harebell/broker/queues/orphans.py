"""The orphans of a queue that is deleted: its messages go to its `x-orphan-exchange`.

In AMQP 0-10 that is the alternate exchange of queue.declare.

A message goes there as it is, with its own routing keys, and to any queue but the one that is deleted. Those that
consumers hold follow when they come back. So goes a message that a consumer rejects, where the exchange is that of dead
letters too. On disk a message is in its new queues before the old one is deleted: after a
kill in between it is in both.
"""

from __future__ import annotations

from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Forwarding, Sink, keys_of, route_message
from harebell.broker.letters import SHORT, Letter
from harebell.broker.message import Message
from harebell.broker.queues.contents.plain import Contents
from harebell.broker.slices import Work
from harebell.broker.store.queue_log.journal import Journal
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing.settings import QueueSettings

__all__ = ["reroute", "rerouting"]

MESSAGES_PER_STEP: Final = 16


class EndingQueue(Protocol):
    """The queue whose messages go on."""

    name: str
    settings: QueueSettings

    batch: Batch

    @property
    def vhost(self) -> Forwarding: ...


class FullQueue(EndingQueue, Protocol):
    """The same one, with the messages that are ready in it."""

    deleted: bool
    contents: Contents
    journal: Journal | None

    @property
    def message_count(self) -> int: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def retry_some(self) -> bool: ...


def reroute(queue: EndingQueue, message: Message) -> None:
    """Publish a message to the alternate exchange; it is dropped when it reaches no queue, or there is no exchange.

    At once, if its headers are short: a publisher that goes on must not be faster. Else in the line of letters.
    """
    if header_frame_size(message.content.frames) <= SHORT:
        queue.batch.letters.send(message, _sinks(queue, queue.settings, message))
    else:
        queue.batch.letters.put(_Orphan(queue, message))


class _Orphan(Letter):
    """A message on its way to the alternate exchange, in the line of letters: its route is found in its turn."""

    __slots__ = ("_queue", "_settings")

    def __init__(self, queue: EndingQueue, message: Message) -> None:
        super().__init__(message, None)
        self._queue, self._settings = queue, queue.settings

    def open(self) -> None:
        self.address(self.message, _sinks(self._queue, self._settings, self.message))


def _sinks(queue: EndingQueue, settings: QueueSettings, message: Message) -> tuple[Sink, ...]:
    """Where a message goes that was in this queue."""
    vhost, exchange, content = queue.vhost, settings.orphan_exchange, message.content
    if exchange is None or not vhost.router.has_exchange(exchange):
        return ()
    keys = keys_of(message)
    route = route_message(vhost.router, exchange, keys, content.decode_properties, lambda: content.body, lenient=True)
    queues = vhost.receivers([name for name in route.queues if name != queue.name])
    if message.ttl is not None:
        for each in queues:
            each.enrich()
    return (*queues, *vhost.exchange_sinks(route, keys))


def rerouting(queue: FullQueue) -> Work:
    """Publish all that is ready to the alternate exchange, in steps, until the queue is empty and all is on disk."""
    queue.hold()
    try:
        while queue.retry_some():
            yield
        left = queue.message_count
        while queue.message_count and not queue.deleted:
            came = queue.message_count - left
            for _ in range(max(MESSAGES_PER_STEP, 2 * came)):  # more than come in beside it: it ends
                held = queue.contents.pop()
                if held is None:
                    break
                reroute(queue, held.message)
            left = queue.message_count
            queue.batch.relieve()
            queue.batch.letters.hold_back()
            yield
            if not queue.message_count and queue.journal is not None:
                queue.batch.cover_earlier()
                queue.batch.slices.wait(queue.batch.when_safe)
                yield
    finally:
        queue.release()
