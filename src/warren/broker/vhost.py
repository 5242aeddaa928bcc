"""A virtual host: its routing table, its queues, and what happens to them.

It declares and deletes, and it moves dead letters. It knows connections only as owners of exclusive queues.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Final, cast

from warren.broker.events import INTERNAL_USER
from warren.broker.keeping import Delay, History, hashed_properties
from warren.broker.message import Address, MarkedMessage, Message
from warren.broker.policies import Policies
from warren.broker.queue import ClassicQueue, Queue
from warren.broker.statistics import ChannelCounts, ExchangeCounts
from warren.broker.store.log import SegmentLog
from warren.broker.stream import StreamQueue
from warren.broker.trace import Trace
from warren.errors import AccessRefused, InternalError, LocalProtocolError, NotFound
from warren.protocol.v091 import Content, FieldValue, Properties, Table, encode_content
from warren.routing import (
    EXCHANGE_TYPES,
    KEEPING_TYPES,
    Destination,
    Reason,
    Removed,
    Route,
    Router,
    cc_keys,
    dead_letter_headers,
    dead_letter_keys,
    without_cycles,
)
from warren.routing.equivalence import check_property
from warren.routing.router import RESERVED_PREFIX
from warren.routing.settings import check_redeclaration, queue_settings

if TYPE_CHECKING:
    from warren.broker.connection import Connection
    from warren.broker.node import Node
    from warren.broker.publisher import Sink

__all__ = ["VirtualHost"]

log = logging.getLogger("warren.broker.vhost")

DEAD_LETTER_FRAME_MAX: Final = 131_072
ANNOUNCED_FRAME_MAX: Final = 131_072


class VirtualHost:
    """`trace` is its firehose, None while that is off; `counts` are those of the channels that were."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self.router = Router(name, types=EXCHANGE_TYPES | KEEPING_TYPES)
        self.queues: dict[str, Queue] = {}
        self.policies = Policies(self)
        self.trace: Trace | None = None
        self.counts = ChannelCounts()
        self._exchange_counts: dict[str, ExchangeCounts] = {}
        self._histories: dict[str, History] = {}  # of recent-history exchanges

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
            current.renew_lease()
            self.node.churn.queue_declared += 1
            return current
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        settings = queue_settings(
            arguments, where, durable=durable, exclusive=exclusive, auto_delete=auto_delete, server_named=not name
        )
        name = name or f"amq.gen-{secrets.token_urlsafe(16)}"
        settings = self.policies.settings_for(name, settings.queue_type, arguments)
        queue: Queue
        if settings.queue_type == "stream":
            queue = StreamQueue(self, name, arguments, settings, self._make_log(where, name, arguments))
        else:
            queue = ClassicQueue(
                self,
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                owner=connection if exclusive else None,
                settings=settings,
            )
        if exclusive:
            connection.exclusive_queues.append(queue)
        self.add_queue(queue)
        self.node.churn.queue_declared += 1
        self.node.churn.queue_created += 1
        self.node.events.queue_created(queue, connection.user)
        return queue

    def _make_log(self, where: str, name: str, arguments: Table) -> SegmentLog:
        try:
            return self.node.streams.create(self.name, name, arguments)
        except OSError as error:
            raise InternalError(f"cannot make {where}: {error.strerror}") from error

    def add_queue(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self.router.add_queue(queue.name)
        queue.decorate(self.node.decorators)

    def _check_equal(
        self, queue: Queue, connection: Connection, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
    ) -> None:
        queue.check_access(connection)
        if exclusive != queue.exclusive:
            raise queue.locked()
        where = str(queue)
        check_property(where, "durable", durable, queue.durable)
        check_property(where, "auto_delete", auto_delete, queue.auto_delete)
        check_redeclaration(where, arguments, queue.arguments)
        queue_settings({"x-queue-type": queue.type, **arguments}, where)

    def delete_queue(self, queue: Queue, *, user: str = INTERNAL_USER) -> int:
        """Delete the queue, tell its consumers; how many ready messages went with it."""
        count = queue.message_count
        consumers = tuple(queue.consumers)
        queue.forget()
        for decorator in queue.decorators:
            decorator.deleted()
        del self.queues[queue.name]
        self._removed(self.router.remove_queue(queue.name), INTERNAL_USER)
        if queue.owner is not None and queue in queue.owner.exclusive_queues:
            queue.owner.exclusive_queues.remove(queue)
        for consumer in consumers:
            consumer.channel.cancelled_by_broker(consumer)
        if isinstance(queue, StreamQueue):
            self.node.streams.delete(queue.log)
        self.node.churn.queue_deleted += 1
        self.node.events.queue_deleted(queue, user)
        return count

    def reply_queue(self, name: str) -> Queue | None:
        """Where the default exchange brings an answer to `name`: a queue, or a channel's own address."""
        return self.queues.get(name) or self.node.reply_queues.get(name)

    # -- exchanges that keep -------------------------------------------------------------------------------------

    def bind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table, *, user: str = INTERNAL_USER
    ) -> None:
        """Bind, and give a queue that is newly bound to a recent-history exchange what the exchange remembers."""
        binding = self.router.bind(source, destination, binding_key, arguments)
        if binding is not None:
            self.node.events.binding("created", self.name, binding, user)
        history = self._histories.get(source)
        if binding is not None and history is not None and destination.kind == "queue":
            queue = self.queues[destination.name]
            for message in history.messages:
                if message.ttl is not None:
                    queue.enrich()
                queue.publish(message)

    def unbind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table, *, user: str = INTERNAL_USER
    ) -> None:
        """Take a binding away, and the auto_delete exchanges that this leaves unused."""
        self._removed(self.router.unbind(source, destination, binding_key, arguments), user)

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        passive: bool,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
        user: str = INTERNAL_USER,
    ) -> None:
        """The exchange, made or found equal, under the policies that apply to it."""
        if self.router.declare_exchange(
            name,
            kind,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        ):
            self.policies.apply_to_exchange(name)
            self.node.events.exchange_created(self.name, self.router.exchange(name), user)

    def delete_exchange(self, name: str, *, if_unused: bool, user: str = INTERNAL_USER) -> None:
        self._removed(self.router.delete_exchange(name, if_unused=if_unused), user)

    def _removed(self, removed: Removed, user: str) -> None:
        """Forget what is kept of exchanges that are gone, and tell of them and of the bindings that went."""
        for name in removed.exchanges:
            self._histories.pop(name, None)
            self._exchange_counts.pop(name, None)
            self.node.events.exchange_deleted(self.name, name, user)
        for binding in removed.bindings:
            self.node.events.binding("deleted", self.name, binding, user)

    def keepers(self, route: Route, keys: tuple[str, ...]) -> tuple[Delay | History, ...]:
        """Those who keep a message on its way: delays and histories."""
        kept: list[Delay | History] = [Delay(self, exchange, delay, keys) for exchange, delay in route.delayed]
        for name in route.remembered:
            history = self._histories.get(name) or History.of(self.router.exchange(name))
            if history is not None:
                self._histories[name] = history
                kept.append(history)
        return tuple(kept)

    # -- what watches --------------------------------------------------------------------------------------------

    def set_tracing(self, on: bool) -> None:
        """Switch the firehose. Publishers ask anew what their publications lead to."""
        self.trace = Trace(self) if on else None
        self.router.version += 1

    def exchange_counts(self, name: str) -> ExchangeCounts:
        counts = self._exchange_counts.get(name)
        if counts is None:
            counts = self._exchange_counts[name] = ExchangeCounts()
        return counts

    def count_publications(self, exchange: str, sinks: tuple[Sink, ...], count: int) -> None:
        """So many messages were published to the exchange and went to these sinks, each to all of them."""
        queues = [sink for sink in sinks if isinstance(sink, Queue)]
        for queue in queues:
            queue.counts.publish += count
        if self.router.has_exchange(exchange):  # else it was deleted meanwhile
            counts = self.exchange_counts(exchange)
            counts.publish_in += count
            counts.publish_out += count * len(queues)

    def announce(self, exchange: str, routing_key: str, properties: Properties, body: bytes = b"") -> None:
        """Publish a message of the broker's own. Nothing is encoded where nobody listens."""
        headers = properties.headers or {}
        route = self.router.route_keys(
            exchange, (routing_key,), lambda: headers, lambda: hashed_properties(properties)
        )
        sinks = (*(self.queues[name] for name in route.queues), *self.keepers(route, (routing_key,)))
        if not sinks:
            return
        try:
            address = Address(exchange, routing_key)
            frames = encode_content(1, properties, body, ANNOUNCED_FRAME_MAX)
        except LocalProtocolError as error:  # a key or headers that are too long: they hold those of a message
            log.warning("%s in vhost '%s': cannot say %s: %s", exchange, self.name, routing_key, error)
            return
        message = Message(address, Content(1, b"", frames, len(body)))
        for sink in sinks:
            sink.publish(message)

    # -- dead letters --------------------------------------------------------------------------------------------

    def dead_letter(self, queue: ClassicQueue, message: Message, reason: Reason) -> None:
        """Publish the message again through its queue's dead-letter exchange; dropped when that is missing.

        At most once, like RabbitMQ's classic queues: the new copy is in memory when this returns.
        """
        exchange = queue.settings.dead_letter_exchange
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
        routing_keys = dead_letter_keys(queue.settings.dead_letter_routing_key, keys)
        route = self.router.route_keys(
            exchange, routing_keys, lambda: after, lambda: hashed_properties(properties)
        )
        queues = [self.queues[name] for name in without_cycles(reason, after, route.queues)]
        keepers = self.keepers(route, routing_keys)
        if not queues and not keepers:
            return
        source = message.content
        try:
            frames = encode_content(source.channel, properties, source.body, DEAD_LETTER_FRAME_MAX)
        except LocalProtocolError as error:  # its headers fill a frame already: the letter goes on without
            log.warning("%s: dead letter without x-death: %s", queue, error)
            frames = source.frames
        content = Content(source.channel, source.method, frames, source.body_size)
        bcc = message.bcc if queue.settings.dead_letter_routing_key is None else ()
        letter = MarkedMessage(Address(exchange, routing_keys[0]), content, routing_keys, bcc, died=True)
        for sink in (*queues, *keepers):
            sink.publish(letter)
