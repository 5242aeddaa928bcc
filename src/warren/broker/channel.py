"""A channel as the broker sees it: one method a handler, answers in RabbitMQ's words.

Handlers are found by the type of the method (`HANDLERS`, at the end). They raise AmqpError to refuse; the connection
turns that into channel.close or connection.close. Publishing is `publisher`'s, what is unacknowledged `unacked`'s.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from warren.broker.arguments import check_consume_arguments
from warren.broker.consumer import UNLIMITED, Consumer
from warren.broker.publisher import REPLY_TO, Publisher
from warren.broker.unacked import Unacked
from warren.errors import (
    CommandInvalid,
    NotAllowed,
    NotFound,
    NotImplemented as NotImplemented540,
    PreconditionFailed,
)
from warren.protocol.v091 import methods as m
from warren.routing import to_exchange, to_queue

if TYPE_CHECKING:
    from warren.broker.connection import Connection
    from warren.broker.queue import Queue

__all__ = ["Channel"]


class Channel:
    """One open channel of one connection.

    `tag` is the last delivery tag, `credit` what basic.qos(global=true) leaves of the channel's window.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.vhost = connection.vhost
        self.number = number
        self.open = True
        self.tag = 0
        self.credit = UNLIMITED
        self.consumers: dict[str, Consumer] = {}
        self.unacked = Unacked(self)
        self.publisher = Publisher(self)
        self._prefetch = 0  # of consumers to come
        self._window = UNLIMITED
        self._last_queue = ""

    def handle(self, method: m.Method) -> None:
        """Do what the method asks. AmqpError when it is refused."""
        handler = HANDLERS.get(type(method))
        if handler is None:
            raise NotImplemented540(f"{method.NAME}")
        handler(self, method)

    def reply(self, method: m.Method) -> None:
        self.connection.send(self.number, method)

    def close(self) -> None:
        """Let go of everything the channel holds: consumers first, then what they had not acknowledged."""
        self.open = False
        for consumer in tuple(self.consumers.values()):
            self._remove(consumer)
        self.unacked.requeue_all()

    def cancelled_by_broker(self, consumer: Consumer) -> None:
        """The consumer's queue is gone: tell the client, if it said that it understands."""
        consumer.cancelled = True
        self.consumers.pop(consumer.tag, None)
        if self.open and self.connection.capability("consumer_cancel_notify"):
            self.reply(m.BasicCancel(consumer.tag, no_wait=True))

    # -- channel -------------------------------------------------------------------------------------------------

    def _flow(self, method: m.ChannelFlow) -> None:
        if not method.active:
            raise NotImplemented540("active=false")
        self.reply(m.ChannelFlowOk(active=True))

    def _unasked(self, method: m.ChannelFlowOk | m.BasicCancelOk) -> None:
        """An answer to what this broker never asks: no channel.flow is sent, and basic.cancel with no_wait."""
        raise CommandInvalid("unimplemented method")

    # -- exchanges -----------------------------------------------------------------------------------------------

    def _exchange_declare(self, method: m.ExchangeDeclare) -> None:
        self.vhost.router.declare_exchange(
            _stripped(method.exchange),
            method.type,
            passive=method.passive,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
        if not method.no_wait:
            self.reply(m.ExchangeDeclareOk())

    def _exchange_delete(self, method: m.ExchangeDelete) -> None:
        self.vhost.router.delete_exchange(_stripped(method.exchange), if_unused=method.if_unused)
        if not method.no_wait:
            self.reply(m.ExchangeDeleteOk())

    def _exchange_bind(self, method: m.ExchangeBind) -> None:
        source, destination = _stripped(method.source), to_exchange(_stripped(method.destination))
        self.vhost.router.bind(source, destination, method.routing_key, method.arguments)
        if not method.no_wait:
            self.reply(m.ExchangeBindOk())

    def _exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        source, destination = _stripped(method.source), to_exchange(_stripped(method.destination))
        self.vhost.router.unbind(source, destination, method.routing_key, method.arguments)
        if not method.no_wait:
            self.reply(m.ExchangeUnbindOk())

    # -- queues --------------------------------------------------------------------------------------------------

    def _queue_declare(self, method: m.QueueDeclare) -> None:
        if method.passive:
            queue = self.vhost.queue(_stripped(method.queue), self.connection)
        else:
            queue = self.vhost.declare_queue(
                self.connection,
                _stripped(method.queue),
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                arguments=method.arguments,
            )
        self._last_queue = queue.name
        if not method.no_wait:
            self.reply(m.QueueDeclareOk(queue.name, queue.message_count, len(queue.consumers)))

    def _queue_bind(self, method: m.QueueBind) -> None:
        source, name, key = self._binding(method)
        queue, router = self.vhost.queues.get(name), self.vhost.router
        if queue is not None and source and router.has_exchange(source):
            queue.check_access(self.connection)  # what is missing is said first, as RabbitMQ does
        router.bind(source, to_queue(name), key, method.arguments)
        if not method.no_wait:
            self.reply(m.QueueBindOk())

    def _queue_unbind(self, method: m.QueueUnbind) -> None:
        source, name, key = self._binding(method)
        queue, router = self.vhost.queues.get(name), self.vhost.router
        if queue is not None and source and router.has_exchange(source):
            queue.check_access(self.connection)
        router.unbind(source, to_queue(name), key, method.arguments)
        self.reply(m.QueueUnbindOk())

    def _queue_purge(self, method: m.QueuePurge) -> None:
        count = self._queue(method.queue).purge()
        if not method.no_wait:
            self.reply(m.QueuePurgeOk(count))

    def _queue_delete(self, method: m.QueueDelete) -> None:
        count = 0
        name = self._named(_stripped(method.queue))
        if name in self.vhost.queues:
            queue = self.vhost.queue(name, self.connection)
            if method.if_empty and queue.message_count:
                raise PreconditionFailed(f"{queue} not empty")
            if method.if_unused and queue.consumers:
                raise PreconditionFailed(f"{queue} in use")
            count = self.vhost.delete_queue(queue)
        if not method.no_wait:
            self.reply(m.QueueDeleteOk(count))

    def _named(self, name: str) -> str:
        """The name; an empty one means the queue last declared on this channel (specification 1.7.2.3)."""
        if not name and not self._last_queue:
            raise NotFound("no previously declared queue")
        return name or self._last_queue

    def _queue(self, name: str) -> Queue:
        return self.vhost.queue(self._named(name), self.connection)

    def _binding(self, method: m.QueueBind | m.QueueUnbind) -> tuple[str, str, str]:
        """Exchange, queue and key of a binding; where the latter are empty, the queue's name is the key too."""
        name = self._named(_stripped(method.queue))
        key = method.routing_key if method.queue or method.routing_key else name
        return _stripped(method.exchange), name, key

    # -- consuming -----------------------------------------------------------------------------------------------

    def _qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise NotImplemented540(f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            window = method.prefetch_count or UNLIMITED
            self.credit += window - self._window
            self._window = window
            for consumer in self.consumers.values():
                consumer.queue.schedule()
        else:
            self._prefetch = method.prefetch_count
        self.reply(m.BasicQosOk())

    def _consume(self, method: m.BasicConsume) -> None:
        if method.queue == REPLY_TO:
            raise NotImplemented540("direct reply-to")
        if method.consumer_tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{method.consumer_tag}'")
        queue = self._queue(method.queue)
        check_consume_arguments(method.arguments, queue.type, str(queue))
        queue.check_consume(method.no_ack, self._prefetch, method.arguments)
        consumer = Consumer(
            self,
            queue,
            method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}",
            no_ack=method.no_ack,
            exclusive=method.exclusive,
            prefetch=self._prefetch,
            arguments=method.arguments,
        )
        queue.add_consumer(consumer)
        self.consumers[consumer.tag] = consumer
        if not method.no_wait:
            self.reply(m.BasicConsumeOk(consumer.tag))

    def _cancel(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.get(method.consumer_tag)
        if consumer is not None:
            self._remove(consumer)
        if not method.no_wait:
            self.reply(m.BasicCancelOk(method.consumer_tag))

    def _remove(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        self.consumers.pop(consumer.tag, None)
        consumer.queue.remove_consumer(consumer)

    def _get(self, method: m.BasicGet) -> None:
        queue = self._queue(method.queue)
        taken = queue.take()
        if taken is None:
            self.reply(m.BasicGetEmpty())
            return
        position, message, redelivered = taken
        self.tag += 1
        if not method.no_ack:
            self.unacked.entries[self.tag] = (queue, None, position, message)
        address, content = message.address, message.content
        self.connection.send(
            self.number,
            m.BasicGetOk(self.tag, redelivered, address.exchange, address.routing_key, queue.message_count),
            content.frames_for(self.number, self.connection.engine.frame_max),
        )

    def _ack(self, method: m.BasicAck) -> None:
        self.unacked.ack(method.delivery_tag, method.multiple)

    def _nack(self, method: m.BasicNack) -> None:
        self.unacked.reject(method.delivery_tag, method.multiple, method.requeue)

    def _reject(self, method: m.BasicReject) -> None:
        self.unacked.reject(method.delivery_tag, False, method.requeue)

    def _recover(self, method: m.BasicRecover) -> None:
        self._recover_async(method)
        self.reply(m.BasicRecoverOk())

    def _recover_async(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        self.unacked.recover(method.requeue)

    # -- confirms ------------------------------------------------------------------------------------------------

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        self.publisher.confirming = True
        if not method.no_wait:
            self.reply(m.ConfirmSelectOk())


def _stripped(name: str) -> str:
    """As RabbitMQ takes names of what is declared, bound and deleted: without carriage returns and line feeds."""
    return name.replace("\r", "").replace("\n", "")


_M = TypeVar("_M", bound=m.Method)
Handler: TypeAlias = "Callable[[Channel, Any], None]"  # each takes the method type it stands behind in the table

HANDLERS: Final[dict[type[m.Method], Handler]] = {
    m.ChannelFlow: Channel._flow,
    m.ChannelFlowOk: Channel._unasked,
    m.ExchangeDeclare: Channel._exchange_declare,
    m.ExchangeDelete: Channel._exchange_delete,
    m.ExchangeBind: Channel._exchange_bind,
    m.ExchangeUnbind: Channel._exchange_unbind,
    m.QueueDeclare: Channel._queue_declare,
    m.QueueBind: Channel._queue_bind,
    m.QueueUnbind: Channel._queue_unbind,
    m.QueuePurge: Channel._queue_purge,
    m.QueueDelete: Channel._queue_delete,
    m.BasicQos: Channel._qos,
    m.BasicConsume: Channel._consume,
    m.BasicCancel: Channel._cancel,
    m.BasicCancelOk: Channel._unasked,
    m.BasicGet: Channel._get,
    m.BasicAck: Channel._ack,
    m.BasicNack: Channel._nack,
    m.BasicReject: Channel._reject,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover_async,
    m.ConfirmSelect: Channel._confirm_select,
}
