"""The blocking face: a channel. What it does is done by the asyncio face's, on the process's I/O thread.

Calls are run there. Publishing and acknowledging, which happen per message, are done by the calling thread with the
turn in hand (`thread` says how): what they write goes out with the loop's next turn.

The file is long because it is the whole face of a channel, method after method, as the asyncio one is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from harebell import errors
from harebell.client import channel as asyncio_face, confirms as awaited
from harebell.client.blocking.consumer import Consumer
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.harness import ChannelHarness
from harebell.client.blocking.thread import IoThread
from harebell.client.channel import OnOrphan
from harebell.client.confirms import AwaitedBatch
from harebell.client.core.unconfirmed import PublishWaiter
from harebell.client.messages import Confirmation, Delivery, Message, Publication, QueueInfo, Returned
from harebell.client.middleware.hooks import CancelEvent, CloseEvent, DialEvent, DisconnectEvent, FlowEvent
from harebell.client.notifications import Stop
from harebell.client.statistics import ChannelStatistics
from harebell.protocol.v091 import TableLike

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection

__all__ = ["Bulk", "Channel", "Confirmations", "asked"]

_E = TypeVar("_E")

PART: Final = 256  # publications of publish_many for which the turn is taken once


@documented_by(asyncio_face.Channel)
class Settler:
    """What acknowledges: the channel, and on its behalf every delivery of it."""

    def __init__(self, io: IoThread, inner: asyncio_face.Channel) -> None:
        self._io = io
        self._inner = inner

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._inner.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._inner.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._inner.reject(delivery_tag, requeue=requeue)


@documented_by(asyncio_face.Channel)
class Channel(Settler):
    """A channel, over every wire channel that carries it. Made by `connection.channel`."""

    def __init__(self, connection: Connection, inner: asyncio_face.Channel) -> None:
        super().__init__(connection._io, inner)
        self.connection = connection
        self._on_return: Callable[[Returned], None] | None = None
        self._confirmations: Confirmations | None = None
        with self._io.turn:
            inner._core.settler = Settler(self._io, inner)  # not this: it would keep the connection for ever

    @property
    def number(self) -> int:
        return self._inner.number

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        return self._inner.closed_reason

    @property
    def parked(self) -> deque[tuple[int, Publication]]:
        """Orphaned publications under on_orphan="park": (publish tag, publication), for the program to take out."""
        return self._inner.parked

    @property
    def on_return(self) -> Callable[[Returned], None] | None:
        """Takes what comes back of mandatory publications while confirms are off; with confirms on, publish raises.

        Called on a thread of its own, in the order of the returns.
        """
        return self._on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], None] | None) -> None:
        self._on_return = callback
        put = self.connection._callbacks.put
        with self._io.turn:
            self._inner.on_return = None if callback is None else lambda returned: put(callback, returned)

    @property
    def consuming(self) -> set[str]:
        with self._io.turn:
            return self._inner.consuming

    @property
    def consumer_tags(self) -> set[str]:
        with self._io.turn:
            return self._inner.consumer_tags

    def statistics(self) -> ChannelStatistics:
        with self._io.turn:
            return self._inner.statistics()

    def test(self) -> ChannelHarness:
        return ChannelHarness(self)

    def close(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.close, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            if not self._inner.is_closed:
                with self._io.turn:
                    self._inner._say_goodbye()  # who is interrupted does not wait for the network
            return
        try:
            self.close()
        except errors.HarebellError:
            if kind is None:
                raise

    def flow(self, active: bool, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.flow, active, timeout=timeout)

    # -- exchanges and queues ----------------------------------------------------------------------------------------

    def exchange_declare(
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
        self._io.run(
            self._inner.exchange_declare,
            name,
            type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            passive=passive,
            arguments=arguments,
            timeout=timeout,
        )

    def exchange_delete(self, name: str, *, if_unused: bool = False, timeout: float | None = None) -> None:
        self._io.run(self._inner.exchange_delete, name, if_unused=if_unused, timeout=timeout)

    def exchange_bind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        self._io.run(self._inner.exchange_bind, destination, source, binding_key, arguments=arguments, timeout=timeout)

    def exchange_unbind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        self._io.run(
            self._inner.exchange_unbind, destination, source, binding_key, arguments=arguments, timeout=timeout
        )

    def queue_declare(
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
        return self._io.run(
            self._inner.queue_declare,
            name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            passive=passive,
            arguments=arguments,
            timeout=timeout,
        )

    def queue_inspect(self, name: str, *, timeout: float | None = None) -> QueueInfo:
        return self._io.run(self._inner.queue_inspect, name, timeout=timeout)

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        self._io.run(self._inner.queue_bind, queue, exchange, binding_key, arguments=arguments, timeout=timeout)

    def queue_unbind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        self._io.run(self._inner.queue_unbind, queue, exchange, binding_key, arguments=arguments, timeout=timeout)

    def queue_purge(self, name: str, *, timeout: float | None = None) -> int:
        return self._io.run(self._inner.queue_purge, name, timeout=timeout)

    def queue_delete(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> int:
        return self._io.run(self._inner.queue_delete, name, if_unused=if_unused, if_empty=if_empty, timeout=timeout)

    def message_count(self, name: str, *, timeout: float | None = None) -> int:
        return self._io.run(self._inner.message_count, name, timeout=timeout)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def qos(
        self,
        *,
        prefetch_count: int = 0,
        prefetch_size: int = 0,
        global_: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._io.run(
            self._inner.qos,
            prefetch_count=prefetch_count,
            prefetch_size=prefetch_size,
            global_=global_,
            timeout=timeout,
        )

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
        """An iterator over what the queue delivers: `for delivery in channel.consume("work", prefetch=500)`.

        prefetch   how many unacknowledged deliveries may be under way; None keeps what `qos` said
        no_ack     the broker forgets a message once it is sent
        timeout    seconds for subscribing; waiting for a delivery has no deadline, but in `Consumer.receive`
        """
        with self._io.turn:
            inner = self._inner.consume(
                queue,
                prefetch=prefetch,
                no_ack=no_ack,
                exclusive=exclusive,
                consumer_tag=consumer_tag,
                arguments=arguments,
                timeout=timeout,
            )
        return Consumer(self, inner)

    def cancel(self, consumer_tag: str, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.cancel, consumer_tag, timeout=timeout)

    def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is interrupted, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """

        def give_back(delivery: Delivery | None) -> None:
            if delivery is not None and not no_ack:
                self._inner._core.settlement.give_back(delivery)

        return self._io.run_or_undo(give_back, self._inner.get, queue, no_ack=no_ack, timeout=timeout)

    def recover(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        self._io.run(self._inner.recover, requeue=requeue, timeout=timeout)

    def drain(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.drain, timeout=timeout)

    # -- publishing --------------------------------------------------------------------------------------------------

    def confirm_select(self, *, on_orphan: OnOrphan = "raise", timeout: float | None = None) -> None:
        self._io.run(self._inner.confirm_select, on_orphan=on_orphan, timeout=timeout)

    def publish(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> Confirmation | None:
        io, inner = self._io, self._inner
        io.check()
        if inner.may_publish and _own(inner, "publish"):
            steps = inner.publish(message, exchange, routing_key, mandatory=mandatory, timeout=timeout)
            return io.drive(inner, steps)
        return io.run(inner.publish, message, exchange, routing_key, mandatory=mandatory, timeout=timeout)

    def confirmations(self) -> Confirmations:
        """What becomes of the publications of `send`: `for confirmation in channel.confirmations()`."""
        if self._confirmations is None:
            with self._io.turn:
                self._confirmations = Confirmations(self, self._inner.confirmations())
        return self._confirmations

    def send(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> int:
        io, inner = self._io, self._inner
        io.check()
        if inner.may_publish and _own(inner, "send"):
            steps = inner.send(message, exchange, routing_key, mandatory=mandatory, timeout=timeout)
            return io.drive(inner, steps)
        return io.run(inner.send, message, exchange, routing_key, mandatory=mandatory, timeout=timeout)

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
        waiter          hears, with confirms on, of its return, its confirm, or the end of the channel; it is told so
                        on the I/O thread, and must return at once
        at_once         to the socket now, when that has been quiet: for what is waited for alone, not for one of many

        For programs that keep a window of their own: nothing is held back here, so ask `wait_publish` first.
        """
        with self._io.turn:
            tag = self._io.step(
                self._inner,
                lambda: self._inner.publish_nowait(
                    message,
                    exchange,
                    routing_key,
                    mandatory=mandatory,
                    raw_properties=raw_properties,
                    waiter=waiter,
                ),
            )
            connection = self._inner._connection
            if at_once:
                connection.ask()
            else:
                connection.flush()
            return tag

    @property
    def may_publish(self) -> bool:
        return self._inner.may_publish

    def wait_publish(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.wait_publish, timeout=timeout)

    def publish_many(
        self, publications: Iterable[Publication], *, window: int = 5000, timeout: float | None = None
    ) -> int:
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        io, inner = self._io, self._inner
        if not _own(inner, "publish_many"):  # then it is the middlewares' business, on their thread
            return io.run(inner.publish_many, publications, window=window, timeout=timeout)
        seconds = inner._connection.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        source = iter(publications)  # which is the program's own code, and must not run on the loop's thread
        io.check()
        with io.turn:
            inner._check_open()
            batch = inner._new_batch()

        async def put(part: list[Publication]) -> None:
            async with inner._deadline_of(batch, seconds, deadline - time.monotonic()):
                await inner._put_all(part, batch, window, seconds)

        async def finish() -> None:
            async with inner._deadline_of(batch, seconds, deadline - time.monotonic()):
                await inner._finish(batch, window, seconds)

        failed: Exception | None = None
        while failed is None:
            part: list[Publication] = []
            try:
                part.extend(islice(source, PART))
            except Exception as error:  # the program's own; what came before it is published
                failed = error
            if not part:
                break
            if not self._put_at_once(part, batch, window, deadline):
                io.run(put, part)
        if failed is not None:
            raise failed
        io.run(finish)
        return batch.accepted()

    def _put_at_once(self, part: list[Publication], batch: AwaitedBatch, window: int, deadline: float) -> bool:
        """Publish it here and now, where nothing has to be waited for; else False."""
        io, inner = self._io, self._inner
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            confirming, sent = inner._core.publishes.confirming, batch.sent + len(part)
            if (
                not inner.may_publish
                or batch.failure is not None
                or (confirming and sent > batch.settled + window)
                or time.monotonic() > deadline
            ):
                return False
            io.step(inner, lambda: inner._put_some(iter(part), batch, sent))
            inner._connection.flush_now()
            return True

    def publish_bulk(
        self,
        bodies: Sequence[bytes],
        raw_properties: Sequence[bytes],
        exchange: str | Sequence[str] = "",
        routing_key: str | Sequence[str] = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> Bulk:
        inner = self._io.run(
            self._inner.publish_bulk,
            bodies,
            raw_properties,
            exchange,
            routing_key,
            mandatory=mandatory,
            timeout=timeout,
        )
        return Bulk(self._io, inner)

    # -- being told --------------------------------------------------------------------------------------------------

    # As `on_return`: the callbacks are called on a thread of their own, in the order in which it happened.

    def _told(self, callback: Callable[[_E], None]) -> Callable[[_E], None]:
        return partial(self.connection._callbacks.put, callback)

    def notify_close(self, callback: Callable[[CloseEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_close, self._told(callback))

    def notify_dial(self, callback: Callable[[DialEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_dial, self._told(callback))

    def notify_disconnect(self, callback: Callable[[DisconnectEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_disconnect, self._told(callback))

    def notify_publish(self, callback: Callable[[Confirmation], None]) -> Stop:
        return asked(self._io, self._inner.notify_publish, self._told(callback))

    def notify_confirm(self, on_ack: Callable[[int], None], on_nack: Callable[[int], None]) -> Stop:
        return asked(self._io, self._inner.notify_confirm, self._told(on_ack), self._told(on_nack))

    def notify_confirm_or_orphaned(
        self, on_ack: Callable[[int], None], on_nack: Callable[[int], None], on_orphaned: Callable[[int], None]
    ) -> Stop:
        told = self._told(on_ack), self._told(on_nack), self._told(on_orphaned)
        return asked(self._io, self._inner.notify_confirm_or_orphaned, *told)

    def notify_return(self, callback: Callable[[Returned], None]) -> Stop:
        return asked(self._io, self._inner.notify_return, self._told(callback))

    def notify_cancel(self, callback: Callable[[CancelEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_cancel, self._told(callback))

    def notify_flow(self, callback: Callable[[FlowEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_flow, self._told(callback))

    # -- transactions ------------------------------------------------------------------------------------------------

    def tx_select(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.tx_select, timeout=timeout)

    def tx_commit(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.tx_commit, timeout=timeout)

    def tx_rollback(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.tx_rollback, timeout=timeout)


def asked(io: IoThread, notify: Callable[..., Stop], *callbacks: object) -> Stop:
    """Ask there; what ends the asking may be called from any thread."""
    with io.turn:
        stop = notify(*callbacks)

    def stopped() -> None:
        with io.turn:
            stop()

    return stopped


def _own(inner: asyncio_face.Channel, method: str) -> bool:
    """Whether the channel's own code is all that runs: what somebody put in front of it may want a task."""
    return method not in vars(inner) and getattr(type(inner), method) is getattr(asyncio_face.Channel, method)


@documented_by(awaited.Confirmations)
class Confirmations:
    """What became of the publications of `channel.send`, as an iterator. Made by `channel.confirmations`.

    It ends when the channel is closed: without an error after our own close, else with the reason.
    """

    def __init__(self, channel: Channel, inner: awaited.Confirmations) -> None:
        self._channel = channel
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Confirmation:
        try:
            return self._inner._waiting.popleft()
        except IndexError:
            pass
        try:
            return self._channel._io.run_or_undo(self._inner._waiting.appendleft, self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


@documented_by(awaited.Bulk)
class Bulk:
    """What becomes of the publications of one `channel.publish_bulk`, each known by its place in it.

    count  how many they are
    """

    def __init__(self, io: IoThread, inner: awaited.Bulk) -> None:
        self._io = io
        self._inner = inner
        self.count = inner.count

    @property
    def settled(self) -> int:
        """How many have an answer, or will never have one because the connection was lost."""
        return self._inner.settled

    @property
    def returns(self) -> dict[int, Returned]:
        """What came back of mandatory ones that reached no queue, by place; the broker confirms these too."""
        return self._inner.returns

    @property
    def acked(self) -> int:
        with self._io.turn:
            return self._inner.acked

    @property
    def nacked(self) -> list[int]:
        with self._io.turn:
            return self._inner.nacked

    @property
    def unanswered(self) -> list[int]:
        with self._io.turn:
            return self._inner.unanswered

    def wait(self, *, timeout: float | None = None) -> None:
        inner = self._inner
        if inner.failure is None and inner.settled == inner.count:
            return
        self._io.run(inner.wait, timeout=timeout)
