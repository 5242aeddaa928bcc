"""The broker's side of a channel: a handler for each method, with RabbitMQ's error texts.

A handler is found by the type of the method (`HANDLERS`, at the end; `topology` handles declarations). It raises
AmqpError to refuse; the connection turns that into channel.close or connection.close. `publisher` publishes, `unacked`
has the unacknowledged deliveries, `transactions` what waits for a commit.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from harebell.broker.audit import performing
from harebell.broker.connections.consume_arguments import check_consume_arguments, selector_of
from harebell.broker.connections.consumer_timeouts import ConsumerTimeouts
from harebell.broker.counts import AMQP091, ChannelCounts
from harebell.broker.message import Held
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.queues.base import Queue
from harebell.broker.queues.browse import BROWSE, View
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.settling import DELIVERIES_PER_STEP, counted, rejected_in_steps, returning
from harebell.broker.rules.limits import check_consumers
from harebell.broker.slices import Work
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.consumer import UNLIMITED, Consumer, Entry
from harebell.broker.v091.direct_reply_to import PSEUDO_QUEUE, ReplyQueue
from harebell.broker.v091.link import Link
from harebell.broker.v091.publisher import Publisher
from harebell.broker.v091.topology import HANDLERS as TOPOLOGY_HANDLERS, Topology
from harebell.broker.v091.transactions import Settlement, Transactions
from harebell.broker.v091.unacked import Unacked, check_negative
from harebell.errors import (
    ChannelMisused,
    CommandInvalid,
    NotAllowed,
    NotImplemented as NotImplemented540,
    PreconditionFailed,
)
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.deliver import encode_get_ok
from harebell.protocol.v091.large_frames import Frames
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing.selectors import Selector
from harebell.routing.steps import Steps

__all__ = ["Channel"]

FEW: Final = 16  # consumers that leave in one slice for certain


class Channel:
    """One open channel of one connection.

    `tag` is the last delivery tag, `credit` the unused part of the window that basic.qos(global=true) gives the
    channel.
    """

    def __init__(self, connection: Link, number: int) -> None:
        self.connection = connection
        self.vhost = connection.vhost
        self.batch = connection.batch
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
        self._prefetch = 0  # of later consumers
        self._timeouts = ConsumerTimeouts(self.unacked)
        self._topology = Topology(self)
        self._commits = Confirms(self)  # in their order tx.commit-ok waits for the disk
        self._transactions = Transactions(self, self._commits)
        self._window = UNLIMITED

    def handle(self, method: m.Method) -> None:
        """Process the method. AmqpError when it is refused."""
        handler = HANDLERS.get(type(method))
        declaring = TOPOLOGY_HANDLERS.get(type(method)) if handler is None else None
        if handler is None and declaring is None:
            raise NotImplemented540(f"{method.NAME}")
        if self._commits.awaited:  # its answer would overtake commit-ok; RabbitMQ 3.10 answers 504, too
            raise ChannelMisused("unexpected command while processing 'tx.commit'")
        if handler is not None:
            handler(self, method)
        elif declaring is not None:
            with performing(self.connection.node.events, self.connection.origin, self.vhost.name, method):
                declaring(self._topology, method)

    def reply(self, method: m.Method) -> None:
        self.connection.send(self.number, method)

    def confirm_what_is_safe(self) -> None:
        """Send the confirms that are due: the channel is about to be closed by an error."""
        if self.publisher.confirms is not None:
            self.publisher.confirms.close()

    def close(self) -> None:
        """As `closing`, and the caller does not wait for what does not fit into one slice."""
        self.batch.slices.run(self.closing())

    def closing(self) -> Work:
        """End the channel: first its consumers, then their unacknowledged deliveries return to the queues."""
        self.open = self.flowing = False  # no more deliveries to the consumers that are left
        queues = [consumer.queue for consumer in self.consumers.values()]
        held = queues if len(queues) > FEW else ()
        for queue in held:
            queue.hold()  # newer messages must not overtake those that return
        try:
            for consumer in tuple(self.consumers.values()):
                if not consumer.cancelled:
                    self._remove(consumer)
                    yield
            self._transactions.restore()
            self.batch.slices.run(self.unacked.requeue_all(failed=True, queues=queues))
        finally:
            for queue in held:
                queue.release()
        self.publisher.flush_counts()
        self.vhost.counts.add(self.counts)
        self.vhost.lasting.closed(AMQP091, self.counts, confirming=self.confirming)
        self.connection.node.churn.channel_closed += 1
        self.connection.node.events.channel_closed(self)

    def flush_counts(self) -> None:
        """Bring `counts` up to date."""
        self.publisher.flush_counts()
        for consumer in self.consumers.values():
            consumer.flush_counts()

    @property
    def confirming(self) -> bool:
        return self.publisher.confirms is not None

    @property
    def transactional(self) -> bool:
        return self.publisher.transaction is not None

    @property
    def unconfirmed(self) -> int:
        return 0 if self.publisher.confirms is None else self.publisher.confirms.outstanding

    @property
    def uncommitted(self) -> int:
        return len(self.publisher.transaction or ())

    @property
    def uncommitted_acks(self) -> int:
        return self._transactions.settled

    @property
    def prefetch_count(self) -> int:
        return self._prefetch

    @property
    def global_prefetch_count(self) -> int:
        return 0 if self._window == UNLIMITED else self._window

    @property
    def unacked_count(self) -> int:
        return len(self.unacked)

    @property
    def oldest_unacked(self) -> int | None:
        return next(iter(self.unacked.entries), None)

    @property
    def last_delivery(self) -> int:
        return self.tag

    def counting_unacked(self) -> Steps[Mapping[Queue, int]]:
        entries = self.unacked.entries
        if not entries:
            return {}
        if self.publisher.transaction is None:  # what is acknowledged in one has left the table, not the windows
            found = Counter[Queue]()
            for consumer in self.consumers.values():
                found[consumer.queue] += consumer.outstanding
            if found.total() == len(entries):
                return found
        return (yield from counted(entry[0] for entry in tuple(entries.values())))

    def unacked_shares(self) -> Iterator[list[tuple[int, Consumer | None]]]:
        tags = list(self.unacked.entries)
        for start in range(0, len(tags), DELIVERIES_PER_STEP):
            entries = self.unacked.entries
            yield [(tag, entries[tag][1]) for tag in tags[start : start + DELIVERIES_PER_STEP] if tag in entries]

    def watch_acks(self) -> None:
        """Make the channel notify queues of each acknowledgement, for one from which basic.get took."""
        self.unacked.watched = True

    def cancelled_by_broker(self, consumer: Consumer) -> None:
        """The consumer's queue is gone: send basic.cancel, if the client has that capability."""
        self._forget(consumer)
        if self.open and self.connection.capability("consumer_cancel_notify"):
            self.reply(m.BasicCancel(consumer.tag, no_wait=True))

    def refuse_delivery(self, queue: Queue, position: int, frames: bytes) -> None:
        """A message cannot be sent to this client: deliver nothing more here, and close the channel with the reason.

        The channel is closed later, because the queue is delivering now. Its deliveries then return to their queues.
        """
        self.flowing = False
        queue.refused(position)
        error, timers = self._too_long(queue, frames), self.connection.node.timers
        timers.at(timers.now(), lambda: self.connection.refuse_channel(self, error))

    def _too_long(self, queue: Queue, frames: bytes) -> PreconditionFailed:
        return PreconditionFailed(
            f"a message of {queue} has properties that take a frame of {header_frame_size(frames)} bytes, the "
            f"negotiated frame_max is {self.connection.engine.frame_max}"
        )

    def lease(self, asked: LeaseRequest) -> list[int]:
        """Grant deliveries a lease. Returns their tags. PreconditionFailed for a tag that is not outstanding."""
        tags = self.unacked.tags(asked.delivery_tag, asked.multiple)
        self._timeouts.lease(tags, self.connection.node.timers.now(), asked.timeout)
        return tags

    def give_back_overdue(self, now: int, default: int, least: int) -> Work:
        """Return what was not acknowledged within its queue's consumer timeout, and cancel the consumers that had it.

        RabbitMQ 4.3 does so; before, and here for clients without the capability for basic.cancel, the channel is
        closed: PreconditionFailed. The arguments are those of `ConsumerTimeouts.overdue`.
        """
        overdue = yield from self._timeouts.overdue(now, self.tag, default, least)
        if overdue and not self.connection.capability("consumer_cancel_notify"):
            timeout = next(iter(overdue.values()))
            raise PreconditionFailed(
                f"delivery acknowledgement on channel {self.number} timed out. Timeout value used: {timeout} ms. "
                "This timeout value can be configured, see consumers doc guide to learn more"
            )
        yield from returning(self.unacked.shares_of(sorted(overdue)), self._give_back_late)

    def _give_back_late(self, taken: dict[int, Entry]) -> None:
        self.unacked.reject(taken, requeue=True, failed=True)
        for consumer in {entry[1] for entry in taken.values()}:
            if consumer is not None and not consumer.cancelled:
                consumer.queue.remove_consumer(consumer)
                self.cancelled_by_broker(consumer)

    # -- channel -------------------------------------------------------------------------------------------------

    def _flow(self, method: m.ChannelFlow) -> None:
        if not method.active and not self.connection.node.limits.channel_flow:
            raise NotImplemented540("active=false")  # RabbitMQ's text
        self.flowing = method.active
        self.reply(m.ChannelFlowOk(method.active))
        for consumer in self.consumers.values():
            consumer.queue.schedule()

    def _unasked(self, method: m.ChannelFlowOk | m.BasicCancelOk) -> None:
        """Refuse an unexpected answer: the broker sends no channel.flow, and basic.cancel only with no_wait."""
        raise CommandInvalid("unimplemented method")

    def _access_request(self, method: m.AccessRequest) -> None:
        """Grant realms, which are of AMQP 0-8; every ticket is good (RabbitMQ answers 1)."""
        self.reply(m.AccessRequestOk(1))

    # -- consuming -----------------------------------------------------------------------------------------------

    def _qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise NotImplemented540(f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            self._set_window(method.prefetch_count or UNLIMITED)
        else:
            self._set_window(UNLIMITED)  # RabbitMQ's rule: both windows apply when the channel's is set last
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
        check_consumers(self.connection.node.limits, len(self.consumers))
        if method.queue == PSEUDO_QUEUE:
            consumer = self._consume_replies(method)
        else:
            queue = self._topology.readable_queue("consume", method.queue)
            check_consume_arguments(method.arguments, queue.type, str(queue), exclusive=method.exclusive)
            if method.arguments.get(BROWSE) and isinstance(queue, ClassicQueue):
                queue = View(queue)
            queue.check_consume(method.no_ack, self._prefetch)
            consumer = self._make_consumer(method, queue, selector_of(method.arguments, str(queue)))
            queue.add_consumer(consumer)
            self.connection.node.events.consumer_created(consumer)
        self.consumers[consumer.tag] = consumer
        if not method.no_wait:
            self.reply(m.BasicConsumeOk(consumer.tag))

    def _make_consumer(self, method: m.BasicConsume, queue: Queue, selector: Selector | None = None) -> Consumer:
        return Consumer(
            self,
            queue,
            method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}",
            no_ack=method.no_ack,
            exclusive=method.exclusive,
            prefetch=self._prefetch,
            arguments=method.arguments,
            selector=selector,
        )

    def _consume_replies(self, method: m.BasicConsume) -> Consumer:
        if self.replies is not None:
            raise PreconditionFailed("reply consumer already set")
        if not method.no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        queue = self.replies = ReplyQueue(self.vhost, self.connection)
        self.vhost.add_reply_queue(queue)
        consumer = self._make_consumer(method, queue)
        queue.add_consumer(consumer)
        queue.consumer = consumer
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
        consumer.flush_counts()
        if consumer.queue is not self.replies:
            self.connection.node.events.consumer_deleted(consumer)

    def _remove(self, consumer: Consumer) -> None:
        self._forget(consumer)
        consumer.queue.remove_consumer(consumer)
        if consumer.queue is self.replies:
            self.vhost.remove_reply_queue(self.replies)
            self.replies = None

    def _get(self, method: m.BasicGet) -> None:
        queue = self._topology.readable_queue("get", method.queue)
        if queue.drop_expired():
            self._get_from(queue, method)
        else:
            self.connection.work(self.number, method, self._get_unexpired(method))

    def _get_unexpired(self, method: m.BasicGet) -> Work:
        yield
        while not (queue := self._topology.readable_queue("get", method.queue)).drop_expired():
            yield
        self._get_from(queue, method)

    def _get_from(self, queue: Queue, method: m.BasicGet) -> None:
        connection = self.connection
        held = queue.take(None if method.no_ack else self, self._fits)
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
        frame_max, again = connection.engine.frame_max, held.count > 0
        content = held.message.content
        frames: Frames = content.frames
        fits = len(frames) <= frame_max or held.fits(frame_max)
        if not method.no_ack or not fits:
            self.unacked.entries[self.tag] = (queue, None, held.position, held)
        if not fits:
            queue.refused(held.position)
            raise self._too_long(queue, content.frames)
        if connection.listens(self.number):
            if again or content.channel != self.number or len(frames) > frame_max:
                frames = held.frames_for(self.number, frame_max)
            answer = encode_get_ok(self.number, self.tag, again, held.message.address.wire, queue.message_count)
            connection.engine.send_frames(answer, frames)
            connection.has_output(len(frames))

    def _fits(self, held: Held) -> bool:
        """Whether the message fits the client's frame size."""
        return held.fits(self.connection.engine.frame_max)

    def ack(self, method: m.BasicAck) -> None:
        if self.unacked.is_long(method.multiple, method.delivery_tag):
            work = self._settle(method.delivery_tag, Settlement)
            self.connection.work(self.number, method, work)
        elif self.publisher.transaction is not None:
            self._transactions.settle(Settlement(self.unacked.take(method.delivery_tag, method.multiple)))
        elif method.multiple:
            if self.batch.scheduled:
                self.batch.deliver()  # all that are outstanding: also what was published just before
            self.unacked.ack(self.unacked.take(method.delivery_tag, True))
        else:
            self.unacked.ack_one(method.delivery_tag)

    def ack_each(self, tags: list[int]) -> None:
        """Acknowledge deliveries one by one. PreconditionFailed for the first tag that is not outstanding."""
        if self.publisher.transaction is None:
            self.unacked.ack_each(tags)
        else:
            for tag in tags:
                self._transactions.settle(Settlement(self.unacked.take(tag, False)))

    def _settle(self, tag: int, settlement: Callable[[dict[int, Entry]], Settlement]) -> Work:
        """Settle the deliveries up to a tag in shares."""
        for taken in self.unacked.shares(tag):
            self._transactions.settle(settlement(taken))
            yield

    def _nack(self, method: m.BasicNack) -> None:
        if self.unacked.is_long(method.multiple):
            self.connection.work(self.number, method, self._nack_many(method))
        else:
            self._refuse(method.delivery_tag, method.multiple, method.requeue, failed=False)

    def _nack_many(self, method: m.BasicNack) -> Work:
        tag, requeue = method.delivery_tag, method.requeue
        shares = self.unacked.shares(tag)
        yield from self.unacked.checked(tag, "basic.nack and basic.reject", requeue=requeue)
        if requeue:
            queues = {consumer.queue for consumer in self.consumers.values()}
            yield from returning(shares, lambda taken: self._nack_share(taken, requeue=True), queues)
        else:
            for share in shares:
                for taken in rejected_in_steps(share):
                    self._nack_share(taken, requeue=False)
                    yield

    def _nack_share(self, taken: dict[int, Entry], *, requeue: bool) -> None:
        self._transactions.settle(Settlement(taken, positive=False, requeue=requeue))

    def _reject(self, method: m.BasicReject) -> None:
        self._refuse(method.delivery_tag, False, method.requeue, failed=True)

    def _refuse(self, tag: int, multiple: bool, requeue: bool, *, failed: bool) -> None:
        entries = self.unacked.entries
        meant = [entries[each] for each in self.unacked.tags(tag, multiple)]
        check_negative(meant, "basic.nack and basic.reject", requeue=requeue)  # they are not taken, if it raises
        taken = self.unacked.take(tag, multiple)
        self._transactions.settle(Settlement(taken, positive=False, requeue=requeue, failed=failed))

    def _recover(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        self.connection.work(self.number, method, self._recovery(method))

    def _recovery(self, method: m.BasicRecover | m.BasicRecoverAsync) -> Work:
        yield from self.unacked.checked(0, "basic.recover", requeue=True)
        if isinstance(method, m.BasicRecover):
            self.reply(m.BasicRecoverOk())  # before the redelivered messages, as RabbitMQ does
        if method.requeue:
            queues = [consumer.queue for consumer in self.consumers.values()]
            yield from self.unacked.requeue_all(failed=False, queues=queues)
        else:
            yield from self.unacked.redeliver_all()

    # -- confirms and transactions -------------------------------------------------------------------------------

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.publisher.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if self.publisher.confirms is None:
            self.publisher.confirms = Confirms(self)
        if not method.no_wait:
            self.reply(m.ConfirmSelectOk())

    def _tx_select(self, method: m.TxSelect) -> None:
        self._transactions.select()

    def _tx_commit(self, method: m.TxCommit) -> None:
        self.connection.work(self.number, method, self._transactions.commit())

    def _tx_rollback(self, method: m.TxRollback) -> None:
        self._transactions.rollback()


Handler: TypeAlias = "Callable[[Channel, Any], None]"  # each takes the method type that is its key in the table

HANDLERS: Final[dict[type[m.Method], Handler]] = {
    m.ChannelFlow: Channel._flow,
    m.ChannelFlowOk: Channel._unasked,
    m.BasicQos: Channel._qos,
    m.BasicConsume: Channel._consume,
    m.BasicCancel: Channel._cancel,
    m.BasicCancelOk: Channel._unasked,
    m.BasicGet: Channel._get,
    m.BasicAck: Channel.ack,
    m.BasicNack: Channel._nack,
    m.BasicReject: Channel._reject,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover,
    m.ConfirmSelect: Channel._confirm_select,
    m.TxSelect: Channel._tx_select,
    m.TxCommit: Channel._tx_commit,
    m.TxRollback: Channel._tx_rollback,
    m.AccessRequest: Channel._access_request,
}
