"""The asyncio API: a channel.

Methods carry the protocol's names (class_method), flags are keywords, and each takes `timeout` in seconds (the
connection's when left out). Acknowledgements are not awaited: they are written with everything else at the end of the
loop's turn.

A channel lives on when its connection comes back, and when the broker closes it with an error: the call that failed,
and the other calls that waited there, raise the error, later calls find it open again (`recovery.channel`). What
becomes of publications: `core.unconfirmed`.

The file is long because it has every method of a channel; what these use is elsewhere: calls (`recovery.requests`),
subscriptions (`recovery.subscriptions`), callbacks (`notifications`), `publish_many`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from harebell import errors
from harebell.client.callbacks import check_plain
from harebell.client.confirms import ORPHANED, AwaitedBatch, Bulk, Confirmations, Published
from harebell.client.consumer import Consumer
from harebell.client.core.channel import ChannelCore
from harebell.client.core.outcomes import address_of, late, nacked, orphaned, unroutable
from harebell.client.core.unconfirmed import PublishWaiter
from harebell.client.harness import ChannelHarness
from harebell.client.messages import (
    Confirmation,
    Delivery,
    Message,
    OnNack,
    OnOrphan,
    Publication,
    QueueInfo,
    Returned,
    encoded,
)
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import CancelEvent, CloseEvent, DialEvent, DisconnectEvent, FlowEvent
from harebell.client.notifications import ChannelNotifications, Stop
from harebell.client.prefetch import check_prefetch
from harebell.client.publish_many import CHUNK, PublishMany, flags_of
from harebell.client.recovery.channel import ChannelRecovery
from harebell.client.recovery.connection import ConnectionRecovery
from harebell.client.recovery.requests import Requests
from harebell.client.recovery.subscriptions import Subscriptions
from harebell.client.seconds import seconds_of
from harebell.client.statistics import ChannelStatistics, Tally
from harebell.client.transport.deadlines import EXPIRED
from harebell.client.transport.protocol import MAX_GATHERED, AsyncCore
from harebell.protocol.v091 import TableLike, methods as m

__all__ = ["Channel", "OnOrphan", "many_of"]

_M = TypeVar("_M", bound=m.Method)

# The methods that a middleware can stand around; acknowledgements are hooked below (`recovery.channel`).
METHODS: Final = (
    "close", "qos", "flow", "confirm_select", "queue_declare", "queue_inspect", "queue_delete", "queue_bind",
    "queue_unbind", "queue_purge", "exchange_declare", "exchange_delete", "exchange_bind", "exchange_unbind", "publish",
    "send", "publish_nowait", "publish_many", "get", "consume", "cancel", "recover", "tx_select", "tx_commit",
    "tx_rollback", "notify_close", "notify_dial", "notify_disconnect", "notify_publish", "notify_confirm",
    "notify_confirm_or_orphaned", "notify_return", "notify_cancel", "notify_flow",
)  # fmt: skip


class Channel:
    """A channel, over every wire channel that carries it. Made by `connection.channel`.

    parked  publications that were set aside, under on_orphan="park" and on_nack="park": (publish tag, publication), for
            the program to take out
    """

    # The client's own parts, and no public API: `core` and `transport` are the present wire channel and the transport
    # that it is on, which change at a reconnect; `requests`, `subscriptions`, `notifications`, `recovery` and `chains`
    # are what the methods stand on.

    def __init__(self, connection: ConnectionRecovery, transport: AsyncCore, core: ChannelCore, chains: Chains) -> None:
        self.transport = transport
        self.core = core
        self._settlement = core.settlement
        self.parked: deque[tuple[int, Publication]] = deque()
        self._unyielded = self._unyielded_sends = 0
        self._unnumbered = 0  # publications without confirms, but for the unyielded ones
        self._on_orphan: OnOrphan = "raise"
        self._on_nack: OnNack = "raise"
        self._confirmations: Confirmations | None = None
        self.chains = chains
        self.requests = Requests(connection.availability, transport, core)
        self.notifications = ChannelNotifications(self, chains)
        self.subscriptions = Subscriptions(self.requests, chains, self, connection.emit)
        self.recovery = ChannelRecovery(
            connection, self.requests, self.subscriptions, self.notifications, chains, self, _Carried(self)
        )
        self._deadlines = connection.availability.deadlines

    @property
    def number(self) -> int:
        """Of the wire channel; another one may have another number."""
        return self.core.number

    @property
    def is_open(self) -> bool:
        """Whether it can be used this moment; see `is_closed`."""
        return self.core.reason is None and self.core.ready

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good; False while it is coming back."""
        return self.requests.ended is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or coming back."""
        return self.requests.ended

    @property
    def on_return(self) -> Callable[[Returned], None] | None:
        """Takes what comes back of mandatory publications while confirms are off; with confirms on, publish raises."""
        return self.core.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], None] | None) -> None:
        if callback is not None:
            check_plain("on_return", callback, "returned")
        self.core.on_return = callback

    @property
    def consuming(self) -> set[str]:
        """The queues of its consumers."""
        return self.subscriptions.queues

    @property
    def consumer_tags(self) -> set[str]:
        """The tags of its consumers."""
        return self.subscriptions.tags

    def statistics(self) -> ChannelStatistics:
        """What the channel has published and got so far, in numbers."""
        subscriptions = self.subscriptions.active
        return ChannelStatistics(**self.recovery.tally(), consumers=len(subscriptions))

    def test(self) -> ChannelHarness:
        """What a test does to a channel: cut it, keep it down, count."""
        return ChannelHarness(self, self.recovery)

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the channel; unacknowledged deliveries go back to their queues. A closed one is no error."""
        transport = self.transport
        if self.requests.ended is not None:
            return
        seconds = seconds_of(timeout, transport.timeout)
        slot = self.recovery.say_goodbye()
        if slot is not None:
            await transport.reply(slot, seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            if self.requests.ended is None:
                self.recovery.say_goodbye()  # a cancelled task does not wait for the network
            return
        try:
            await self.close()
        except errors.HarebellError:
            if kind is None:
                raise

    async def flow(self, active: bool, *, timeout: float | None = None) -> None:
        """Ask the broker to hold deliveries back, or to go on. RabbitMQ refuses to hold back (540): use `qos` there."""
        await self._call(m.ChannelFlow(active), timeout)

    # -- exchanges and queues ----------------------------------------------------------------------------------------

    async def exchange_declare(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Declare the exchange. PreconditionFailed when it exists and differs; with `passive`, NotFound."""
        await self._call(
            m.ExchangeDeclare(name, type, passive, durable, auto_delete, internal, arguments=arguments), timeout
        )

    async def exchange_delete(self, name: str, *, if_unused: bool = False, timeout: float | None = None) -> None:
        """Delete the exchange and its bindings; a missing one is no error."""
        await self._call(m.ExchangeDelete(name, if_unused), timeout)

    async def exchange_bind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Route from exchange `source` to exchange `destination`. NotFound when either is missing."""
        await self._call(m.ExchangeBind(destination, source, binding_key, arguments=arguments), timeout)

    async def exchange_unbind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Undo `exchange_bind` with the same key and arguments."""
        await self._call(m.ExchangeUnbind(destination, source, binding_key, arguments=arguments), timeout)

    async def queue_declare(
        self,
        name: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> QueueInfo:
        """Declare the queue; "" lets the broker choose the name. With `passive` only ask: NotFound when missing.

        PreconditionFailed when it exists and differs, ResourceLocked when it is exclusive to another connection.
        The counts are the broker's of this moment, never remembered ones.
        """
        ok = await self._call(
            m.QueueDeclare(name, passive, durable, exclusive, auto_delete, arguments=arguments),
            timeout,
            m.QueueDeclareOk,
        )
        return QueueInfo(name or ok.queue, ok.message_count, ok.consumer_count)

    async def queue_inspect(self, name: str, *, timeout: float | None = None) -> QueueInfo:
        """The queue's counts at this moment: a passive declare. NotFound when it is missing."""
        ok = await self._call(m.QueueDeclare(name, passive=True), timeout, m.QueueDeclareOk)
        return QueueInfo(name, ok.message_count, ok.consumer_count)

    async def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Route from the exchange to the queue. NotFound when either is missing."""
        await self._call(m.QueueBind(queue, exchange, binding_key, arguments=arguments), timeout)

    async def queue_unbind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Undo `queue_bind` with the same key and arguments."""
        await self._call(m.QueueUnbind(queue, exchange, binding_key, arguments), timeout)

    async def queue_purge(self, name: str, *, timeout: float | None = None) -> int:
        """Drop the ready messages; how many there were."""
        return (await self._call(m.QueuePurge(name), timeout, m.QueuePurgeOk)).message_count

    async def queue_delete(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> int:
        """Delete the queue; how many messages were in it. PreconditionFailed when an `if_` does not hold."""
        return (await self._call(m.QueueDelete(name, if_unused, if_empty), timeout, m.QueueDeleteOk)).message_count

    async def message_count(self, name: str, *, timeout: float | None = None) -> int:
        """How many messages are ready in the queue at this moment, asked of the broker each time. NotFound."""
        return (await self.queue_declare(name, passive=True, timeout=timeout)).message_count

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def qos(
        self,
        *,
        prefetch_count: int = 0,
        prefetch_size: int = 0,
        global_: bool = False,
        timeout: float | None = None,
    ) -> None:
        """How many unacknowledged deliveries each later consumer (`global_`: the channel) may have; 0 is no limit."""
        count = check_prefetch(prefetch_count, "prefetch_count")
        await self._call(m.BasicQos(prefetch_size, count, global_), timeout)

    def consume(
        self,
        queue: str,
        *,
        prefetch: int | None = None,
        no_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """An iterator over what the queue delivers: `async for delivery in channel.consume("work", prefetch=500)`.

        prefetch   how many unacknowledged deliveries may be under way; None keeps what `qos` said
        no_ack     the broker forgets a message once it is sent
        timeout    seconds for subscribing; waiting for a delivery has no deadline
        """
        return Consumer(
            self.subscriptions,
            self.cancel,
            queue,
            prefetch=None if prefetch is None else check_prefetch(prefetch),
            no_ack=no_ack,
            exclusive=exclusive,
            consumer_tag=consumer_tag,
            arguments=arguments,
            timeout=timeout,
        )

    async def cancel(self, consumer_tag: str, *, requeue: bool = True, timeout: float | None = None) -> None:
        """End the subscription of this tag, as `Consumer.cancel` does. InvalidArgument when the channel has none."""
        for subscription in self.subscriptions.active:
            if subscription.tag == consumer_tag:
                await self.subscriptions.cancel(subscription, requeue, timeout)
                return
        raise errors.InvalidArgument(f"channel {self.number} has no consumer {consumer_tag!r}: see `consumer_tags`")

    async def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is cancelled, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """
        reply = await self.requests.ask(m.BasicGet(queue, no_ack), timeout)
        return reply if isinstance(reply, Delivery) else None

    # These three raise AcknowledgeOrphans when deliveries among them came on a connection that was lost: the broker
    # delivers those again. The others have been settled all the same.

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """Acknowledge this delivery; with `multiple`, with every earlier one that the channel has handed out.

        What still lies in a consumer's buffer is never among them. LocalProtocolError, and nothing is sent, for a
        delivery that was settled before (the text names how), or that the program has not got.
        """
        self._settlement.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse this delivery; with `multiple`, every earlier one that the channel has handed out. As `ack` raises."""
        self._settlement.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        """Refuse this delivery: dead-lettered or dropped, or back into the queue. As `ack` raises."""
        self._settlement.reject(delivery_tag, requeue=requeue)

    async def recover(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        """Have every unacknowledged delivery of the channel delivered again; their old tags are no longer valid."""
        await self._call(m.BasicRecover(requeue), timeout)

    async def drain(self, *, timeout: float | None = None) -> None:
        """Write everything so far, acks included, to the transport, and wait while that is full."""
        seconds_of(timeout, 0.0)  # what is no number is refused, whether it has to wait or not
        self.transport.flush_now()
        if self.transport.writing_paused or not self.core.active:
            await self._may_publish(timeout)

    async def _may_publish(self, timeout: float | None) -> ChannelCore:
        """Wait until publishes may be written, at most `timeout` seconds."""
        transport = self.transport
        seconds = seconds_of(timeout, transport.timeout)
        return await self.requests.may_publish(transport.loop.time() + seconds, seconds)

    # -- publishing --------------------------------------------------------------------------------------------------

    async def confirm_select(
        self, *, on_orphan: OnOrphan = "raise", on_nack: OnNack = "raise", timeout: float | None = None
    ) -> None:
        """Have the broker confirm each publication from now on; `publish` then waits for it.

        on_orphan  when a publication was written and gets no answer, because the connection is lost or the channel is
                   closed before that, it may or may not have arrived: "raise" PublishOrphaned; "retry": publish it
                   again once the channel is back, so that it may arrive twice; "park": set it aside in
                   `channel.parked`, and go on
        on_nack    when the broker refuses one (its queue is full, or a quorum queue has no leader): "raise" Nacked;
                   "retry": publish it again, after pauses of up to 10 s; "park": set it aside, too

        Both hold for whatever method publishes. A publication keeps its tag when it is published again.

        What is published once this was written to the transport is confirmed, before the answer as well. A call that is
        cancelled, or whose time is over, after that has put the channel into this mode all the same.
        """
        for name, given in (("on_orphan", on_orphan), ("on_nack", on_nack)):
            if given not in ("raise", "retry", "park"):
                raise errors.InvalidArgument(f"{name}={given!r}: raise, retry or park is needed")

        def written() -> None:
            self.requests.confirming = True
            self._on_orphan, self._on_nack = on_orphan, on_nack
            self.recovery.keep(on_orphan, on_nack, self.parked)

        await self.requests.ask(m.ConfirmSelect(), timeout, written)

    async def publish(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
    ) -> Confirmation | None:
        """Publish one message.

        mandatory  have it come back when it reaches no queue
        immediate  have it come back when no consumer is ready for it; LocalProtocolError on RabbitMQ, which has no such
                   thing and would close the connection (540)

        With confirms on, wait for the broker's: Nacked when it refuses, Unroutable when the message comes back,
        PublishOrphaned (or what `confirm_select` said) when it was written and there will be no answer, ConfirmTimeout
        when none came within the timeout: in both cases it may or may not have arrived. The broker's own error when it
        closes the channel because of this message. With confirms off, give None once it is on its way to the transport.

        Waits while the broker or the transport takes nothing, or there is no connection: DeadlineExceeded,
        ConnectionLost and ChannelClosed say that nothing was sent.

        LocalProtocolError, and nothing is sent, when the message does not fit the wire: a property its type, or all
        properties together a frame (`frame_max`, agreed on with the broker). So it is with every way to publish.
        """
        transport, core = self.transport, self.core
        raw, body = encoded(message)
        flags: int = mandatory
        if immediate:
            flags = flags_of(mandatory, immediate)
        seconds = seconds_of(timeout, transport.timeout)
        deadline: float | None = None
        if transport.writing_paused or transport.blocked is not None or not core.active:
            deadline = transport.loop.time() + seconds
            core = await self.requests.may_publish(deadline, seconds)
            transport = self.transport
        if not core.publishes.confirming:
            core.publish(raw, body, exchange, routing_key, flags, None)
            transport.flush(len(body))
            self._unyielded += 1
            if self._unyielded >= CHUNK or transport.engine.pending >= MAX_GATHERED:
                await self._yield()
            return None
        if deadline is None:
            deadline = transport.loop.time() + seconds
        future: asyncio.Future[object] = transport.loop.create_future()
        published = Published(future)
        tag = core.publish(raw, body, exchange, routing_key, flags, published)
        transport.ask(len(body))
        key = self._deadlines.add(future, deadline)
        try:
            result = await future
        except asyncio.CancelledError:
            self.requests.abandon(core, tag)
            raise
        finally:
            self._deadlines.remove(key, future)
        if result is True and published.returns is None:
            return Confirmation(tag, True)
        if result is EXPIRED:
            self.requests.abandon(core, tag)
            raise late(tag, self.transport.late(f"confirm of publication {tag}", seconds))
        if isinstance(result, errors.HarebellError):
            raise result
        address = address_of(exchange, routing_key)
        if result is ORPHANED:
            assert published.reason is not None  # it comes with the result
            if self._on_orphan == "park":
                return Confirmation(tag, False, orphaned=True, error=published.reason)
            raise orphaned(tag, address, published.reason)
        if published.returns is not None:
            raise unroutable(tag, address, published.returns)
        if self._on_nack == "park":
            return Confirmation(tag, False)
        raise nacked(tag, address)

    async def _yield(self) -> None:
        """Write what was published, and give other tasks their turn."""
        self._unnumbered += self._unyielded
        self._unyielded = self._unyielded_sends = 0
        if not self.transport.stepped:
            self.transport.flush_now()
        await asyncio.sleep(0)

    def confirmations(self) -> Confirmations:
        """What becomes of the publications of `send`: `async for confirmation in channel.confirmations()`.

        Each has one Confirmation, whatever becomes of it and of the channel.
        """
        if self._confirmations is None:
            self._confirmations = Confirmations(self.transport.loop)
            self.requests.mode_changes += 1
        return self._confirmations

    async def send(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Publish one message without waiting for its confirm, and give its publish tag; see `confirmations`.

        Waits while the broker or the transport takes nothing, or there is no connection.
        LocalProtocolError unless confirms are on and `confirmations` was asked for.
        """
        if self._confirmations is None or not self.requests.confirming:
            raise errors.LocalProtocolError("send() needs `await confirm_select()` and `confirmations()` before it")
        if timeout is not None:
            seconds_of(timeout, 0.0)
        raw, body = encoded(message)
        core, transport = self.core, self.transport
        if not (transport.may_publish(core) and core.publishes.confirming):
            core = await self._may_publish(timeout)
            transport = self.transport
        flags: int = mandatory
        if immediate:
            flags = flags_of(mandatory, immediate)
        tag = core.publish(raw, body, exchange, routing_key, flags, self._confirmations)
        transport.expecting()
        transport.flush(len(body))
        self._unyielded_sends += 1
        if self._unyielded_sends >= CHUNK or transport.engine.pending >= MAX_GATHERED:
            await self._yield()
        return tag

    def publish_nowait(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        raw_properties: bytes | None = None,
        waiter: PublishWaiter | None = None,
        at_once: bool = False,
    ) -> int:
        """Write one publication without waiting, and give its publish tag (0 with confirms off).

        raw_properties  in place of the message's own, as `Delivery.raw_properties` has them; they are not decoded
        waiter          with confirms on, is called when it comes back, and once more, with its end
        at_once         write to the socket now, if it has been quiet: for a single publication, not for one of many

        For programs that limit by themselves how many are unconfirmed: this never waits, so call `wait_publish` first.
        """
        raw, body = encoded(message)
        if raw_properties is not None:
            raw = raw_properties
        flags: int = mandatory
        if immediate:
            flags = flags_of(mandatory, immediate)
        tag = self.core.publish(raw, body, exchange, routing_key, flags, waiter)
        if not tag:
            self._unnumbered += 1
        transport = self.transport
        if at_once:
            transport.ask(len(body))
        else:
            transport.expecting()
            transport.flush(len(body))
        return tag

    async def publish_bulk(
        self,
        bodies: Sequence[bytes],
        raw_properties: Sequence[bytes],
        exchange: str | Sequence[str] = "",
        routing_key: str | Sequence[str] = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> Bulk:
        """Write many messages at once, without waiting for their confirms, and give what becomes of them.

        For programs that have columns rather than messages (`protocol.v091.bulk` encodes properties by column): no
        object is made per message, which costs about a third of `publish_many`.

        raw_properties  of each message, as `Properties.encode` gives them; they are not decoded
        exchange, routing_key  one for all messages, or one for each

        All are written, or none: LocalProtocolError when the properties of one do not fit a frame. Waits, at most
        `timeout` seconds, while the broker or the transport takes nothing; how many are under way is up to the caller,
        which waits for earlier ones (`Bulk.wait`). No middleware stands around this call.
        """
        seconds_of(timeout, 0.0)
        if len(bodies) != len(raw_properties):
            raise errors.InvalidArgument(f"{len(bodies)} bodies and {len(raw_properties)} raw_properties: one of each")
        for name, given in (("exchange", exchange), ("routing_key", routing_key)):
            if not isinstance(given, str) and len(given) != len(bodies):
                raise errors.InvalidArgument(f"{name} has {len(given)} values for {len(bodies)} messages")
        core, transport = self.core, self.transport
        if not transport.may_publish(core):
            core = await self._may_publish(timeout)
            transport = self.transport
        bulk = Bulk(len(bodies), transport.loop)
        flags = flags_of(mandatory)
        if "publish" in vars(core) or core.keeper is not None:  # each has callbacks or middlewares, or is kept
            transport.engine.check_properties(raw_properties)
            places = [*zip(_each(exchange, len(bodies)), _each(routing_key, len(bodies)), strict=True)]
            for to, key in places:
                core.frames.publish(to, key, flags)  # raises before any is written
            for raw, body, (to, key) in zip(raw_properties, bodies, places, strict=True):
                tag = core.publish(raw, body, to, key, flags, bulk)
                bulk.begin(bulk.first_tag or tag)
        else:
            bulk.begin(core.publish_bulk(raw_properties, bodies, exchange, routing_key, flags, bulk))
        if not bulk.first_tag:
            self._unnumbered += len(bodies)
        transport.expecting()
        transport.flush_now()
        return bulk

    @property
    def may_publish(self) -> bool:
        """Whether the broker and the transport take publications now."""
        return self.transport.may_publish(self.core)

    async def wait_publish(self, *, timeout: float | None = None) -> None:
        """Wait until the broker and the transport take publications, an outage included.

        DeadlineExceeded, ChannelClosed.
        """
        seconds_of(timeout, 0.0)
        if not self.transport.may_publish(self.core):
            await self._may_publish(timeout)

    async def publish_many(
        self,
        publications: Iterable[Publication] | AsyncIterable[Publication],
        *,
        window: int = 5000,
        timeout: float | None = None,
    ) -> int:
        """Publish all of them, and count them once all are confirmed (confirms off: handed to the transport).

        window   how many may be unconfirmed at a time
        timeout  seconds for the whole of it, the source of the publications included

        All are sent even when some are refused or orphaned; then PublishOrphaned, Nacked, the broker's own error or
        Unroutable is raised, whose `failures` have the error of each that was not confirmed, by its position. Those
        that `confirm_select` has set aside are not counted.

        When it ends early, what was written is waited for, and then the reason is raised: what the source of the
        publications raised, LocalProtocolError for a message that does not fit the wire, ChannelClosed. When the time
        is over it is ConfirmTimeout, or DeadlineExceeded where all that was written is confirmed. `sent` of each of
        these errors, and of PublishOrphaned, counts what was written; what comes after it was never sent.
        """
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        seconds = seconds_of(timeout, self.transport.timeout)
        return await many_of(self, window, seconds).run(publications)

    # -- callbacks ---------------------------------------------------------------------------------------------------

    def notify_close(self, callback: Callable[[CloseEvent], None]) -> Stop:
        """Have it called once, when this is closed for good; at once when it is closed already.

        Like all `notify_` methods this gives a function that ends it.
        """
        return self.notifications.on_close(callback)

    def notify_dial(self, callback: Callable[[DialEvent], None]) -> Stop:
        """Have it called after each attempt to open the channel again, whether it was successful or not."""
        return self.notifications.on("dial", callback)

    def notify_disconnect(self, callback: Callable[[DisconnectEvent], None]) -> Stop:
        """Have it called at each loss, whether this comes back or not."""
        return self.notifications.on("disconnect", callback)

    def notify_publish(self, callback: Callable[[Confirmation], None]) -> Stop:
        """Have it called with the Confirmation of each publication from now on, whichever method published it."""
        return self.notifications.on("publish", callback)

    def notify_confirm(self, on_ack: Callable[[int], None], on_nack: Callable[[int], None]) -> Stop:
        """Have one of them called with the publish tag of each publication at its end: all but acked is nacked."""
        return self.notifications.on_confirm(on_ack, on_nack)

    def notify_confirm_or_orphaned(
        self, on_ack: Callable[[int], None], on_nack: Callable[[int], None], on_orphaned: Callable[[int], None]
    ) -> Stop:
        """As `notify_confirm`, with orphaned ones told apart: these may or may not have arrived."""
        return self.notifications.on_confirm_or_orphaned(on_ack, on_nack, on_orphaned)

    def notify_return(self, callback: Callable[[Returned], None]) -> Stop:
        """Have it called with each mandatory publication that comes back, with confirms on or off."""
        return self.notifications.on("return", callback)

    def notify_cancel(self, callback: Callable[[CancelEvent], None]) -> Stop:
        """Have it called when the broker cancels a consumer of the channel."""
        return self.notifications.on("cancel", callback)

    def notify_flow(self, callback: Callable[[FlowEvent], None]) -> Stop:
        """Have it called when publishing is held back, by the broker or by a loss, and when it goes on."""
        return self.notifications.on("flow", callback)

    # -- transactions ------------------------------------------------------------------------------------------------

    async def tx_select(self, *, timeout: float | None = None) -> None:
        """Make the channel transactional: publishes and acks take effect at tx_commit."""
        await self._call(m.TxSelect(), timeout)

    async def tx_commit(self, *, timeout: float | None = None) -> None:
        """Have everything since tx_select, or the last commit or rollback, take effect.

        TransactionLost when the connection was lost since then: nothing took effect, and what was done after the loss
        is rolled back with the rest; do the whole transaction again. Where the loss cut the commit itself, the text
        says that it may have taken effect.
        """
        await self._call(m.TxCommit(), timeout)

    async def tx_rollback(self, *, timeout: float | None = None) -> None:
        """Undo it instead. A transaction that a reconnect has cut is undone already."""
        await self._call(m.TxRollback(), timeout)

    async def _call(
        self,
        request: m.Method,
        timeout: float | None,
        reply: type[_M] = m.Method,  # type: ignore[assignment]
    ) -> _M:
        return cast(_M, await self.requests.ask(request, timeout))


def _each(value: str | Sequence[str], count: int) -> Sequence[str]:
    return [value] * count if isinstance(value, str) else value


def many_of(channel: Channel, window: int, seconds: float) -> PublishMany:
    """A call of `publish_many`, which the caller takes step by step."""
    batch = AwaitedBatch(parks=channel._on_orphan == "park", parks_nacked=channel._on_nack == "park")
    return PublishMany(channel.requests, batch, window=window, seconds=seconds)


class _Carried:
    """The channel as its recovery knows it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def carried_by(self, core: ChannelCore, transport: AsyncCore) -> None:
        channel = self._channel
        channel.core, channel.transport, channel._settlement = core, transport, core.settlement

    def restored(self, core: ChannelCore) -> None:
        self._channel.requests.confirming = core.publishes.confirming

    def tally(self) -> Tally:
        channel = self._channel
        unnumbered = channel._unnumbered + channel._unyielded + channel.requests.unnumbered
        return Tally(published=unnumbered, parked=len(channel.parked))

    def ended(self, reason: errors.HarebellError | None) -> None:
        if self._channel._confirmations is not None:
            self._channel._confirmations.end(reason)
