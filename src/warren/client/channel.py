"""The asyncio face: a channel.

Methods carry the protocol's names (class_method), flags are keywords, and each takes `timeout` in seconds (the
connection's when left out). An error of the broker's closes this channel alone: the call that caused it, or the one
that waits, raises it, and later calls raise ChannelClosed with it as cause. Acknowledgements are not awaited: they are
written with everything else at the end of the loop's turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from warren import errors
from warren.client.consumer import Consumer
from warren.client.core import ChannelCore, fresh
from warren.client.deadlines import EXPIRED
from warren.client.publishes import Batch, PublishWaiter
from warren.client.records import Confirmation, Delivery, Message, Publication, QueueInfo, Returned, encoded
from warren.client.wire import MAX_GATHERED, AsyncCore, FutureSlot
from warren.protocol.v091 import Content, Table, methods as m

__all__ = ["Channel"]

_M = TypeVar("_M", bound=m.Method)

CHUNK: Final = 256  # publications encoded between two turns of the loop


class _Published:
    """One publication whose confirm is awaited."""

    __slots__ = ("future", "returns")

    def __init__(self, future: asyncio.Future[object]) -> None:
        self.future = future
        self.returns: Returned | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        if not self.future.done():
            self.future.set_result(acked)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns = returned

    def fail(self, reason: errors.WarrenError) -> None:
        if not self.future.done():
            self.future.set_result(fresh(reason))


class _AwaitedBatch(Batch):
    """A batch somebody awaits: woken once enough of it is settled."""

    __slots__ = ("waiter", "wake_at")

    def __init__(self) -> None:
        super().__init__()
        self.waiter: asyncio.Future[None] | None = None
        self.wake_at = 0

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.settled += 1
        if not acked:
            self.nacked.append(publish_tag)
        if self.settled >= self.wake_at and self.waiter is not None:
            self.wake()

    def fail(self, reason: errors.WarrenError) -> None:
        super().fail(reason)
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self, settled: int, loop: asyncio.AbstractEventLoop) -> None:
        """Until that many are settled, or the channel has closed: then its reason is raised."""
        while self.failure is None and self.settled < settled:
            self.waiter, self.wake_at = loop.create_future(), settled
            try:
                await self.waiter
            finally:
                self.waiter = None
        if self.failure is not None:
            raise fresh(self.failure)


class Channel:
    """An open channel. Made by `connection.channel`."""

    def __init__(self, connection: AsyncCore, core: ChannelCore) -> None:
        self._connection = connection
        self._core = core
        self._unyielded = 0

    @property
    def number(self) -> int:
        return self._core.number

    @property
    def is_open(self) -> bool:
        return self._core.reason is None

    @property
    def closed_reason(self) -> errors.WarrenError | None:
        """Why it is closed; None while it is open."""
        return self._core.reason

    @property
    def on_return(self) -> Callable[[Returned], None] | None:
        """Takes what comes back of mandatory publications while confirms are off; with confirms on, publish raises."""
        return self._core.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], None] | None) -> None:
        self._core.on_return = callback

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the channel; unacknowledged deliveries go back to their queues. A closed one is no error."""
        if self._core.reason is None:
            slot = self._slot(m.ChannelClose())
            self._core.close(slot)
            await self._connection.reply(slot, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            if self._core.reason is None:
                self._core.close()  # who is cancelled does not wait for the network
            return
        try:
            await self.close()
        except errors.WarrenError:
            if kind is None:
                raise

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
        arguments: Table | None = None,
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
        arguments: Table | None = None,
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
        arguments: Table | None = None,
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
        arguments: Table | None = None,
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
        return QueueInfo(ok.queue, ok.message_count, ok.consumer_count)

    async def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: Table | None = None,
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
        arguments: Table | None = None,
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
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """An iterator over what the queue delivers: `async for delivery in channel.consume("work", prefetch=500)`.

        prefetch   how many unacknowledged deliveries may be under way; None keeps what `qos` said
        no_ack     the broker forgets a message once it is sent
        timeout    seconds for subscribing; waiting for a delivery has no deadline
        """
        return Consumer(
            self._core,
            self._connection,
            queue,
            prefetch=prefetch,
            no_ack=no_ack,
            exclusive=exclusive,
            consumer_tag=consumer_tag,
            arguments=arguments,
            timeout=timeout,
        )

    async def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is cancelled, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """
        slot = self._slot(m.BasicGet(queue, no_ack))
        self._core.request(slot)
        reply = await self._connection.reply(slot, timeout, self._core.abandon)
        return self._core.get_delivery(reply) if isinstance(reply, Content) else None

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """Done with this delivery; with `multiple`, with every earlier one of the channel too."""
        self._core.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse this delivery; with `multiple`, every earlier one of the channel too."""
        self._core.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        """Refuse this delivery: dead-lettered or dropped, or back into the queue."""
        self._core.reject(delivery_tag, requeue=requeue)

    async def recover(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        """Have every unacknowledged delivery of the channel delivered again; their old tags are no longer valid."""
        await self._call(m.BasicRecover(requeue), timeout)

    async def drain(self, *, timeout: float | None = None) -> None:
        """Have what was written so far, acks included, go to the transport, and wait while that is full."""
        seconds = self._connection.timeout if timeout is None else timeout
        self._connection.flush_now()
        if self._connection.writing_paused:
            await self._connection.publishing(self._core, seconds)

    # -- publishing --------------------------------------------------------------------------------------------------

    async def confirm_select(self, *, timeout: float | None = None) -> None:
        """Have the broker confirm each publication from now on; `publish` then waits for it."""
        await self._call(m.ConfirmSelect(), timeout)

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
        queue. After DeadlineExceeded or a lost connection the message may or may not have arrived. With confirms off,
        give None once it is on its way to the transport. Waits while the broker or the transport takes nothing.
        """
        connection, core = self._connection, self._core
        raw, body = encoded(message)
        seconds = connection.timeout if timeout is None else timeout
        if connection.writing_paused or connection.blocked is not None or not core.active:
            await connection.publishing(core, seconds)
        if not core.publishes.confirming:
            core.publish(raw, body, exchange, routing_key, mandatory, None)
            connection.flush()
            self._unyielded += 1
            if self._unyielded >= CHUNK or len(connection.engine.outgoing) >= MAX_GATHERED:
                self._unyielded = 0
                connection.flush_now()
                await asyncio.sleep(0)
            return None
        future: asyncio.Future[object] = connection.loop.create_future()
        published = _Published(future)
        tag = core.publish(raw, body, exchange, routing_key, mandatory, published)
        connection.expecting()
        connection.flush()
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
        core.publishes.abandon(tag)
        if result is EXPIRED:
            raise errors.DeadlineExceeded(connection.late(f"confirm of publication {tag}", seconds))
        if isinstance(result, errors.WarrenError):
            raise result
        where = f"exchange {exchange!r} with routing key {routing_key!r}"
        if published.returns is not None:
            returned = published.returns
            raise errors.Unroutable(
                f"publication {tag} to {where} reached no queue ({returned.reply_code} {returned.reply_text}): "
                "bind a queue to it, or publish without mandatory",
                returned,
            )
        raise errors.Nacked(f"the broker refused publication {tag} to {where}", (tag,))

    def publish_nowait(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        raw_properties: bytes | None = None,
        waiter: PublishWaiter | None = None,
    ) -> int:
        """Write one publication without waiting, and give its publish tag (0 with confirms off).

        raw_properties  in place of the message's own, as `Delivery.raw_properties` has them; nobody looks into them
        waiter          hears, with confirms on, of its return, its confirm, or the end of the channel

        For programs that keep a window of their own: nothing is held back here, so ask `wait_publish` first.
        """
        raw, body = encoded(message)
        if raw_properties is not None:
            raw = raw_properties
        tag = self._core.publish(raw, body, exchange, routing_key, mandatory, waiter)
        self._connection.expecting()
        self._connection.flush()
        return tag

    @property
    def may_publish(self) -> bool:
        """Whether the broker and the transport take publications now."""
        return self._connection.may_publish(self._core)

    async def wait_publish(self, *, timeout: float | None = None) -> None:
        """Wait until the broker and the transport take publications. DeadlineExceeded, ChannelClosed."""
        if not self._connection.may_publish(self._core):
            seconds = self._connection.timeout if timeout is None else timeout
            await self._connection.publishing(self._core, seconds)

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

        All are sent even when some are refused; then Nacked or Unroutable says which. After DeadlineExceeded or a lost
        connection those without an answer may or may not have arrived.
        """
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        connection = self._connection
        seconds = connection.timeout if timeout is None else timeout
        self._core.check_open()
        batch = _AwaitedBatch()
        try:
            async with asyncio.timeout(seconds):
                if isinstance(publications, AsyncIterable):
                    async for publication in publications:
                        await self._room(batch, window, seconds)
                        self._put(publication, batch)
                else:
                    await self._put_all(publications, batch, window, seconds)
                if self._core.publishes.confirming:
                    connection.expecting()
                    await batch.wait(batch.sent, connection.loop)
                else:
                    await self.drain(timeout=seconds)
        except TimeoutError as error:
            if isinstance(error, errors.WarrenError):
                raise
            raise errors.DeadlineExceeded(
                connection.late(f"publish_many, {batch.settled} of {batch.sent} sent were confirmed", seconds)
            ) from None
        batch.raise_refused()
        return batch.sent

    async def _put_all(
        self, publications: Iterable[Publication], batch: _AwaitedBatch, window: int, seconds: float
    ) -> None:
        for publication in publications:
            if not batch.sent % CHUNK or batch.sent - batch.settled >= window:
                await self._room(batch, window, seconds)
            self._put(publication, batch)

    async def _room(self, batch: _AwaitedBatch, window: int, seconds: float) -> None:
        """Wait until the next publication may go out; every CHUNK the loop gets its turn."""
        connection, core = self._connection, self._core
        if not connection.may_publish(core):
            await connection.publishing(core, seconds)
        if not batch.sent % CHUNK:
            connection.flush_now()
            await asyncio.sleep(0)
        connection.expecting()
        if core.publishes.confirming and batch.sent - batch.settled >= window:
            # Half of the window at a time: waking for each confirm would cost more than the publishing.
            await batch.wait(batch.sent - window // 2, connection.loop)
        if batch.failure is not None:
            raise fresh(batch.failure)

    def _put(self, publication: Publication, batch: _AwaitedBatch) -> None:
        raw, body = encoded(publication.message)
        self._core.publish(
            raw, body, publication.exchange, publication.routing_key, publication.mandatory, batch
        )
        batch.sent += 1
        self._connection.flush()

    # -- transactions ------------------------------------------------------------------------------------------------

    async def tx_select(self, *, timeout: float | None = None) -> None:
        """Make the channel transactional: publishes and acks take effect at tx_commit."""
        await self._call(m.TxSelect(), timeout)

    async def tx_commit(self, *, timeout: float | None = None) -> None:
        """Have everything since tx_select, or the last commit or rollback, take effect."""
        await self._call(m.TxCommit(), timeout)

    async def tx_rollback(self, *, timeout: float | None = None) -> None:
        """Undo it instead."""
        await self._call(m.TxRollback(), timeout)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _slot(self, request: m.Method) -> FutureSlot:
        return FutureSlot(request, self._connection.loop.create_future())

    async def _call(
        self, request: m.Method, timeout: float | None, reply: type[_M] = m.Method  # type: ignore[assignment]
    ) -> _M:
        slot = self._slot(request)
        self._core.request(slot)
        return cast(_M, await self._connection.reply(slot, timeout, self._core.abandon))
