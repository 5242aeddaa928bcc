"""A client's connection and its channels without I/O.

A face feeds what it read to `ConnectionCore.receive`, writes what `engine.data_to_send` gives, and overrides the hooks
(`flush`, `closed`, `resumed`). Methods, deliveries, confirms and returns are sorted here to whoever waits for them.

Rules:
1. Replies on a channel come in the order of the requests, so a request leaves a Slot in a queue and the next reply is
   for the first slot; except that RabbitMQ's queues answer consume and cancel themselves, so that other replies may
   overtake these two, which name their consumer. A caller who stops waiting leaves his slot behind, marked as
   abandoned: its reply is dropped when it comes, and nothing else is disturbed.
2. Messages that nobody will handle any more (the answer to an abandoned get, deliveries to a consumer that is being
   cancelled) are given back to their queue.
3. A close fails every request that waits on that channel or connection, each with an exception of its own.
4. A core lives as long as its transport. Where a face puts another one in its place (`keeper`), consumers are told that
   they are interrupted, not ended, publications are orphaned, and the two tables of what is unsettled go on to the next
   core with their numbering. What a program sees is numbered publicly; wire tags do not leave this module.
5. A return is matched to its publication (`publishes.py` says how), never to a property that consumers would see.

The file is long because these rules bind a connection and its channels together, and its inner part runs per message.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Final, Protocol, cast

from harebell import errors
from harebell.client.core.handshake import Handshake
from harebell.client.core.unacked import Deliveries
from harebell.client.core.unconfirmed import Publishes, PublishWaiter
from harebell.client.messages import Acknowledger, Delivery, Returned
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import (
    ConnectionState,
    Content,
    Engine,
    OversizedContent,
    Role,
    encode_content,
    methods as m,
)
from harebell.protocol.v091.bulk import encode_contents
from harebell.protocol.v091.codec import decode_method
from harebell.protocol.v091.hot import DELIVER, GET_OK, ClientFrames, DeliverReader

__all__ = ["ChannelCore", "ConnectionCore", "ConsumerCore", "Reply", "Slot", "fresh"]

logger = logging.getLogger("harebell.client")

Reply = m.Method | Delivery

REPLIES: Final[dict[type[m.Method], tuple[type[m.Method], ...]]] = {
    **m.REPLIES,
    m.BasicRecover: (m.BasicRecoverOk,),
}


def fresh(error: errors.HarebellError) -> errors.HarebellError:
    """The same error as another object: one raised in two places would mix up their tracebacks."""
    if isinstance(error, errors.RemoteProtocolError):
        answer = error.answer
        return errors.RemoteProtocolError(type(answer), answer.detail, answer.class_id, answer.method_id, error.channel)
    return copy.copy(error)


def _raw(tag: str) -> bytes:
    return tag.encode("utf-8", "surrogateescape")


def _ignore(returned: Returned) -> None:
    """Its publication's confirm answers for it."""


class Slot:
    """One request that waits for its reply."""

    __slots__ = ("abandoned", "done", "error", "reply", "request")

    def __init__(self, request: m.Method) -> None:
        self.request = request
        self.reply: Reply | None = None
        self.error: errors.HarebellError | None = None
        self.done = False
        self.abandoned = False

    def resolve(self, reply: Reply) -> None:
        self.reply = reply
        self.done = True

    def fail(self, error: errors.HarebellError) -> None:
        self.error = error
        self.done = True


class ConsumerCore:
    """One subscription: where its deliveries go.

    append       called with each delivery
    ended        called once with the reason when the broker cancelled it or the channel died; None after our own cancel
    interrupted  called instead when another wire channel will take the place of this one
    forget       called when the broker takes back what it delivered: drops what nobody was handed, and gives its tags
    """

    __slots__ = ("answered", "append", "cancelling", "ended", "forget", "interrupted", "no_ack", "queue", "tag")

    def __init__(
        self,
        tag: str,
        queue: str,
        no_ack: bool,
        append: Callable[[Delivery], None],
        ended: Callable[[errors.HarebellError | None], None],
        forget: Callable[[], Iterable[int]],
        interrupted: Callable[[], None] = lambda: None,
    ) -> None:
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.append = append
        self.ended = ended
        self.forget = forget
        self.interrupted = interrupted
        self.answered = False  # its consume-ok is there
        self.cancelling = False


class Observer(Protocol):
    """Who hears of what the broker does to a channel, beside those whom it is for."""

    def returned(self, returned: Returned, otherwise: Callable[[Returned], None]) -> None: ...
    def cancelled(self, consumer_tag: str, queue: str) -> None: ...
    def flowing(self, active: bool) -> None: ...


class ChannelCore:
    """One wire channel of one connection; it never comes back once `reason` is set.

    reason     why it is closed; None while it can be used
    keeper     asked once when it closes without our doing: whether another one will take its place; None is no
    on_return  takes what the broker gave back and no confirm answers for (confirms are off); logged when None
    observer   hears of returns, cancels and flow
    settler    what deliveries are acknowledged through: the core, or the face that wants to hear of it
    active     whether publishes may go out: the broker let them flow (channel.flow), and the channel is `ready`
    ready      False while a face is still putting back what the channel before this one had
    """

    def __init__(
        self,
        connection: ConnectionCore,
        number: int,
        deliveries: Deliveries | None = None,
        publishes: Publishes | None = None,
        renamed: dict[str, str] | None = None,
    ) -> None:
        self.connection = connection
        self.number = number
        self.reason: errors.HarebellError | None = None
        self.keeper: Callable[[ChannelCore, errors.HarebellError], bool] | None = None
        self.on_return: Callable[[Returned], None] | None = None
        self.observer: Observer | None = None
        self.settler: Acknowledger = self
        self.frames = ClientFrames(number, renamed)
        self.deliveries = deliveries = deliveries or Deliveries()
        self.publishes = publishes or Publishes()
        self.slots: deque[Slot] = deque()
        self.consumers: dict[bytes, ConsumerCore] = {}
        self.active = self.ready = self._flowing = True
        self._outgoing = connection.engine.outgoing
        self._reader = DeliverReader()
        self._names = self._reader.names
        self._offset = self._last_tag = deliveries.offset
        self._unacked = self._at_once = deliveries.unacked  # `_at_once`: what is settled without another thought
        self._ack = self.frames.ack_prefix.replace(b"%", b"%%") + b"%b\x00\xce"
        self.tags_given = 0

    # -- calls -------------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """ChannelClosed, caused by the reason, when the channel or its connection is closed."""
        if self.reason is not None:
            raise errors.ChannelClosed(f"channel {self.number} is closed: {self.reason}") from self.reason

    def request(self, slot: Slot) -> None:
        """Send the slot's request; the reply, or the reason why there is none, will be put into it."""
        self.check_open()
        self.connection.engine.send_method(self.number, slot.request)
        self.slots.append(slot)
        self.connection.ask()

    def abandon(self, slot: Slot) -> None:
        """Nobody waits for this reply any more: it is dropped when it comes, and what it grants is given back."""
        slot.abandoned = True
        if self.reason is not None:
            return
        request = slot.request
        if isinstance(request, m.ChannelOpen):
            self.close()
        elif isinstance(request, m.BasicConsume):
            consumer = self.consumers.get(_raw(request.consumer_tag))
            if consumer is not None:
                self.cancel_unheard(consumer)
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
        self.tags_given += 1
        return f"harebell-{self.number}.{self.tags_given}"

    def consume(self, slot: Slot, consumer: ConsumerCore) -> None:
        """Subscribe: deliveries may come before the caller sees the consume-ok, so the consumer is known at once."""
        self.check_open()
        key = _raw(consumer.tag)
        if key in self.consumers:
            raise errors.InvalidArgument(
                f"consumer tag {consumer.tag!r} is in use on channel {self.number}: leave it out, or take another"
            )
        self.consumers[key] = consumer
        try:
            self.request(slot)
        except errors.LocalProtocolError:
            del self.consumers[key]
            raise

    def cancel(self, slot: Slot, consumer: ConsumerCore) -> None:
        """Unsubscribe. What is still under way to the consumer goes back to the queue."""
        self.check_open()
        consumer.cancelling = True
        self.request(slot)

    def cancel_unheard(self, consumer: ConsumerCore) -> None:
        """Unsubscribe without waiting for the answer.

        Not before the consume-ok is there: a channel of RabbitMQ 3.10 breaks down (541) when a cancel overtakes that.
        """
        if self.reason is None and not consumer.cancelling:
            if not consumer.answered:
                consumer.cancelling = True
                return
            slot = Slot(m.BasicCancel(consumer.tag))
            slot.abandoned = True
            self.cancel(slot, consumer)

    def publish(
        self,
        raw_properties: bytes,
        body: bytes,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        waiter: PublishWaiter | None,
    ) -> int:
        """Put one message into the output, and give its publish tag (0 with confirms off). The caller flushes."""
        if self.reason is not None:
            self.check_open()
        method = self.frames.publish(exchange, routing_key, mandatory)
        content = encode_content(self.number, raw_properties, body, self.connection.engine.frame_max)
        tag = self.publishes.add(waiter, method, raw_properties, body, mandatory) if self.publishes.confirming else 0
        self._outgoing += (method, content)  # both or none, whatever interrupts a thread here
        return tag

    def publish_bulk(
        self,
        raw_properties: Sequence[bytes],
        bodies: Sequence[bytes],
        exchange: str | Sequence[str],
        routing_key: str | Sequence[str],
        mandatory: bool,
        waiter: PublishWaiter,
    ) -> int:
        """Put many messages into the output, all or none, and give the first one's publish tag (0 with confirms off).

        exchange, routing_key  one for all, or one for each. The caller flushes.
        """
        if self.reason is not None:
            self.check_open()
        count, frame = len(bodies), self.frames.publish
        if isinstance(exchange, str) and isinstance(routing_key, str):
            methods = [frame(exchange, routing_key, mandatory)] * count
        else:
            exchanges = repeat(exchange, count) if isinstance(exchange, str) else exchange
            keys = repeat(routing_key, count) if isinstance(routing_key, str) else routing_key
            methods = [frame(name, key, mandatory) for name, key in zip(exchanges, keys, strict=True)]
        contents = encode_contents(self.number, raw_properties, bodies, self.connection.engine.frame_max)
        pieces = list(chain.from_iterable(zip(methods, contents, strict=True)))
        first = 0
        if self.publishes.confirming:
            first = self.publishes.add_many(waiter, methods, raw_properties, bodies, mandatory)
        self._outgoing += pieces
        return first

    # -- acknowledgements --------------------------------------------------------------------------------------------

    # Tags are public here. AcknowledgeOrphans when some can no longer reach the broker; the others have been sent.

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        unacked = self._at_once  # empty once the channel is closed
        if multiple or delivery_tag not in unacked:
            self._settle(delivery_tag, multiple, lambda tag: self.frames.ack(tag, multiple))
            return
        unacked.remove(delivery_tag)
        self._outgoing.append(self._ack % (delivery_tag - self._offset).to_bytes(8, "big"))
        self.connection.flush()

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._settle(delivery_tag, multiple, lambda tag: self.frames.nack(tag, multiple, requeue))

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        self._settle(delivery_tag, False, lambda tag: self.frames.reject(tag, requeue))

    def _settle(self, delivery_tag: int, multiple: bool, frame: Callable[[int], bytes]) -> None:
        if delivery_tag < 0:
            raise errors.InvalidArgument(f"delivery tag {delivery_tag}: tags are 1 and up")
        if self.reason is None:
            self.deliveries.last_tag = self._last_tag
        send, error = self.deliveries.settle(delivery_tag, multiple)
        if send:
            self.check_open()
            self._outgoing.append(frame(delivery_tag - self._offset if delivery_tag else 0))
            self.connection.flush()
        if error is not None:
            raise error

    def give_back(self, delivery: Delivery) -> None:
        """Put a delivery that nobody will handle back into its queue.

        A stream queue takes nothing back (540, and the connection is gone) and lost nothing either: its deliveries,
        known by their offset, are left as they are.
        """
        if delivery.stream_offset is None:
            ChannelCore.nack(self, delivery.delivery_tag)  # not the program's: no middleware hears of it

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
            self._last_tag = tag = int.from_bytes(payload[at : at + 8], "big") + self._offset
            consumer = self.consumers.get(raw_tag)
            if consumer is None:
                logger.warning("channel %d: a delivery for unknown consumer %r was given back", self.number, raw_tag)
                self.give_back(Delivery(content, self, "", tag, redelivered, exchange, routing_key))
                return
            if not consumer.no_ack:
                self._unacked.add(tag)
            delivery = Delivery(content, self.settler, consumer.tag, tag, redelivered, exchange, routing_key)
            if not consumer.cancelling:
                consumer.append(delivery)
            elif not consumer.no_ack:
                self.give_back(delivery)
        elif key == GET_OK:
            method = cast(m.BasicGetOk, decode_method(payload, self.number))
            tag = self._last_tag = method.delivery_tag + self._offset
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

    def _set_active(self) -> None:
        self.active = self._flowing and self.ready and self.reason is None
        if self.active:
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
            self.publishes.confirming = True
        elif kind is m.ChannelCloseOk:
            self.connection.forget(self)
        elif kind is m.BasicConsumeOk:
            self._subscribed(cast(m.BasicConsume, slot.request).consumer_tag)
        elif kind is m.TxSelectOk or kind is m.TxCommitOk:
            self._at_once = set()
            self.deliveries.begin()
        elif kind is m.TxRollbackOk:
            self.deliveries.rolled_back()
        elif kind is m.BasicRecoverOk:
            self.deliveries.invalidated(self._forget_buffered())
        elif isinstance(reply, Delivery) and not cast(m.BasicGet, slot.request).no_ack:
            self._unacked.add(reply.delivery_tag)
        if slot.abandoned:
            self._give_back(slot, reply)
        else:
            slot.resolve(reply)

    def _slot_for(self, kind: type[m.Method], reply: Reply) -> Slot | None:
        """Who waits for this reply (rule 1); None when nobody does."""
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
                self.cancel_unheard(consumer)

    def _give_back(self, slot: Slot, reply: Reply) -> None:
        if isinstance(reply, Delivery) and not cast(m.BasicGet, slot.request).no_ack and self.reason is None:
            self.give_back(reply)

    def _end_consumer(self, tag: str, reason: errors.HarebellError | None) -> None:
        consumer = self.consumers.pop(_raw(tag), None)
        if consumer is not None:
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
                    "the queue was deleted or moved; declare it and consume again"
                ),
            )

    def _returned(self, content: Content) -> None:
        method = cast(m.BasicReturn, decode_method(content.method, self.number))
        returned = Returned(content, method.reply_code, method.reply_text, method.exchange, method.routing_key)
        frame = self.frames.publish(method.exchange, method.routing_key, True)
        self.publishes.returns += 1
        answered = self.publishes.returned(frame, content.raw_properties, returned)
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

    def _forget_buffered(self) -> list[int]:
        return [tag for consumer in self.consumers.values() if not consumer.no_ack for tag in consumer.forget()]

    def _fail(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        """The channel is closed for good: everything that waits on it gets the reason; our own close ends consumers."""
        self.reason = reason
        self.active = False
        kept = not ours and self.keeper is not None and self.keeper(self, reason)
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if not slot.abandoned:
                slot.fail(fresh(reason))
        if kept and not isinstance(reason, errors.ChannelError):
            self.publishes.orphan()
        else:  # the broker closed the channel with a reason: it answers for what was published
            self.publishes.fail(reason)
        self.deliveries.last_tag = self._last_tag
        if kept:
            self.deliveries.lost(self._forget_buffered())
        else:
            self.deliveries.orphaned += len(self._unacked)
            self._unacked.clear()
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            if kept and not consumer.cancelling:
                consumer.interrupted()
            else:
                consumer.ended(None if ours or kept else fresh(reason))
        self.connection.resumed()

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


class ConnectionCore:
    """One connection, from the protocol header to the end; it never comes back once `reason` is set.

    reason   why it is closed; None before that
    blocked  the broker's reason for taking no publishes now (connection.blocked); None when it does
    """

    def __init__(self, parameters: ConnectionParameters) -> None:
        self.parameters = parameters
        self.engine = Engine(Role.CLIENT)
        self.handshake = Handshake(self.engine, parameters)
        self.channels: dict[int, ChannelCore] = {}
        self.reason: errors.HarebellError | None = None
        self.blocked: str | None = None
        self.slots: deque[Slot] = deque()
        self._free: list[int] = []
        self._highest = 0

    # -- hooks of the face -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Something is in `engine.outgoing`: have it written."""

    def expecting(self) -> None:
        """An answer will be waited for."""

    def ask(self) -> None:
        """Something is in `engine.outgoing` whose answer will be waited for: have it written."""
        self.expecting()
        self.flush()

    def resumed(self) -> None:
        """Publishers that were held up (blocked, flow) should look again."""

    def closed(self) -> None:
        """The connection has ended: close the transport once the output is written."""

    def ending(self, reason: errors.HarebellError) -> None:
        """The connection ends without our doing; its channels are told next."""

    def blocking(self) -> None:
        """`blocked` has changed."""

    # -- calls -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.handshake.start()
        self.flush()

    @property
    def open(self) -> bool:
        return self.handshake.done and self.reason is None

    def check_open(self) -> None:
        if self.reason is not None:
            peer = self.parameters.peer
            raise errors.ChannelClosed(f"the connection to {peer} is closed: {self.reason}") from self.reason

    def new_channel(self, slot: Slot, make: Callable[[ConnectionCore, int], ChannelCore]) -> ChannelCore:
        """A channel with the next free number, its open on its way. InvalidArgument when all numbers are in use."""
        self.check_open()
        if self._free:
            number = self._free.pop()
        elif self._highest < self.engine.channel_max:
            self._highest += 1
            number = self._highest
        else:
            raise errors.InvalidArgument(
                f"all {self.engine.channel_max} channels that were agreed on are open: close some, or connect again"
            )
        channel = make(self, number)
        self.channels[number] = channel
        channel.request(slot)
        return channel

    def forget(self, channel: ChannelCore) -> None:
        """The channel's number may be used again."""
        if self.channels.pop(channel.number, None) is not None:
            self._free.append(channel.number)

    def request(self, slot: Slot) -> None:
        """Send a request on channel 0 (update-secret)."""
        self.check_open()
        self.engine.send_method(0, slot.request)
        self.slots.append(slot)
        self.ask()

    def answer(self, number: int, method: m.Method) -> None:
        """Answer what the broker said, unless something it said after that, in the same read, makes it pointless."""
        try:
            self.engine.send_method(number, method)
        except errors.LocalProtocolError:
            return
        self.flush()

    def close(self, slot: Slot) -> None:
        """Send connection.close and fail what waits on any channel; the slot gets the close-ok."""
        self.check_open()
        self.engine.send_method(0, m.ConnectionClose(200, "closed by the client"))
        self._fail(errors.ChannelClosed("the connection was closed by this client"), ours=True)
        self.slots.append(slot)
        self.ask()

    # -- what the broker sends ---------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Sort what was read. A protocol error of the broker's closes the connection, with that error as reason."""
        confirm = self.engine.lone_confirm(data)
        if confirm is not None:
            number, tag, multiple = confirm
            if (channel := self.channels.get(number)) is not None:
                channel.publishes.settle(tag, multiple, True)
            return
        violation: errors.RemoteProtocolError | None = None
        try:
            self.engine.receive_data(data)
        except errors.RemoteProtocolError as error:
            violation = error
        try:
            self._dispatch(self.engine.events())
        except errors.RemoteProtocolError as error:
            violation = error
        if violation is not None:
            self._violated(violation)

    def _dispatch(self, events: Sequence[tuple[int, m.Method | Content | OversizedContent]]) -> None:
        channels = self.channels
        for number, event in events:
            if number == 0:
                self._receive_method(cast(m.Method, event))
                continue
            channel = channels.get(number)
            if channel is None:
                continue
            if isinstance(event, Content):
                channel.receive_content(event)
            elif isinstance(event, m.Method):
                channel.receive_method(event)
            else:
                raise errors.RemoteProtocolError(
                    errors.ContentTooLarge,
                    f"a message of {event.body_size} bytes was announced, the limit is {self.engine.max_message_size}",
                )

    def _receive_method(self, method: m.Method) -> None:
        if isinstance(method, m.ConnectionCloseOk):
            slots, self.slots = self.slots, deque()
            for slot in slots:
                slot.resolve(method)
            self.closed()
        elif not self.handshake.done:
            try:
                self.handshake.receive(method)
            except errors.LocalProtocolError as error:
                if self.engine.state is not ConnectionState.CLOSED_BY_SERVER:  # else its close comes next, and says why
                    self._fail(error)
                    self.closed()
            except errors.AmqpError as error:
                self._fail(error)
                self.flush()
                self.closed()
            else:
                self.flush()
                if self.handshake.done:
                    self.resumed()
        elif isinstance(method, m.ConnectionClose):
            self.answer(0, m.ConnectionCloseOk())
            if self.reason is not None:
                return
            reason = errors.from_reply(method.reply_code, method.reply_text, method.class_id, method.method_id)
            reason.add_note(f"{self.parameters.peer} closed the connection")
            self._fail(reason)
            self.closed()
        elif isinstance(method, m.ConnectionBlocked):
            self.blocked = method.reason or "no reason given"
            self.blocking()
        elif isinstance(method, m.ConnectionUnblocked):
            self.blocked = None
            self.blocking()
            self.resumed()
        elif self.slots and type(method) in REPLIES.get(type(self.slots[0].request), ()):
            slot = self.slots.popleft()
            if not slot.abandoned:
                slot.resolve(method)

    def _violated(self, error: errors.RemoteProtocolError) -> None:
        if self.reason is None:
            error.add_note(f"{self.parameters.peer} broke the protocol; the connection was closed")
            self._fail(error)
            try:
                answer = error.answer
                self.engine.send_method(
                    0, m.ConnectionClose(answer.reply_code, answer.reply_text, answer.class_id, answer.method_id)
                )
            except errors.LocalProtocolError:
                pass  # too early or too late for a goodbye
            self.flush()
        self.closed()

    def lost(self, why: str, cause: BaseException | None = None) -> None:
        """The transport has ended, or does not answer: everything that waits fails with ConnectionLost."""
        if self.reason is None:
            hint = "" if self.handshake.done else f" while {self.handshake.stage}{self.handshake.lost_reason()}"
            error = errors.ConnectionLost(f"{self.parameters.peer}: {why}{hint}")
            error.__cause__ = cause
            self._fail(error)
        slots, self.slots = self.slots, deque()
        for slot in slots:  # our own close was not answered; it is closed all the same
            slot.resolve(m.ConnectionCloseOk())

    def _fail(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        self.reason = reason
        self.blocked = None
        if not ours:
            self.ending(reason)
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if not slot.abandoned:
                slot.fail(fresh(reason))
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.connection_closed(reason, ours=ours)
        self.resumed()
