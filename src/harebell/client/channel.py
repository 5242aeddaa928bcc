"""The asyncio face: a channel.

Methods carry the protocol's names (class_method), flags are keywords, and each takes `timeout` in seconds (the
connection's when left out). Acknowledgements are not awaited: they are written with everything else at the end of the
loop's turn.

A channel lives on when its connection comes back, and when the broker closes it with an error: the call that failed,
and what else waited there, raises the error, later calls find it open again (`lasting`).

The file is long because it is the whole face of a channel, method after method; what these stand on is elsewhere:
subscriptions (`subscribing`), wire channels (`lasting`), being told (`notices`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, cast

from harebell import errors
from harebell.client.confirms import ORPHANED, AwaitedBatch, Bulk, Confirmations, KeptBatch, Published
from harebell.client.consumer import Consumer
from harebell.client.core.channel import ChannelCore
from harebell.client.core.slots import copy_of
from harebell.client.core.unconfirmed import PublishWaiter
from harebell.client.harness import ChannelHarness
from harebell.client.messages import Confirmation, Delivery, Message, Publication, QueueInfo, Returned, encoded
from harebell.client.recovery.subscriptions import SubscribingChannel
from harebell.client.statistics import ChannelStatistics, channel_statistics
from harebell.client.transport.deadlines import EXPIRED, Deadlines
from harebell.client.transport.protocol import MAX_GATHERED, AsyncCore, FutureSlot
from harebell.protocol.v091 import TableLike, methods as m

if TYPE_CHECKING:
    from harebell.client.connection import Connection
    from harebell.client.middleware.chain import Chains

__all__ = ["Channel", "OnOrphan"]

_M = TypeVar("_M", bound=m.Method)

OnOrphan = Literal["raise", "retry", "park"]

CHUNK: Final = 256  # publications encoded between two turns of the loop
# The methods that a middleware can stand around; acknowledgements are the core's (`lasting`).
METHODS: Final = (
    "close", "qos", "flow", "confirm_select", "queue_declare", "queue_inspect", "queue_delete", "queue_bind",
    "queue_unbind", "queue_purge", "exchange_declare", "exchange_delete", "exchange_bind", "exchange_unbind", "publish",
    "send", "publish_nowait", "publish_many", "get", "consume", "cancel", "recover", "tx_select", "tx_commit",
    "tx_rollback", "notify_close", "notify_dial", "notify_disconnect", "notify_publish", "notify_confirm",
    "notify_confirm_or_orphaned", "notify_return", "notify_cancel", "notify_flow",
)  # fmt: skip


class Channel(SubscribingChannel):
    """A channel, over every wire channel that carries it. Made by `connection.channel`.

    parked  orphaned publications under on_orphan="park": (publish tag, publication), for the program to take out
    """

    def __init__(self, owner: Connection, connection: AsyncCore, core: ChannelCore, chains: Chains) -> None:
        super().__init__(owner, connection, core, chains)
        self.parked: deque[tuple[int, Publication]] = deque()
        self._unyielded = self._unyielded_sends = 0
        self._unnumbered = 0  # publications without confirms, but for the unyielded ones
        self._on_orphan: OnOrphan = "raise"

    @property
    def is_open(self) -> bool:
        """Whether it can be used this moment; see `is_closed`."""
        return self._core.reason is None and self._core.ready

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good; False while it is coming back."""
        return self._ended is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or coming back."""
        return self._ended

    @property
    def on_return(self) -> Callable[[Returned], None] | None:
        """Takes what comes back of mandatory publications while confirms are off; with confirms on, publish raises."""
        return self._core.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], None] | None) -> None:
        self._core.on_return = callback

    def statistics(self) -> ChannelStatistics:
        """What the channel has published and got so far, in numbers."""
        return channel_statistics(self)

    def test(self) -> ChannelHarness:
        """What a test does to a channel: cut it, hold it down, count."""
        return ChannelHarness(self)

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the channel; unacknowledged deliveries go back to their queues. A closed one is no error."""
        connection = self._connection
        if self._ended is not None:
            return
        slot = self._say_goodbye()
        if slot is not None:
            await connection.reply(slot, timeout)

    def _say_goodbye(self) -> FutureSlot | None:
        """Close it, without waiting for the answer."""
        slot: FutureSlot | None = None
        if self._core.reason is None:
            slot = self._slot(m.ChannelClose())
            self._core.close(slot)
        self._end(errors.ChannelClosed(f"channel {self.number} was closed by this client"))
        return slot

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            if self._ended is None:
                self._say_goodbye()  # who is cancelled does not wait for the network
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
        """Have the exchange there: PreconditionFailed when it is there but different; with `passive`, NotFound."""
        await self._call(
            m.ExchangeDeclare(name, type, passive, durable, auto_delete, internal, arguments=arguments), timeout
        )

    async def exchange_delete(self, name: str, *, if_unused: bool = False, timeout: float | None = None) -> None:
        """Delete the exchange and its bindings; one that is not there is no error."""
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
        """Have the queue there; "" lets the broker choose the name. With `passive` only ask: NotFound when missing.

        PreconditionFailed when it is there but different, ResourceLocked when it is exclusive to another connection.
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
        await self._call(m.BasicQos(prefetch_size, prefetch_count, global_), timeout)

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
            self,
            queue,
            prefetch=prefetch,
            no_ack=no_ack,
            exclusive=exclusive,
            consumer_tag=consumer_tag,
            arguments=arguments,
            timeout=timeout,
        )

    async def cancel(self, consumer_tag: str, *, timeout: float | None = None) -> None:
        """End the subscription of this tag, as `Consumer.cancel` does. InvalidArgument when the channel has none."""
        for subscription in self._subscriptions:
            if subscription.tag == consumer_tag:
                await self._unsubscribe(subscription, timeout)
                return
        raise errors.InvalidArgument(f"channel {self.number} has no consumer {consumer_tag!r}: see `consumer_tags`")

    async def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is cancelled, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """
        reply = await self._ask(m.BasicGet(queue, no_ack), timeout)
        return reply if isinstance(reply, Delivery) else None

    # These three raise AcknowledgeOrphans when deliveries among them came on a connection that is gone: the broker
    # delivers those again. The others have been settled all the same.

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """Done with this delivery; with `multiple`, with every earlier one of the channel too."""
        self._core.settlement.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse this delivery; with `multiple`, every earlier one of the channel too."""
        self._core.settlement.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        """Refuse this delivery: dead-lettered or dropped, or back into the queue."""
        self._core.settlement.reject(delivery_tag, requeue=requeue)

    async def recover(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        """Have every unacknowledged delivery of the channel delivered again; their old tags are no longer valid."""
        await self._call(m.BasicRecover(requeue), timeout)

    async def drain(self, *, timeout: float | None = None) -> None:
        """Have what was written so far, acks included, go to the transport, and wait while that is full."""
        seconds = self._connection.timeout if timeout is None else timeout
        self._connection.flush_now()
        if self._connection.writing_paused or not self._core.active:
            await self._may_publish(seconds)

    # -- publishing --------------------------------------------------------------------------------------------------

    async def confirm_select(self, *, on_orphan: OnOrphan = "raise", timeout: float | None = None) -> None:
        """Have the broker confirm each publication from now on; `publish` then waits for it.

        on_orphan  when the connection is lost before the broker's answer, the message may or may not have arrived:
                   "raise" PublishOrphaned; "retry": publish it again, so that it may arrive twice; "park": set it aside
                   in `channel.parked`, and go on
        """
        if on_orphan not in ("raise", "retry", "park"):
            raise errors.InvalidArgument(f"on_orphan={on_orphan!r}: raise, retry or park is needed")
        await self._call(m.ConfirmSelect(), timeout)
        self._confirm = True
        self._on_orphan = on_orphan

    async def publish(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> Confirmation | None:
        """Publish one message.

        With confirms on, wait for the broker's: Nacked when it refuses, Unroutable when a mandatory message reached no
        queue, PublishOrphaned (or what `confirm_select` said) when the connection was lost meanwhile. After
        DeadlineExceeded the message may or may not have arrived. With confirms off, give None once it is on its way to
        the transport. Waits while the broker or the transport takes nothing, or there is no connection.

        LocalProtocolError, and nothing is sent, when the message does not fit the wire: a property its type, or all
        properties together a frame (`frame_max`, agreed on with the broker). So it is with every way to publish.
        """
        connection, core = self._connection, self._core
        raw, body = encoded(message)
        seconds = connection.timeout if timeout is None else timeout
        if connection.writing_paused or connection.blocked is not None or not core.active:
            began = connection.loop.time()
            core = await self._may_publish(seconds)
            connection = self._connection
            seconds -= connection.loop.time() - began
        if not core.publishes.confirming:
            core.publish(raw, body, exchange, routing_key, mandatory, None)
            connection.flush()
            self._unyielded += 1
            if self._unyielded >= CHUNK or connection.engine.pending >= MAX_GATHERED:
                await self._yield()
            return None
        future: asyncio.Future[object] = connection.loop.create_future()
        published = Published(future)
        tag = core.publish(raw, body, exchange, routing_key, mandatory, published)
        connection.ask()
        deadline = connection.deadlines.add(future, seconds)
        try:
            result = await future
        except asyncio.CancelledError:
            core.publishes.abandon(tag)
            raise
        finally:
            connection.deadlines.remove(deadline, future)
        if result is True and published.returns is None:
            return Confirmation(tag, True)
        where = f"exchange {exchange!r} with routing key {routing_key!r}"
        if result is ORPHANED:
            if self._on_orphan == "retry":
                left = Deadlines.left(deadline, connection.loop)
                return await self.publish(message, exchange, routing_key, mandatory=mandatory, timeout=left)
            if self._on_orphan == "park":
                self.parked.append((tag, Publication(message, exchange, routing_key, mandatory)))
                return Confirmation(tag, False, orphaned=True)
            raise errors.PublishOrphaned(
                f"the connection was lost before the answer to publication {tag} to {where}: "
                "it may or may not have arrived",
                (tag,),
            )
        core.publishes.abandon(tag)
        if result is EXPIRED:
            raise errors.DeadlineExceeded(connection.late(f"confirm of publication {tag}", seconds))
        if isinstance(result, errors.HarebellError):
            raise result
        if published.returns is not None:
            returned = published.returns
            raise errors.Unroutable(
                f"publication {tag} to {where} reached no queue ({returned.reply_code} {returned.reply_text}): "
                "bind a queue to it, or publish without mandatory",
                returned,
            )
        raise errors.Nacked(f"the broker refused publication {tag} to {where}", (tag,))

    async def _yield(self) -> None:
        """Have what was published go out, and give other tasks their turn."""
        self._unnumbered += self._unyielded
        self._unyielded = self._unyielded_sends = 0
        self._connection.flush_now()
        await asyncio.sleep(0)

    def confirmations(self) -> Confirmations:
        """What becomes of the publications of `send`: `async for confirmation in channel.confirmations()`."""
        if self._confirmations is None:
            self._confirmations = Confirmations(self._connection.loop)
        return self._confirmations

    async def send(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Publish one message without waiting for its confirm, and give its publish tag; see `confirmations`.

        Waits while the broker or the transport takes nothing, or there is no connection.
        LocalProtocolError unless confirms are on and `confirmations` was asked for.
        """
        if self._confirmations is None or not self._confirm:
            raise errors.LocalProtocolError("send() needs `await confirm_select()` and `confirmations()` before it")
        raw, body = encoded(message)
        core, connection = self._core, self._connection
        if not (connection.may_publish(core) and core.publishes.confirming):
            core = await self._may_publish(connection.timeout if timeout is None else timeout)
            connection = self._connection
        tag = core.publish(raw, body, exchange, routing_key, mandatory, self._confirmations)
        connection.expecting()
        connection.flush()
        self._unyielded_sends += 1
        if self._unyielded_sends >= CHUNK or connection.engine.pending >= MAX_GATHERED:
            await self._yield()
        return tag

    def publish_nowait(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        raw_properties: bytes | None = None,
        waiter: PublishWaiter | None = None,
        at_once: bool = False,
    ) -> int:
        """Write one publication without waiting, and give its publish tag (0 with confirms off).

        raw_properties  in place of the message's own, as `Delivery.raw_properties` has them; nobody looks into them
        waiter          hears, with confirms on, of its return, its confirm, or the end of the channel
        at_once         to the socket now, when that has been quiet: for what is waited for alone, not for one of many

        For programs that keep a window of their own: nothing is held back here, so ask `wait_publish` first.
        """
        raw, body = encoded(message)
        if raw_properties is not None:
            raw = raw_properties
        tag = self._core.publish(raw, body, exchange, routing_key, mandatory, waiter)
        if not tag:
            self._unnumbered += 1
        connection = self._connection
        if at_once:
            connection.ask()
        else:
            connection.expecting()
            connection.flush()
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

        raw_properties  of each message, as `Properties.encode` gives them; nobody looks into them
        exchange, routing_key  one for all messages, or one for each

        All are written, or none: LocalProtocolError when the properties of one do not fit a frame. Waits, at most
        `timeout` seconds, while the broker or the transport takes nothing; how many are under way is up to the caller,
        who waits for earlier ones (`Bulk.wait`). What is orphaned is told there and not published again, whatever
        `confirm_select` said. No middleware stands around this call.
        """
        if len(bodies) != len(raw_properties):
            raise errors.InvalidArgument(f"{len(bodies)} bodies and {len(raw_properties)} raw_properties: one of each")
        for name, given in (("exchange", exchange), ("routing_key", routing_key)):
            if not isinstance(given, str) and len(given) != len(bodies):
                raise errors.InvalidArgument(f"{name} has {len(given)} values for {len(bodies)} messages")
        core, connection = self._core, self._connection
        if not connection.may_publish(core):
            core = await self._may_publish(connection.timeout if timeout is None else timeout)
            connection = self._connection
        bulk = Bulk(len(bodies), connection.loop)
        if "publish" in vars(core):  # somebody is told of each (`notices`)
            connection.engine.check_properties(raw_properties)
            places = zip(_each(exchange, len(bodies)), _each(routing_key, len(bodies)), strict=True)
            for raw, body, (to, key) in zip(raw_properties, bodies, places, strict=True):
                tag = core.publish(raw, body, to, key, mandatory, bulk)
                bulk.begin(bulk.first_tag or tag)
        else:
            bulk.begin(core.publish_bulk(raw_properties, bodies, exchange, routing_key, mandatory, bulk))
        if not bulk.first_tag:
            self._unnumbered += len(bodies)
        connection.expecting()
        connection.flush_now()
        return bulk

    @property
    def may_publish(self) -> bool:
        """Whether the broker and the transport take publications now."""
        return self._connection.may_publish(self._core)

    async def wait_publish(self, *, timeout: float | None = None) -> None:
        """Wait until the broker and the transport take publications, an outage included.

        DeadlineExceeded, ChannelClosed.
        """
        if not self._connection.may_publish(self._core):
            await self._may_publish(self._connection.timeout if timeout is None else timeout)

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

        All are sent even when some are refused or orphaned; then Nacked, PublishOrphaned or Unroutable says which.
        A message that does not fit the wire (see `publish`) is the last that is looked at: those before it were sent.
        After DeadlineExceeded, or when the channel is closed, those without an answer may or may not have arrived.
        """
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        connection = self._connection
        seconds = connection.timeout if timeout is None else timeout
        self._check_open()
        batch = self._new_batch()
        async with self._deadline_of(batch, seconds, seconds):
            if isinstance(publications, AsyncIterable):
                async for publication in publications:
                    await self._room(batch, window, seconds)
                    self._put(publication, batch)
            else:
                await self._put_all(publications, batch, window, seconds)
            await self._finish(batch, window, seconds)
        return batch.accepted()

    def _new_batch(self) -> AwaitedBatch:
        return KeptBatch() if self._confirm and self._on_orphan != "raise" else AwaitedBatch()

    @asynccontextmanager
    async def _deadline_of(self, batch: AwaitedBatch, seconds: float, left: float) -> AsyncIterator[None]:
        """DeadlineExceeded for what takes longer than `left` of the batch's `seconds`."""
        try:
            async with asyncio.timeout(left):
                yield
        except TimeoutError as error:
            if isinstance(error, errors.HarebellError):
                raise
            raise errors.DeadlineExceeded(
                self._connection.late(f"publish_many, {batch.settled} of {batch.sent} sent were confirmed", seconds)
            ) from None

    async def _finish(self, batch: AwaitedBatch, window: int, seconds: float) -> None:
        """All of it has been put: wait for the confirms, or for the transport."""
        if self._confirm:
            await self._settled(batch, window, seconds)
        else:
            await self.drain(timeout=seconds)

    async def _put_all(
        self, publications: Iterable[Publication], batch: AwaitedBatch, window: int, seconds: float
    ) -> None:
        source, more = iter(publications), True
        while more:
            await self._room(batch, window, seconds)
            until = batch.sent + CHUNK - batch.sent % CHUNK
            if self._core.publishes.confirming:
                until = min(until, batch.settled + window)
            more = self._put_some(source, batch, until)

    def _put_some(self, source: Iterator[Publication], batch: AwaitedBatch, until: int) -> bool:
        """Publish until so many of the batch are sent. False when the source has ended before."""
        before = batch.sent
        publish, keep = self._core.publish, batch.keep if isinstance(batch, KeptBatch) else None
        try:
            for publication in source:
                raw, body = encoded(publication.message)
                tag = publish(raw, body, publication.exchange, publication.routing_key, publication.mandatory, batch)
                batch.sent += 1
                if keep is not None:
                    keep(tag, publication)
                if batch.sent == until:
                    return True
            return False
        finally:
            if not self._core.publishes.confirming:
                self._unnumbered += batch.sent - before
            self._connection.flush()

    async def _settled(self, batch: AwaitedBatch, window: int, seconds: float) -> None:
        """Until all of the batch are; what is orphaned meanwhile is parked, or published again."""
        while True:
            self._connection.expecting()
            await batch.wait(batch.sent, self._connection.loop)
            if not isinstance(batch, KeptBatch) or not batch.again:
                return
            again, batch.again = batch.again, deque()
            if self._on_orphan == "park":
                self.parked.extend(again)
                return
            for _, publication in again:
                await self._room(batch, window, seconds)
                self._put(publication, batch)

    async def _room(self, batch: AwaitedBatch, window: int, seconds: float) -> None:
        """Wait until the next publication may go out; every CHUNK the loop gets its turn."""
        yielded = bool(batch.sent % CHUNK)
        while batch.failure is None:
            connection, core = self._connection, self._core
            if not connection.may_publish(core):
                await self._may_publish(seconds)
            elif not yielded:
                yielded = True
                connection.flush_now()
                await asyncio.sleep(0)
            elif core.publishes.confirming and batch.sent - batch.settled >= window:
                # Half of the window at a time: waking for each confirm would cost more than the publishing.
                connection.expecting()
                await batch.wait(batch.sent - window // 2, connection.loop)
            else:
                connection.expecting()
                return
        raise copy_of(batch.failure)

    def _put(self, publication: Publication, batch: AwaitedBatch) -> None:
        raw, body = encoded(publication.message)
        tag = self._core.publish(raw, body, publication.exchange, publication.routing_key, publication.mandatory, batch)
        batch.sent += 1
        if not tag:
            self._unnumbered += 1
        batch.keep(tag, publication)
        self._connection.flush()

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
        return cast(_M, await self._ask(request, timeout))


def _each(value: str | Sequence[str], count: int) -> Sequence[str]:
    return [value] * count if isinstance(value, str) else value
