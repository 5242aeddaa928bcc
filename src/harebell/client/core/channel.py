"""A wire channel without I/O: requests and their replies, publications, deliveries, and the end.

Rules:
1. Replies on a channel come in the order of the requests, so a request leaves a Slot in a queue and the next reply is
   for the first slot; except that RabbitMQ's queues answer consume and cancel themselves, so that other replies may
   overtake these two, which name their consumer. A caller that stops waiting marks its slot as abandoned: the reply is
   dropped when it comes, and nothing else is disturbed.
2. Messages that will not be processed any more (the answer to an abandoned get, deliveries to a consumer that is being
   cancelled) are given back to their queue.
3. A close fails every request that waits on that channel, each with an exception of its own.
4. A core lives as long as its transport. Where another core takes its place (`on_loss` says so), consumers are told
   that they are interrupted, not ended, and the two tables of what is unsettled go on to the next core with their
   numbering. What a program sees is numbered publicly; wire tags do not leave this package.
5. A return is matched to its publication (`unconfirmed` says how), never to a property that consumers would see.

What settles deliveries: `settlement`. How deliveries and publications are numbered: `unacked`, `unconfirmed`.
The file is long because these rules bind the parts of a channel together, and its inner part runs per message.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Protocol, cast

from harebell import errors
from harebell.client.core.consumer import ConsumerCore
from harebell.client.core.settlement import Settlement
from harebell.client.core.slots import REPLIES, Reply, Slot, closed, copy_of
from harebell.client.core.unacked import Deliveries
from harebell.client.core.unconfirmed import Publishes, PublishWaiter
from harebell.client.messages import Acknowledger, Delivery, Returned
from harebell.client.settling import NoAcknowledgement
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import Content, Engine, methods as m
from harebell.protocol.v091.codec import decode_method
from harebell.protocol.v091.hot import DELIVER, GET_OK, MANDATORY, ClientFrames, DeliverReader

__all__ = ["ChannelCore", "Carrier", "Keeper"]

logger = logging.getLogger("harebell.client")


def _raw(tag: str) -> bytes:
    return tag.encode("utf-8", "surrogateescape")


def _drop(delivery: Delivery) -> None:
    pass


def _ignore(returned: Returned) -> None:
    """The confirm of its publication reports it."""


class Carrier(Protocol):
    """The connection that a channel is on."""

    engine: Engine

    @property
    def parameters(self) -> ConnectionParameters: ...
    @property
    def reason(self) -> errors.HarebellError | None: ...
    def flush(self) -> None: ...
    def ask(self) -> None: ...
    def resumed(self) -> None: ...
    def answer(self, number: int, method: m.Method) -> None: ...
    def check_flags(self, flags: int) -> None: ...
    def forget(self, channel: ChannelCore) -> None: ...


class Observer(Protocol):
    """Is notified of what the broker does to a channel, beside those for whom it is."""

    def returned(self, returned: Returned, otherwise: Callable[[Returned], None]) -> None: ...
    def cancelled(self, consumer_tag: str, queue: str) -> None: ...
    def flowing(self, active: bool) -> None: ...


class UnseenDeliveries:
    """The tags of what one wire channel has brought and the program has not got yet."""

    __slots__ = ("_channel",)

    def __init__(self, channel: ChannelCore) -> None:
        self._channel = channel

    def first(self) -> int:
        """The lowest of them; 0 for none."""
        firsts = [delivery.delivery_tag for unseen in self._channel.buffers() for delivery in islice(unseen, 1)]
        return min(firsts, default=0)

    def __iter__(self) -> Iterator[int]:
        return (delivery.delivery_tag for unseen in self._channel.buffers() for delivery in unseen)


class Unneeded(NoAcknowledgement):
    """What the deliveries of a channel's consumers with no_ack are bound to."""

    __slots__ = ("_channel",)

    def __init__(self, channel: ChannelCore) -> None:
        self._channel = channel

    def queue_of(self, consumer_tag: str) -> str | None:
        """The queue of a consumer of the channel."""
        return self._channel.queue_of(consumer_tag)


class Keeper(Protocol):
    """Keeps publications until they have their end, to publish them again or to set them aside."""

    def keep(
        self,
        publish_tag: int,
        waiter: PublishWaiter | None,
        exchange: str,
        routing_key: str,
        flags: int,
        raw_properties: bytes,
        body: bytes,
    ) -> PublishWaiter:
        """What waits for this publication in place of its waiter."""


class ChannelCore:
    """One wire channel of one connection; it never comes back once `reason` is set.

    reason     why it is closed; None while it can be used
    on_loss    called once when it closes without our doing; whether another one will take its place. None: no
    on_return  takes what the broker gave back and no confirm answers for (confirms are off); logged when None
    observer   is notified of returns, cancels and flow
    settlement, settler  what settles deliveries; `settler` is what they are bound to, which may stand in front of it
    keeper     keeps publications; None: nothing is published again
    active     whether publishes may go out: the broker let them flow (channel.flow), the channel is `ready`, not `held`
    flows      the same without `held`
    ready      False while what the channel before this one had is being restored
    held       older publications are being published again, and go first
    last_tag   the highest public delivery tag that came on this channel
    unseen     the tags of deliveries that the program has not got yet
    consumer_tags_made  how many consumer tags were made by `next_consumer_tag`
    """

    def __init__(
        self,
        connection: Carrier,
        number: int,
        deliveries: Deliveries | None = None,
        publishes: Publishes | None = None,
        renamed: dict[str, str] | None = None,
    ) -> None:
        self.connection = connection
        self.number = number
        self.reason: errors.HarebellError | None = None
        self.on_loss: Callable[[ChannelCore, errors.HarebellError], bool] | None = None
        self.on_return: Callable[[Returned], None] | None = None
        self.observer: Observer | None = None
        self.frames = ClientFrames(number, renamed)
        self.deliveries = deliveries = deliveries or Deliveries()
        self.publishes = publishes or Publishes()
        self.slots: deque[Slot] = deque()
        self.consumers: dict[bytes, ConsumerCore] = {}
        self.keeper: Keeper | None = None
        self.active = self.flows = self.ready = self._flowing = True
        self.held = self._confirms_answered = False
        self._engine = connection.engine
        self._known_frames = self.frames.known
        self.settlement = Settlement(self, deliveries, self.frames, connection.engine.send_frame, connection.flush)
        self.settler: Acknowledger = self.settlement
        self.unseen = UnseenDeliveries(self)
        self._left: list[ConsumerCore] = []  # cancelled, and the program has not got all that they were sent
        self._unneeded = Unneeded(self)
        self._reader = DeliverReader()
        self._names = self._reader.names
        self._offset = self.last_tag = deliveries.offset
        self._unacked = deliveries.unacked
        self.consumer_tags_made = 0

    # -- calls -------------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """ChannelClosed, caused by the reason, when the channel or its connection is closed."""
        if self.reason is not None:
            raise closed(f"channel {self.number}", self.reason)

    def request(self, slot: Slot) -> None:
        """Send the slot's request; the reply, or the reason why there is none, will be put into it."""
        self.check_open()
        self.connection.engine.send_method(self.number, slot.request)
        if isinstance(slot.request, m.ConfirmSelect):  # the broker numbers what follows it, not what follows its answer
            self.publishes.confirming = True
        self.slots.append(slot)
        self.connection.ask()

    def abandon(self, slot: Slot) -> None:
        """This reply is no longer awaited: it is dropped when it comes, and what it grants is given back."""
        slot.abandoned = True
        if self.reason is not None:
            return
        request = slot.request
        if isinstance(request, m.ChannelOpen):
            self.close()
        elif isinstance(request, m.BasicConsume):
            consumer = self.consumers.get(_raw(request.consumer_tag))
            if consumer is not None:
                self.cancel_unanswered(consumer)
        elif isinstance(request, m.TxCommit) and slot.reply is None:
            # RabbitMQ takes no other method before it has answered a commit: 504, and the connection is gone.
            self.lose(errors.ConnectionLost("tx.commit was given up before its answer: it took effect, or not"))
        elif slot.reply is not None:  # it came in the same turn as the cancellation
            self._give_back(slot, slot.reply)

    def close(self, slot: Slot | None = None) -> None:
        """Send channel.close and fail what waits on the channel; the slot gets the close-ok."""
        self.check_open()
        self.connection.engine.send_method(self.number, m.ChannelClose(200, "closed by the client"))
        self._fail(errors.ChannelClosed(f"channel {self.number} was closed by this client"), ours=True)
        if slot is None:
            slot = Slot(m.ChannelClose())
            slot.abandoned = True
        self.slots.append(slot)
        self.connection.ask()

    def queue_of(self, consumer_tag: str) -> str | None:
        """The queue of a consumer of this channel."""
        consumer = self.consumers.get(_raw(consumer_tag))
        return None if consumer is None else consumer.queue

    def next_consumer_tag(self) -> str:
        self.consumer_tags_made += 1
        return f"harebell-{self.number}.{self.consumer_tags_made}"

    def consume(self, slot: Slot, consumer: ConsumerCore) -> None:
        """Subscribe: deliveries may come before the caller sees the consume-ok, so the consumer is known at once."""
        self.check_open()
        key = _raw(consumer.tag)
        if key in self.consumers:
            raise errors.InvalidArgument(
                f"consumer tag {consumer.tag!r} is in use on channel {self.number}: leave it out, or take another"
            )
        consumer.settler = self._unneeded if consumer.no_ack else self.settler
        self.consumers[key] = consumer
        try:
            self.request(slot)
        except errors.LocalProtocolError:
            del self.consumers[key]
            raise

    def cancel(self, slot: Slot, consumer: ConsumerCore, *, requeue: bool = True) -> None:
        """Unsubscribe. What is under way to the consumer goes back to the queue, or comes all the same."""
        self.check_open()
        consumer.cancelling = True
        if requeue:
            self._refuse(consumer)
        self.request(slot)

    def cancel_unanswered(self, consumer: ConsumerCore) -> None:
        """Unsubscribe without waiting for the answer.

        Not before the consume-ok is there: a channel of RabbitMQ 3.10 breaks down (541) when a cancel overtakes that.
        """
        if self.reason is None and not consumer.cancelling:
            if not consumer.answered:
                consumer.cancelling = True
                self._refuse(consumer)
                return
            slot = Slot(m.BasicCancel(consumer.tag))
            slot.abandoned = True
            self.cancel(slot, consumer)

    def _refuse(self, consumer: ConsumerCore) -> None:
        """Take no further deliveries."""
        consumer.append = _drop if consumer.no_ack else self.settlement.give_back

    def publish(
        self,
        raw_properties: bytes,
        body: bytes,
        exchange: str,
        routing_key: str,
        flags: int,
        waiter: PublishWaiter | None,
    ) -> int:
        """Put one message into the output, and give its publish tag (0 with confirms off). The caller flushes.

        flags  MANDATORY and IMMEDIATE; True is mandatory
        """
        if self.reason is not None:
            self.check_open()
        method = self._known_frames.get((exchange, routing_key, flags))
        if method is None:
            self.connection.check_flags(flags)
            method = self.frames.publish(exchange, routing_key, flags)
        self._engine.send_message(self.number, method, raw_properties, body)
        publishes = self.publishes
        if not publishes.confirming:
            return 0
        if method is publishes.method and not flags and self.keeper is None:  # as `Publishes.add`, without the call
            tag = publishes.last_tag + 1
            publishes.waiters[tag] = waiter
            publishes.last_tag = tag
            return tag
        if self.keeper is not None:
            waiter = self.keeper.keep(
                publishes.last_tag + 1, waiter, exchange, routing_key, flags, raw_properties, body
            )
        return publishes.add(waiter, method, raw_properties, body, flags)

    def take_back(self, written: int, last_tag: int) -> None:
        """Undo the publication in whose midst `publish` was interrupted, if it was: it has not left.

        written, last_tag  the engine's `pending` and the table's `last_tag` before the first of those that may have
                           been published since, by `publish` alone, and that nobody has flushed
        """
        publishes = self.publishes
        if publishes.confirming:
            publishes.forget_unnumbered()
            self._engine.take_back(written + 2 * (publishes.last_tag - last_tag))

    def publish_again(
        self, raw_properties: bytes, body: bytes, exchange: str, routing_key: str, flags: int, waiter: PublishWaiter
    ) -> None:
        """As `publish`, for one that is kept already. The waiter gets another tag than that of its publication."""
        method = self.frames.publish(exchange, routing_key, flags)
        self._engine.send_message(self.number, method, raw_properties, body)
        self.publishes.add(waiter, method, raw_properties, body, flags)

    def publish_bulk(
        self,
        raw_properties: Sequence[bytes],
        bodies: Sequence[bytes],
        exchange: str | Sequence[str],
        routing_key: str | Sequence[str],
        flags: int,
        waiter: PublishWaiter,
    ) -> int:
        """Put many messages into the output, all or none, and give the first one's publish tag (0 with confirms off).

        exchange, routing_key  one for all, or one for each. The caller flushes.
        """
        if self.reason is not None:
            self.check_open()
        count, frame = len(bodies), self.frames.publish
        if isinstance(exchange, str) and isinstance(routing_key, str):
            methods = [frame(exchange, routing_key, flags)] * count
        else:
            exchanges = repeat(exchange, count) if isinstance(exchange, str) else exchange
            keys = repeat(routing_key, count) if isinstance(routing_key, str) else routing_key
            methods = [frame(name, key, flags) for name, key in zip(exchanges, keys, strict=True)]
        self._engine.send_messages(self.number, methods, raw_properties, bodies)
        publishes = self.publishes
        return publishes.add_many(waiter, methods, raw_properties, bodies, flags) if publishes.confirming else 0

    # -- what the broker sends ---------------------------------------------------------------------------------------

    def receive_content(self, content: Content) -> None:
        payload = content.method
        key = payload[:4]
        if key == DELIVER:
            # As `DeliverReader.read` does it, without the call where the names are known.
            at = 5 + payload[4] if len(payload) > 4 else 0
            names = self._names.get(payload[at + 9 :])
            if names is None:
                self._reader.read(payload)
                names = self._names[payload[at + 9 :]]
            exchange, routing_key = names
            raw_tag, redelivered = payload[5:at], payload[at + 8] & 1 != 0
            tag = int.from_bytes(payload[at : at + 8], "big") + self._offset
            consumer = self.consumers.get(raw_tag)
            if consumer is None and tag != self.last_tag + 1:
                # RabbitMQ 4.0 may send it behind the channel.open-ok of another channel with this number.
                logger.info("channel %d: a delivery of the channel before was left out", self.number)
                return
            self.last_tag = tag
            if consumer is None:
                logger.warning("channel %d: a delivery for unknown consumer %r was given back", self.number, raw_tag)
                self.settlement.give_back(
                    Delivery(content, self.settlement, "", tag, redelivered, exchange, routing_key)
                )
                return
            consumer.append(Delivery(content, consumer.settler, consumer.tag, tag, redelivered, exchange, routing_key))
        elif key == GET_OK:
            method = cast(m.BasicGetOk, decode_method(payload, self.number))
            tag = self.last_tag = method.delivery_tag + self._offset
            self._reply(
                m.BasicGetOk,
                Delivery(content, self.settler, "", tag, method.redelivered, method.exchange, method.routing_key),
            )
        else:
            self._returned(content)

    def receive_method(self, method: m.Method) -> None:
        kind = type(method)
        if isinstance(method, m.BasicAck):
            self.publishes.settle(method.delivery_tag, method.multiple, True)
        elif isinstance(method, m.BasicNack):
            unsettled = len(self.publishes.waiters)
            self.publishes.settle(method.delivery_tag, method.multiple, False)
            self.publishes.nacked += unsettled - len(self.publishes.waiters)
        elif isinstance(method, m.ChannelClose):
            self._closed_by_broker(method)
        elif isinstance(method, m.BasicCancel):
            self._cancelled_by_broker(method)
        elif isinstance(method, m.ChannelFlow):
            self._flowing = method.active
            self.connection.answer(self.number, m.ChannelFlowOk(method.active))
            self._set_active()
            if self.observer is not None:
                self.observer.flowing(method.active)
        else:
            self._reply(kind, method)

    def make_ready(self, ready: bool) -> None:
        """Let publishes out, or hold them back."""
        self.ready = ready
        self._set_active()

    def hold(self, held: bool) -> None:
        """Hold the program's publishes back while older ones are published again, or let them go on."""
        self.held = held
        self._set_active()

    def _set_active(self) -> None:
        self.flows = self._flowing and self.ready and self.reason is None
        self.active = self.flows and not self.held
        if self.flows:
            self.connection.resumed()

    def _reply(self, kind: type[m.Method], reply: Reply) -> None:
        slot = self._slot_for(kind, reply)
        if slot is None:
            awaited = f"{self.slots[0].request.NAME} awaits its answer" if self.slots else "nothing was asked"
            raise errors.RemoteProtocolError(
                errors.CommandInvalid,
                f"{kind.NAME} on channel {self.number}, where {awaited}",
                kind.CLASS_ID,
                kind.METHOD_ID,
                self.number,
            )
        self.slots.remove(slot)
        if kind is m.BasicCancelOk:
            self._end_consumer(cast(m.BasicCancel, slot.request).consumer_tag, None)
        elif kind is m.ConfirmSelectOk:
            self._confirms_answered = True
        elif kind is m.ChannelCloseOk:
            self.connection.forget(self)
        elif kind is m.BasicConsumeOk:
            self._subscribed(cast(m.BasicConsume, slot.request).consumer_tag)
        elif kind is m.TxSelectOk or kind is m.TxCommitOk:
            self.settlement.begin_transaction()
        elif kind is m.TxRollbackOk:
            self.deliveries.rolled_back()
        elif kind is m.BasicRecoverOk:
            self.deliveries.invalidated(self._forget_buffered())
        elif isinstance(reply, Delivery):
            if cast(m.BasicGet, slot.request).no_ack:
                reply.acknowledger = self._unneeded
            else:
                self._unacked.add(reply.delivery_tag)
        if slot.abandoned:
            self._give_back(slot, reply)
        else:
            slot.resolve(reply)

    def _slot_for(self, kind: type[m.Method], reply: Reply) -> Slot | None:
        """The request that waits for this reply (rule 1); None when none does."""
        for slot in self.slots:
            request, fits = slot.request, kind in REPLIES[type(slot.request)]
            if not isinstance(request, m.BasicConsume | m.BasicCancel):
                return slot if fits else None
            if fits and request.consumer_tag == cast(m.BasicConsumeOk | m.BasicCancelOk, reply).consumer_tag:
                return slot
        return None

    def _subscribed(self, tag: str) -> None:
        consumer = self.consumers.get(_raw(tag))
        if consumer is not None:
            consumer.answered = True
            if consumer.cancelling:  # it was given up meanwhile
                consumer.cancelling = False
                self.cancel_unanswered(consumer)

    def _give_back(self, slot: Slot, reply: Reply) -> None:
        if isinstance(reply, Delivery) and not cast(m.BasicGet, slot.request).no_ack and self.reason is None:
            self.settlement.give_back(reply)

    def _end_consumer(self, tag: str, reason: errors.HarebellError | None) -> None:
        consumer = self.consumers.pop(_raw(tag), None)
        if consumer is not None:
            if not consumer.no_ack:
                self._left = [left for left in (*self._left, consumer) if any(left.unseen())]
            consumer.ended(reason)

    def _cancelled_by_broker(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.get(_raw(method.consumer_tag))
        if consumer is not None and not consumer.cancelling:
            if self.observer is not None:
                self.observer.cancelled(method.consumer_tag, consumer.queue)
            self._end_consumer(
                method.consumer_tag,
                errors.ConsumerCancelled(
                    f"the broker cancelled consumer {method.consumer_tag!r} of queue {consumer.queue!r}: "
                    "the queue was deleted or moved, or a delivery was not acknowledged in time; declare it and "
                    "consume again"
                ),
            )

    def _returned(self, content: Content) -> None:
        method = cast(m.BasicReturn, decode_method(content.method, self.number))
        returned = Returned(content, method.reply_code, method.reply_text, method.exchange, method.routing_key)
        address = self.frames.publish(method.exchange, method.routing_key, MANDATORY)[:-2]  # without flags and end
        self.publishes.returns += 1
        # What comes back before the answer to confirm.select was published before it, and has no number.
        numbered = self._confirms_answered
        answered = numbered and self.publishes.returned(address, content.raw_properties, returned)
        if self.observer is not None:
            self.observer.returned(returned, _ignore if answered else self._give_returned)
        elif not answered:
            self._give_returned(returned)

    def _give_returned(self, returned: Returned) -> None:
        if self.on_return is not None:
            try:
                self.on_return(returned)
            except Exception:  # a callback's failure is not the connection's
                logger.exception("channel %d: on_return failed on %r", self.number, returned)
        else:
            logger.warning("channel %d: nobody takes the returned message %r", self.number, returned)

    def _closed_by_broker(self, method: m.ChannelClose) -> None:
        self.connection.answer(self.number, m.ChannelCloseOk())
        if self.reason is not None:
            return  # both closed at once: the close-ok to ours is still to come
        reason = errors.from_reply(method.reply_code, method.reply_text, method.class_id, method.method_id, "channel")
        cause = m.METHODS.get(method.class_id.to_bytes(2, "big") + method.method_id.to_bytes(2, "big"))
        reason.add_note(
            f"{self.connection.parameters.peer} closed channel {self.number}{f' on {cause.NAME}' if cause else ''}"
        )
        self._fail(reason)
        self.connection.forget(self)

    def buffers(self) -> Iterator[Iterable[Delivery]]:
        """What each consumer was sent and the program has not got, where it is to be acknowledged."""
        for consumer in (*self.consumers.values(), *self._left):
            if not consumer.no_ack:
                yield consumer.unseen()

    def _forget_buffered(self) -> list[int]:
        holding = (*self._left, *self.consumers.values())
        return [tag for consumer in holding for tag in consumer.forget()]

    def _fail(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        """The channel is closed for good: everything that waits on it gets the reason; our own close ends consumers."""
        self.reason = reason
        self.active = self.flows = False
        goes_on = not ours and self.on_loss is not None and self.on_loss(self, reason)
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if not slot.abandoned:
                slot.fail(copy_of(reason))
        self.publishes.end(reason)
        self.deliveries.last_tag = self.last_tag
        unseen = self._forget_buffered()
        if goes_on:
            self.deliveries.lost(unseen)
        else:
            self.deliveries.end(unseen)
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            if goes_on and not consumer.cancelling:
                consumer.interrupted()
            else:
                consumer.ended(None if ours or goes_on else copy_of(reason))
        self.connection.resumed()

    def forked(self, error: errors.HarebellError) -> None:
        """In a child of the process that it belongs to: its calls raise this, and nobody is told of an end."""
        self.reason = error
        self.active = self.flows = False
        self.deliveries.end(())

    def lose(self, reason: errors.HarebellError) -> None:
        """Close it as if the broker had: what a test of recovery does to one channel."""
        self.check_open()
        self.connection.engine.send_method(self.number, m.ChannelClose(200, "closed by the client"))
        self._fail(reason)
        slot = Slot(m.ChannelClose())
        slot.abandoned = True
        self.slots.append(slot)
        self.connection.flush()

    def connection_closed(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        if self.reason is None:
            self._fail(reason, ours=ours)
        else:  # our own close was not answered any more; it is closed all the same
            slots, self.slots = self.slots, deque()
            for slot in slots:
                if not slot.abandoned:
                    slot.resolve(m.ChannelCloseOk())
