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
from harebell.broker.forwarding import Forwarding, route_message
from harebell.broker.message import Message
from harebell.broker.queues.contents.plain import Contents
from harebell.broker.slices import Work
from harebell.broker.store.queue_log.journal import Journal
from harebell.routing import cc_keys
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
    """Publish a message to the alternate exchange; it is dropped when it reaches no queue, or there is no exchange."""
    exchange, vhost = queue.settings.orphan_exchange, queue.vhost
    if exchange is None or not vhost.router.has_exchange(exchange):
        return
    properties = message.content.decode_properties()
    keys = message.keys or (message.address.routing_key, *cc_keys(properties.headers or {}))
    route = route_message(vhost.router, exchange, keys, properties, lambda: message.content.body, lenient=True)
    queues = vhost.receivers([name for name in route.queues if name != queue.name])
    if message.ttl is not None:
        for each in queues:
            each.enrich()
    queue.batch.letters.send(message, (*queues, *vhost.exchange_sinks(route, keys)))


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
