"""Declarations, bindings, purges and deletions of exchanges and queues on a channel, with RabbitMQ's error texts.

A handler is found by the type of the method (`HANDLERS`, at the end), as the channel's own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

from harebell.broker.audit import performed
from harebell.broker.connections.consume_arguments import refuse_selector
from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.broker.v091.direct_reply_to import PSEUDO_QUEUE
from harebell.broker.v091.link import Link
from harebell.errors import NotFound, PreconditionFailed
from harebell.protocol.v091 import methods as m
from harebell.routing import to_exchange, to_queue
from harebell.routing.naming import generated_queue_name
from harebell.routing.steps import Steps, complete

__all__ = ["HANDLERS", "Topology"]


class TopologyChannel(Protocol):
    """The channel on which the methods arrive."""

    number: int

    @property
    def connection(self) -> Link: ...
    def reply(self, method: m.Method) -> None: ...


class Topology:
    """The declarations of one channel. An empty queue name means its last declared queue (specification 1.7.2.3)."""

    def __init__(self, channel: TopologyChannel) -> None:
        self._channel = channel
        self._connection = channel.connection
        self._vhost = channel.connection.vhost
        self._last_queue = ""

    def _work(self, method: m.Method, work: Work) -> None:
        """Do long work in the client's name."""
        events, origin = self._connection.node.events, self._connection.origin
        named = performed(events, origin, work, self._vhost.name, method)
        self._connection.work(self._channel.number, method, named)

    def _exchange_declare(self, method: m.ExchangeDeclare) -> None:
        name = _stripped(method.exchange)
        if not method.passive:
            self._connection.access.declare_exchange(name, method.type, method.arguments)
        self._vhost.declare_exchange(
            name,
            method.type,
            passive=method.passive,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
            user=self._connection.user,
        )
        if not method.no_wait:
            self._channel.reply(m.ExchangeDeclareOk())

    def _exchange_delete(self, method: m.ExchangeDelete) -> None:
        name = _stripped(method.exchange)
        self._connection.access.delete_exchange(name)
        if method.if_unused:
            self._vhost.check_unused(name)
        self._work(method, self._delete_exchange(name, method.no_wait))

    def _delete_exchange(self, name: str, no_wait: bool) -> Work:
        yield from self._vhost.deleting_exchange(name, user=self._connection.user)
        if not no_wait:
            self._channel.reply(m.ExchangeDeleteOk())

    def _exchange_bind(self, method: m.ExchangeBind) -> None:
        source, destination = _stripped(method.source), to_exchange(_stripped(method.destination))
        refuse_selector(method.arguments, "a binding")
        self._connection.access.bind("bind", source, destination, method.routing_key)
        self._vhost.bind(source, destination, method.routing_key, method.arguments, user=self._connection.user)
        if not method.no_wait:
            self._channel.reply(m.ExchangeBindOk())

    def _exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        source, destination = _stripped(method.source), to_exchange(_stripped(method.destination))
        self._connection.access.bind("unbind", source, destination, method.routing_key)
        self._vhost.unbind(source, destination, method.routing_key, method.arguments, user=self._connection.user)
        if not method.no_wait:
            self._channel.reply(m.ExchangeUnbindOk())

    # -- queues --------------------------------------------------------------------------------------------------

    def _queue_declare(self, method: m.QueueDeclare) -> None:
        queue: Queue
        name = _stripped(method.queue)
        if name.startswith(PSEUDO_QUEUE):
            self._check_reply_address(name, method.no_wait)
            return
        if method.passive:
            queue = self._vhost.queue(name, self._connection)
            queue.renew_lease()
        else:
            server_named = not name
            name = name or generated_queue_name(secrets.token_bytes(16), method.arguments)
            new = name not in self._vhost.queues
            self._connection.access.declare_queue(name, method.arguments, new=new, server_named=server_named)
            queue = self._vhost.declare_queue(
                self._connection,
                name,
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                arguments=method.arguments,
                server_named=server_named,
            )
        self._last_queue = queue.name
        if not method.no_wait:
            self._channel.reply(m.QueueDeclareOk(queue.name, queue.message_count, len(queue.consumers)))

    def _check_reply_address(self, name: str, no_wait: bool) -> None:
        """Answer whether a channel waits for replies at a declared address (as RabbitMQ, passive or not)."""
        if name != PSEUDO_QUEUE and name not in self._vhost.reply_queues:
            raise NotFound(f"no queue '{name}' in vhost '{self._vhost.name}'")
        self._last_queue = name
        if not no_wait:
            self._channel.reply(m.QueueDeclareOk(name, 0, 1))

    def _queue_bind(self, method: m.QueueBind) -> None:
        source, name, key = self._binding(method)
        refuse_selector(method.arguments, "a binding")
        self._connection.access.bind("bind", source, to_queue(name), key)
        queue, router = self._vhost.queues.get(name), self._vhost.router
        if queue is not None and router.has_exchange(source):
            queue.check_access(self._connection)  # a missing object is reported first, as in RabbitMQ
        work = self._bind(source, name, key, method)
        if self._vhost.is_long_to_bind(source):
            self._work(method, work)
        else:
            complete(work)

    def _bind(self, source: str, queue: str, key: str, method: m.QueueBind) -> Steps[None]:
        yield from self._vhost.binding(source, to_queue(queue), key, method.arguments, user=self._connection.user)
        if not method.no_wait:
            self._channel.reply(m.QueueBindOk())

    def _queue_unbind(self, method: m.QueueUnbind) -> None:
        source, name, key = self._binding(method)
        self._connection.access.bind("unbind", source, to_queue(name), key)
        queue = self._vhost.queues.get(name)
        if queue is not None and self._vhost.router.binding(source, to_queue(name), key, method.arguments) is not None:
            queue.check_access(self._connection)
        self._vhost.unbind(source, to_queue(name), key, method.arguments, user=self._connection.user)
        self._channel.reply(m.QueueUnbindOk())

    def _queue_purge(self, method: m.QueuePurge) -> None:
        queue = self.readable_queue("purge", method.queue)
        self._work(method, self._purge(queue, method.no_wait))

    def _purge(self, queue: Queue, no_wait: bool) -> Work:
        count = yield from queue.purging()
        self._connection.node.events.act(self._vhost.name, "queue", queue.name, "purged")
        if not no_wait:
            self._channel.reply(m.QueuePurgeOk(count))

    def _queue_delete(self, method: m.QueueDelete) -> None:
        is_stream = False

        def answer(count: int) -> None:
            if not method.no_wait:
                self._channel.reply(m.QueueDeleteOk(0 if is_stream else count))  # as RabbitMQ answers

        name = self._named(_stripped(method.queue))
        self._connection.access.delete_queue(name)
        if name in self._vhost.queues:
            queue = self._vhost.queue(name, self._connection)
            is_stream = queue.type == "stream"
            if method.if_empty and not queue.is_empty:
                raise PreconditionFailed(f"{queue} not empty")
            if method.if_unused and queue.consumers:
                raise PreconditionFailed(f"{queue} in use")
            self._work(method, self._vhost.deleting_queue(queue, answer, user=self._connection.user))
        else:
            answer(0)

    def _named(self, name: str) -> str:
        """The name; an empty one means the queue last declared on this channel (specification 1.7.2.3)."""
        if not name and not self._last_queue:
            raise NotFound("no previously declared queue")
        return name or self._last_queue

    def readable_queue(self, act: Literal["purge", "get", "consume"], name: str) -> Queue:
        """The queue for the act. Raises AccessRefused, NotFound or ResourceLocked."""
        name = self._named(name)
        self._connection.access.read_queue(act, name)
        return self._vhost.queue(name, self._connection)

    def _binding(self, method: m.QueueBind | m.QueueUnbind) -> tuple[str, str, str]:
        """Exchange, queue and key of a binding; if queue and key are empty, the queue's name is the key too."""
        name = self._named(_stripped(method.queue))
        key = method.routing_key if method.queue or method.routing_key else name
        return _stripped(method.exchange), name, key


def _stripped(name: str) -> str:
    """The name without carriage returns and line feeds, as RabbitMQ takes it to declare, bind and delete."""
    return name.replace("\r", "").replace("\n", "")


Handler: TypeAlias = "Callable[[Topology, Any], None]"  # each takes the method type that is its key in the table

HANDLERS: Final[dict[type[m.Method], Handler]] = {
    m.ExchangeDeclare: Topology._exchange_declare,
    m.ExchangeDelete: Topology._exchange_delete,
    m.ExchangeBind: Topology._exchange_bind,
    m.ExchangeUnbind: Topology._exchange_unbind,
    m.QueueDeclare: Topology._queue_declare,
    m.QueueBind: Topology._queue_bind,
    m.QueueUnbind: Topology._queue_unbind,
    m.QueuePurge: Topology._queue_purge,
    m.QueueDelete: Topology._queue_delete,
}
