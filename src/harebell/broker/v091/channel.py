"""A channel as the broker sees it: one method a handler, answers in RabbitMQ's words.

Handlers are found by the type of the method (`HANDLERS`, at the end). They raise AmqpError to refuse; the connection
turns that into channel.close or connection.close. Publishing is `publisher`'s, what is unacknowledged `unacked`'s.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from harebell.broker.message import Message
from harebell.broker.operations.limits import check_consumers
from harebell.broker.operations.statistics import ChannelCounts
from harebell.broker.queues.browse import View
from harebell.broker.queues.classic import ClassicQueue, Queue
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.consume_arguments import BROWSE, check_consume_arguments
from harebell.broker.v091.consumer import UNLIMITED, Consumer
from harebell.broker.v091.direct_reply_to import PSEUDO_QUEUE, ReplyQueue
from harebell.broker.v091.leases import LeaseRequest, Leases
from harebell.broker.v091.publisher import Publisher, Sink, Target
from harebell.broker.v091.unacked import Entry, Unacked, check_negative
from harebell.errors import (
    ChannelMisused,
    CommandInvalid,
    NotAllowed,
    NotFound,
    NotImplemented as NotImplemented540,
    PreconditionFailed,
)
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.deliver import encode_get_ok
from harebell.routing import to_exchange, to_queue
from harebell.routing.naming import generated_queue_name

if TYPE_CHECKING:
    from harebell.broker.v091.connection import Connection

__all__ = ["Channel"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """Deliveries that a client acknowledged (`positive`), or rejected, with or without putting them back.

    `failed` tells basic.reject from basic.nack, for delayed retry.
    """

    taken: dict[int, Entry]
    positive: bool = True
    requeue: bool = False
    failed: bool = False


class Channel:
    """One open channel of one connection.

    `tag` is the last delivery tag, `credit` what basic.qos(global=true) leaves of the channel's window.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.vhost = connection.vhost
        self.access = connection.access
        self.number = number
        self.pid = connection.node.new_pid()
        self.counts = ChannelCounts()
        self.open = True
        self.flowing = True  # False after channel.flow(active=false): no deliveries
        self.tag = 0
        self.credit = UNLIMITED
        self.consumers: dict[str, Consumer] = {}
        self.unacked = Unacked(self)
        self.publisher = Publisher(self)
        self.replies: ReplyQueue | None = None  # this channel's address for direct replies
        self._prefetch = 0  # of consumers to come
        self._marks: deque[tuple[int, int]] = deque()  # (time, last delivery tag by then), oldest first
        self._leases = Leases()
        self._settlements: list[Settlement] = []  # of the transaction
        self._commits = Confirms(self)  # the line in which tx.commit-ok waits for the disk
        self._window = UNLIMITED
        self._last_queue = ""

    def handle(self, method: m.Method) -> None:
        """Do what the method asks. AmqpError when it is refused."""
        handler = HANDLERS.get(type(method))
        if handler is None:
            raise NotImplemented540(f"{method.NAME}")
        if self._commits.awaited:  # its answer would overtake commit-ok; RabbitMQ 3.10 answers 504, too
            raise ChannelMisused("unexpected command while processing 'tx.commit'")
        handler(self, method)

    def reply(self, method: m.Method) -> None:
        self.connection.send(self.number, method)

    def confirm_what_is_safe(self) -> None:
        """Send the confirms that nothing holds up: the channel is about to be closed by an error."""
        if self.publisher.confirms is not None:
            self.publisher.confirms.close()

    def close(self) -> None:
        """Let go of everything the channel holds: consumers first, then what they had not acknowledged."""
        self.open = False
        for consumer in tuple(self.consumers.values()):
            self._remove(consumer)
        self._restore_settlements()
        self.unacked.requeue_all(failed=True)
        self.publisher.settle()
        self.vhost.counts.add(self.counts)
        self.connection.node.churn.channel_closed += 1
        self.connection.node.events.channel_closed(self)

    def settle(self) -> None:
        """Bring `counts` up to date."""
        self.publisher.settle()
        for consumer in self.consumers.values():
            consumer.settle()

    def cancelled_by_broker(self, consumer: Consumer) -> None:
        """The consumer's queue is gone: tell the client, if it said that it understands."""
        self._forget(consumer)
        if self.open and self.connection.capability("consumer_cancel_notify"):
            self.reply(m.BasicCancel(consumer.tag, no_wait=True))

    def lease(self, asked: LeaseRequest) -> list[int]:
        """Give deliveries more time; their tags. PreconditionFailed for a tag that is not outstanding."""
        timers = self.vhost.node.timers
        tags = self.unacked.tags(asked.delivery_tag, asked.multiple)
        for tag in tags:
            self._leases.grant(tag, timers.now(), asked.timeout)
        return tags

    def give_back_overdue(self, now: int, default: int, least: int) -> None:
        """Return what was not acknowledged within its queue's consumer timeout, and cancel who had it.

        RabbitMQ 4.3 does so; before, and here for clients that do not understand basic.cancel, the channel is closed.
        Called now and then: `marks` tell which tags had been delivered at earlier calls, so a delivery costs nothing.
        `default` is the timeout of queues without one of their own, `least` the smallest there is.
        """
        marks, leases = self._marks, self._leases
        overdue = leases.overdue(now, self.unacked.entries)  # delivery tag -> the time that it had
        oldest = next((tag for tag in self.unacked.entries if tag not in leases), self.tag + 1)
        while marks and marks[0][1] < oldest:
            marks.popleft()
        for tag, entry in self.unacked.entries.items():
            if tag in leases:
                continue
            delivered = next((at for at, last in marks if last >= tag), now)
            if now - delivered < least:
                break
            timeout = entry[0].settings.consumer_timeout or default
            if now - delivered >= timeout:
                overdue[tag] = timeout
        if self.tag and (not marks or marks[-1][1] < self.tag):
            marks.append((now, self.tag))
        if not overdue:
            return
        if not self.connection.capability("consumer_cancel_notify"):
            timeout = next(iter(overdue.values()))
            raise PreconditionFailed(
                f"delivery acknowledgement on channel {self.number} timed out. Timeout value used: {timeout} ms. "
                "This timeout value can be configured, see consumers doc guide to learn more"
            )
        for tag in sorted(overdue):
            taken = self.unacked.take(tag, multiple=False)
            consumer = taken[tag][1]
            self.unacked.reject(taken, requeue=True, failed=True)
            if consumer is not None and not consumer.cancelled:
                consumer.queue.remove_consumer(consumer)
                self.cancelled_by_broker(consumer)

    # -- channel -------------------------------------------------------------------------------------------------

    def _flow(self, method: m.ChannelFlow) -> None:
        self.flowing = method.active
        self.reply(m.ChannelFlowOk(method.active))
        for consumer in self.consumers.values():
            consumer.queue.schedule()

    def _unasked(self, method: m.ChannelFlowOk | m.BasicCancelOk) -> None:
        """An answer to what this broker never asks: no channel.flow is sent, and basic.cancel with no_wait."""
        raise CommandInvalid("unimplemented method")

    def _access_request(self, method: m.AccessRequest) -> None:
        """Realms are of AMQP 0-8; every ticket is good (RabbitMQ answers 1)."""
        self.reply(m.AccessRequestOk(1))

    # -- exchanges -----------------------------------------------------------------------------------------------

    def _exchange_declare(self, method: m.ExchangeDeclare) -> None:
        name = _stripped(method.exchange)
        if not method.passive:
            self.access.declare_exchange(name, method.type, method.arguments)
        self.vhost.declare_exchange(
            name,
            method.type,
            passive=method.passive,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
            user=self.connection.user,
        )
        if not method.no_wait:
            self.reply(m.ExchangeDeclareOk())

    def _exchange_delete(self, method: m.ExchangeDelete) -> None:
        name = _stripped(method.exchange)
        self.access.delete_exchange(name)
        self.vhost.delete_exchange(name, if_unused=method.if_unused, user=self.connection.user)
        if not method.no_wait:
            self.reply(m.ExchangeDeleteOk())

    def _exchange_bind(self, method: m.ExchangeBind) -> None:
        source, destination = _stripped(method.source), to_exchange(_stripped(method.destination))
        self.access.bind(source, destination, method.routing_key)
        self.vhost.bind(source, destination, method.routing_key, method.arguments, user=self.connection.user)
        if not method.no_wait:
            self.reply(m.ExchangeBindOk())

    def _exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        source, destination = _stripped(method.source), to_exchange(_stripped(method.destination))
        self.access.bind(source, destination, method.routing_key)
        self.vhost.unbind(source, destination, method.routing_key, method.arguments, user=self.connection.user)
        if not method.no_wait:
            self.reply(m.ExchangeUnbindOk())

    # -- queues --------------------------------------------------------------------------------------------------

    def _queue_declare(self, method: m.QueueDeclare) -> None:
        queue: Queue
        name = _stripped(method.queue)
        if name.startswith(PSEUDO_QUEUE):
            self._check_reply_address(name, method.no_wait)
            return
        if method.passive:
            queue = self.vhost.queue(name, self.connection)
            queue.renew_lease()
        else:
            server_named = not name
            name = name or generated_queue_name(secrets.token_bytes(16), method.arguments)
            new = name not in self.vhost.queues
            self.access.declare_queue(name, method.arguments, new=new, server_named=server_named)
            queue = self.vhost.declare_queue(
                self.connection,
                name,
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                arguments=method.arguments,
                server_named=server_named,
            )
        self._last_queue = queue.name
        if not method.no_wait:
            self.reply(m.QueueDeclareOk(queue.name, queue.message_count, len(queue.consumers)))

    def _check_reply_address(self, name: str, no_wait: bool) -> None:
        """A declaration asks whether somebody waits for replies there (RabbitMQ answers so, passive or not)."""
        if name != PSEUDO_QUEUE and name not in self.vhost.reply_queues:
            raise NotFound(f"no queue '{name}' in vhost '{self.vhost.name}'")
        self._last_queue = name
        if not no_wait:
            self.reply(m.QueueDeclareOk(name, 0, 1))

    def _queue_bind(self, method: m.QueueBind) -> None:
        source, name, key = self._binding(method)
        self.access.bind(source, to_queue(name), key)
        queue, router = self.vhost.queues.get(name), self.vhost.router
        if queue is not None and router.has_exchange(source):
            queue.check_access(self.connection)  # what is missing is said first, as RabbitMQ does
        self.vhost.bind(source, to_queue(name), key, method.arguments, user=self.connection.user)
        if not method.no_wait:
            self.reply(m.QueueBindOk())

    def _queue_unbind(self, method: m.QueueUnbind) -> None:
        source, name, key = self._binding(method)
        self.access.bind(source, to_queue(name), key)
        queue, router = self.vhost.queues.get(name), self.vhost.router
        if queue is not None and router.has_exchange(source):
            queue.check_access(self.connection)
        self.vhost.unbind(source, to_queue(name), key, method.arguments, user=self.connection.user)
        self.reply(m.QueueUnbindOk())

    def _queue_purge(self, method: m.QueuePurge) -> None:
        count = self._readable_queue(method.queue).purge()
        if not method.no_wait:
            self.reply(m.QueuePurgeOk(count))

    def _queue_delete(self, method: m.QueueDelete) -> None:
        def answer(count: int) -> None:
            if not method.no_wait:
                self.reply(m.QueueDeleteOk(count))

        name = self._named(_stripped(method.queue))
        self.access.configure("queue", name)
        if name in self.vhost.queues:
            queue = self.vhost.queue(name, self.connection)
            if method.if_empty and (queue.message_count or queue.delayed_count):
                raise PreconditionFailed(f"{queue} not empty")
            if method.if_unused and queue.consumers:
                raise PreconditionFailed(f"{queue} in use")
            self.vhost.delete_queue(queue, answer, user=self.connection.user)
        else:
            answer(0)

    def _named(self, name: str) -> str:
        """The name; an empty one means the queue last declared on this channel (specification 1.7.2.3)."""
        if not name and not self._last_queue:
            raise NotFound("no previously declared queue")
        return name or self._last_queue

    def _readable_queue(self, name: str) -> Queue:
        name = self._named(name)
        self.access.read("queue", name)
        return self.vhost.queue(name, self.connection)

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
            self._set_window(method.prefetch_count or UNLIMITED)
        else:
            self._set_window(UNLIMITED)  # RabbitMQ's rule: both hold when the channel's is asked for last
            self._prefetch = method.prefetch_count
            for consumer in self.consumers.values():
                consumer.set_prefetch(method.prefetch_count)
        self.reply(m.BasicQosOk())

    def _set_window(self, window: int) -> None:
        if window != self._window:
            self.credit += window - self._window
            self._window = window
            for consumer in self.consumers.values():
                consumer.queue.schedule()

    def _consume(self, method: m.BasicConsume) -> None:
        if method.consumer_tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{method.consumer_tag}'")
        check_consumers(self)
        if method.queue == PSEUDO_QUEUE:
            consumer = self._consume_replies(method)
        else:
            queue = self._readable_queue(method.queue)
            check_consume_arguments(method.arguments, queue.type, str(queue), exclusive=method.exclusive)
            if method.arguments.get(BROWSE) and isinstance(queue, ClassicQueue):
                queue = View(queue)
            queue.check_consume(method.no_ack, self._prefetch)
            consumer = self._make_consumer(method, queue)
            queue.add_consumer(consumer)
            self.connection.node.events.consumer_created(consumer)
        self.consumers[consumer.tag] = consumer
        if not method.no_wait:
            self.reply(m.BasicConsumeOk(consumer.tag))

    def _make_consumer(self, method: m.BasicConsume, queue: Queue) -> Consumer:
        return Consumer(
            self,
            queue,
            method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}",
            no_ack=method.no_ack,
            exclusive=method.exclusive,
            prefetch=self._prefetch,
            arguments=method.arguments,
        )

    def _consume_replies(self, method: m.BasicConsume) -> Consumer:
        if self.replies is not None:
            raise PreconditionFailed("reply consumer already set")
        if not method.no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        queue = self.replies = ReplyQueue(self.vhost)
        self.vhost.reply_queues[queue.name] = queue
        consumer = self._make_consumer(method, queue)
        queue.add_consumer(consumer)
        return consumer

    def _cancel(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.get(method.consumer_tag)
        if consumer is not None:
            self._remove(consumer)
        if not method.no_wait:
            self.reply(m.BasicCancelOk(method.consumer_tag))

    def _forget(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        self.consumers.pop(consumer.tag, None)
        consumer.settle()
        if consumer.queue is not self.replies:
            self.connection.node.events.consumer_deleted(consumer)

    def _remove(self, consumer: Consumer) -> None:
        self._forget(consumer)
        consumer.queue.remove_consumer(consumer)
        if consumer.queue is self.replies:
            del self.vhost.reply_queues[self.replies.name]
            self.vhost.router.version += 1  # publishers that know the address must ask again
            self.replies = None

    def _get(self, method: m.BasicGet) -> None:
        queue = self._readable_queue(method.queue)
        held = queue.take(None if method.no_ack else self)
        if held is None:
            self.counts.get_empty += 1
            queue.counts.get_empty += 1
            self.reply(m.BasicGetEmpty())
            return
        for counts in (self.counts, queue.counts):
            if method.no_ack:
                counts.get_no_ack += 1
            else:
                counts.get += 1
            counts.redeliver += held.count > 0
        if self.vhost.trace is not None:
            self.vhost.trace.delivered(self, queue, held.message, held.count > 0)
        self.tag += 1
        if not method.no_ack:
            self.unacked.entries[self.tag] = (queue, None, held.position, held)
        connection, again = self.connection, held.count > 0
        if connection.listens(self.number):
            frames = held.frames_for(self.number, connection.engine.frame_max)
            answer = encode_get_ok(self.number, self.tag, again, held.message.address.wire, queue.message_count)
            connection.engine.outgoing += (answer, frames)
            connection.has_output(len(frames))

    def ack(self, method: m.BasicAck) -> None:
        if self.publisher.transaction is not None:
            self._settlements.append(Settlement(self.unacked.take(method.delivery_tag, method.multiple)))
        elif method.multiple:
            self.unacked.ack(self.unacked.take(method.delivery_tag, True))
        else:
            self.unacked.ack_one(method.delivery_tag)

    def _nack(self, method: m.BasicNack) -> None:
        self._refuse(method.delivery_tag, method.multiple, method.requeue, failed=False)

    def _reject(self, method: m.BasicReject) -> None:
        self._refuse(method.delivery_tag, False, method.requeue, failed=True)

    def _refuse(self, tag: int, multiple: bool, requeue: bool, *, failed: bool) -> None:
        taken = self.unacked.take(tag, multiple)
        check_negative(taken.values(), "basic.nack and basic.reject", requeue=requeue)
        self._settle(Settlement(taken, positive=False, requeue=requeue, failed=failed))

    def _settle(self, settlement: Settlement) -> None:
        """Acknowledge or reject now, or at the commit of the transaction."""
        if self.publisher.transaction is not None:
            self._settlements.append(settlement)
        elif settlement.positive:
            self.unacked.ack(settlement.taken)
        else:
            self.unacked.reject(settlement.taken, settlement.requeue, failed=settlement.failed)

    def _recover(self, method: m.BasicRecover) -> None:
        check_negative(self.unacked.entries.values(), "basic.recover", requeue=True)
        self.reply(m.BasicRecoverOk())  # before what is delivered again, as RabbitMQ does
        self._recover_async(method)

    def _recover_async(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        self.unacked.recover(method.requeue)

    # -- confirms and transactions -------------------------------------------------------------------------------

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.publisher.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if self.publisher.confirms is None:
            self.publisher.confirms = Confirms(self)
        if not method.no_wait:
            self.reply(m.ConfirmSelectOk())

    def _tx_select(self, method: m.TxSelect) -> None:
        if self.publisher.confirms is not None:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self.publisher.transaction is None:
            self.publisher.transaction = []
        self.reply(m.TxSelectOk())

    def _tx_commit(self, method: m.TxCommit) -> None:
        """Publishes first, then acknowledgements (RabbitMQ's order); commit-ok when all of it is durable."""
        publications = self._transaction()
        self.publisher.transaction = []
        accepted, stored = True, False
        for target, message, queues in publications:
            accepted &= self.publisher.deliver(target, message, self._still_there(queues))
            stored |= target.stored or target.per_message
        for target, _, _ in publications:  # the topology may have changed since, and they with it
            self.counts.publish += target.settle(self.vhost)
        settlements, self._settlements = self._settlements, []
        self.publisher.transaction = None
        for settlement in settlements:
            if settlement.positive:  # not before the disk has what was published: a transaction is done as a whole
                self.unacked.ack(settlement.taken, when_safe=True)
            else:
                self._settle(settlement)
        self.publisher.transaction = []
        if not accepted:
            raise PreconditionFailed("partial tx completion")
        if publications:
            self._commits.commit(stored)
        else:
            self.reply(m.TxCommitOk())

    def _still_there(self, sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
        """A transaction's messages go to queues by name: to one that was declared anew since, to none that is gone."""
        if not any(isinstance(sink, Queue) and sink.deleted for sink in sinks):
            return sinks
        there: list[Sink] = []
        for sink in sinks:
            if isinstance(sink, Queue) and sink.deleted:
                queue = self.vhost.queues.get(sink.name)
                if queue is not None:
                    queue.enrich()  # it was not told what the messages need
                    there.append(queue)
            else:
                there.append(sink)
        return tuple(there)

    def _tx_rollback(self, method: m.TxRollback) -> None:
        """Drop the publishes; what was acknowledged or rejected is unacknowledged again, and not redelivered."""
        self._transaction().clear()
        self._restore_settlements()
        self.reply(m.TxRollbackOk())

    def _transaction(self) -> list[tuple[Target, Message, tuple[Sink, ...]]]:
        if self.publisher.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return self.publisher.transaction

    def _restore_settlements(self) -> None:
        for settlement in self._settlements:
            self.unacked.restore(settlement.taken)
        self._settlements.clear()


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
    m.BasicAck: Channel.ack,
    m.BasicNack: Channel._nack,
    m.BasicReject: Channel._reject,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover_async,
    m.ConfirmSelect: Channel._confirm_select,
    m.TxSelect: Channel._tx_select,
    m.TxCommit: Channel._tx_commit,
    m.TxRollback: Channel._tx_rollback,
    m.AccessRequest: Channel._access_request,
}
