"""A virtual host: its routing table, its queues, and what happens to them.

It declares and deletes, and it moves dead letters. It knows connections only as owners of exclusive queues.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Final, cast

from warren.broker import arguments as args
from warren.broker.message import Address, MarkedMessage, Message
from warren.broker.queue import ClassicQueue, Queue
from warren.broker.stream import StreamQueue
from warren.errors import AccessRefused, InternalError, LocalProtocolError, NotFound, PreconditionFailed
from warren.protocol.v091 import Content, FieldValue, Table, encode_content
from warren.routing import Reason, Router, cc_keys, dead_letter_headers, dead_letter_keys, without_cycles
from warren.routing.equivalence import check_arguments, check_property
from warren.routing.router import RESERVED_PREFIX

if TYPE_CHECKING:
    from warren.broker.connection import Connection
    from warren.broker.node import Node

__all__ = ["VirtualHost"]

log = logging.getLogger("warren.broker.vhost")

DEAD_LETTER_FRAME_MAX: Final = 131_072


class VirtualHost:
    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self.router = Router(name)
        self.queues: dict[str, Queue] = {}

    # -- queues --------------------------------------------------------------------------------------------------

    def queue(self, name: str, connection: Connection | None = None) -> Queue:
        """The queue. NotFound when there is none; ResourceLocked when it is another connection's own."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        if connection is not None:
            queue.check_access(connection)
        return queue

    def declare_queue(
        self, connection: Connection, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
    ) -> Queue:
        """The queue, made or found equal. An empty name gets one of the broker's ("amq.gen-...")."""
        current = self.queues.get(name)
        where = f"queue '{name}' in vhost '{self.name}'"
        if current is not None:
            self._check_equal(current, connection, durable, exclusive, auto_delete, arguments)
            return current
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        kind = args.queue_type(arguments, where)
        args.check_queue_arguments(kind, arguments, where)
        queue: Queue
        if kind == "stream":
            queue = self._make_stream(name, where, durable, exclusive, auto_delete, arguments)
        else:
            queue = ClassicQueue(
                self,
                name or f"amq.gen-{secrets.token_urlsafe(16)}",
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                owner=connection if exclusive else None,
            )
        if exclusive:
            connection.exclusive_queues.append(queue)
        self.add_queue(queue)
        return queue

    def add_queue(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self.router.add_queue(queue.name)

    def _make_stream(
        self, name: str, where: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
    ) -> StreamQueue:
        if not name:
            raise PreconditionFailed("Cannot declare a server-named queue for type rabbit_stream_queue")
        for wrong, what in ((not durable, "non-durable"), (exclusive, "exclusive-owner"), (auto_delete, "auto-delete")):
            if wrong:
                raise PreconditionFailed(f"invalid property '{what}' for {where}")
        try:
            log = self.node.streams.create(self.name, name, arguments)
        except OSError as error:
            raise InternalError(f"cannot make {where}: {error.strerror}") from error
        return StreamQueue(self, name, arguments, log)

    def _check_equal(
        self, queue: Queue, connection: Connection, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
    ) -> None:
        queue.check_access(connection)
        if exclusive != queue.exclusive:
            raise queue.locked()
        where = str(queue)
        check_property(where, "durable", durable, queue.durable)
        check_property(where, "auto_delete", auto_delete, queue.auto_delete)
        check_arguments(where, arguments, queue.arguments, args.COMPARED_QUEUE_ARGUMENTS)
        if arguments.get("x-queue-type", "classic") != queue.type:
            check_arguments(where, arguments, queue.arguments, ("x-queue-type",))
        args.check_queue_arguments(queue.type, arguments, where)

    def delete_queue(self, queue: Queue) -> int:
        """Delete the queue, tell its consumers; how many ready messages went with it."""
        count = queue.message_count
        queue.deleted = True
        del self.queues[queue.name]
        self.router.remove_queue(queue.name)
        if queue.owner is not None and queue in queue.owner.exclusive_queues:
            queue.owner.exclusive_queues.remove(queue)
        for consumer in tuple(queue.consumers):
            consumer.channel.cancelled_by_broker(consumer)
        queue.consumers.clear()
        if isinstance(queue, StreamQueue):
            self.node.streams.delete(queue.log)
        return count

    # -- dead letters --------------------------------------------------------------------------------------------

    def dead_letter(self, queue: ClassicQueue, message: Message, reason: Reason) -> None:
        """Publish the message again through its queue's dead-letter exchange; dropped when that is missing.

        At most once, like RabbitMQ's classic queues: the new copy is in memory when this returns.
        """
        exchange = queue.dead_letter_exchange
        if exchange is None or not self.router.has_exchange(exchange):
            return
        properties = message.content.decode_properties()
        headers = properties.headers or {}
        keys = message.keys or (message.address.routing_key, *cc_keys(headers))
        after = dead_letter_headers(
            headers,
            queue=queue.name,
            reason=reason,
            exchange=message.address.exchange,
            routing_keys=keys,
            time=int(time.time()),
            expiration=properties.expiration,
            bcc=message.bcc,
            died_before=message.died,
        )
        properties.headers = cast("dict[str, FieldValue]", after)
        properties.expiration = None
        routing_keys = dead_letter_keys(queue.dead_letter_routing_key, keys)
        route = self.router.route_keys(exchange, routing_keys, lambda: after)
        names = without_cycles(reason, after, route.queues)
        if not names:
            return
        source = message.content
        try:
            frames = encode_content(source.channel, properties, source.body, DEAD_LETTER_FRAME_MAX)
        except LocalProtocolError as error:  # its headers fill a frame already: the letter goes on without
            log.warning("%s: dead letter without x-death: %s", queue, error)
            frames = source.frames
        content = Content(source.channel, source.method, frames, source.body_size)
        bcc = message.bcc if queue.dead_letter_routing_key is None else ()
        letter = MarkedMessage(Address(exchange, routing_keys[0]), content, routing_keys, bcc, died=True)
        for name in names:
            self.queues[name].publish(letter)
