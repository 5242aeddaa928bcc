"""The blocking API: a channel. What it does is done by the asyncio channel, on the process's I/O thread.

Calls that only forward are generated (`forwarded_channel`). Here is what differs by nature: publishing, which the
calling thread does with the turn in hand (`thread` says how; settling: `settler`), and what gives a blocking twin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from harebell import errors
from harebell.client import channel as asyncio_api
from harebell.client.blocking.confirms import Bulk, Confirmations
from harebell.client.blocking.consumer import Consumer
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.forwarded_channel import ForwardedChannel
from harebell.client.blocking.harness import ChannelHarness
from harebell.client.blocking.settler import Settler
from harebell.client.core.unconfirmed import PublishWaiter
from harebell.client.messages import Confirmation, Delivery, Message, Publication, Returned
from harebell.client.publish_many import PublishMany
from harebell.client.seconds import seconds_of
from harebell.protocol.v091 import TableLike

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection  # the type of a public attribute

__all__ = ["Channel"]

PART: Final = 256  # publications of publish_many for which the turn is taken once


@documented_by(asyncio_api.Channel)
class Channel(ForwardedChannel):
    """A channel, over every wire channel that carries it. Made by `connection.channel`."""

    def __init__(self, connection: Connection, inner: asyncio_api.Channel) -> None:
        super().__init__(connection.io, inner, connection.callbacks)
        self.connection = connection
        self._on_return: Callable[[Returned], None] | None = None
        self._confirmations: Confirmations | None = None
        with self.io.turn:
            inner.core.settler = Settler(self.io, inner)  # not `self`, which would keep the connection alive

    @property
    def parked(self) -> deque[tuple[int, Publication]]:
        """Publications that were set aside: (publish tag, publication), for the program to take out."""
        return self.inner.parked

    @property
    def on_return(self) -> Callable[[Returned], None] | None:
        """Takes what comes back of mandatory publications while confirms are off; with confirms on, publish raises.

        Called on a thread of its own, in the order of the returns.
        """
        return self._on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], None] | None) -> None:
        later = None if callback is None else self.callbacks.later("on_return", callback, "returned")
        self._on_return = callback
        with self.io.turn:
            self.inner.on_return = later

    def test(self) -> ChannelHarness:
        return ChannelHarness(self.io, self.inner.test())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            if not self.inner.is_closed:
                with self.io.turn:
                    self.inner.recovery.say_goodbye()  # an interrupted program does not wait for it
            return
        try:
            self.close()
        except errors.HarebellError:
            if kind is None:
                raise

    # -- consuming ---------------------------------------------------------------------------------------------------

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
        with self.io.turn:
            inner = self.inner.consume(
                queue,
                prefetch=prefetch,
                no_ack=no_ack,
                exclusive=exclusive,
                consumer_tag=consumer_tag,
                arguments=arguments,
                timeout=timeout,
            )
        return Consumer(self, self.io, inner)

    def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is interrupted, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """

        def give_back(delivery: Delivery | None) -> None:
            if delivery is not None and not no_ack:
                self.inner.core.settlement.give_back(delivery)

        return self.io.run_or_undo(give_back, self.inner.get, queue, no_ack=no_ack, timeout=timeout)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
    ) -> Confirmation | None:
        io, inner = self.io, self.inner
        io.check()
        if inner.may_publish and _own(inner, "publish"):
            steps = inner.publish(
                message, exchange, routing_key, mandatory=mandatory, immediate=immediate, timeout=timeout
            )
            return io.drive(inner, steps)
        return io.run(
            inner.publish, message, exchange, routing_key, mandatory=mandatory, immediate=immediate, timeout=timeout
        )

    def confirmations(self) -> Confirmations:
        """What becomes of the publications of `send`: `for confirmation in channel.confirmations()`.

        Each has one Confirmation, whatever becomes of it and of the channel.
        """
        if self._confirmations is None:
            with self.io.turn:
                self._confirmations = Confirmations(self, self.io, self.inner.confirmations())
        return self._confirmations

    def send(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
    ) -> int:
        io, inner = self.io, self.inner
        io.check()
        if inner.may_publish and _own(inner, "send"):
            steps = inner.send(
                message, exchange, routing_key, mandatory=mandatory, immediate=immediate, timeout=timeout
            )
            return io.drive(inner, steps)
        return io.run(
            inner.send, message, exchange, routing_key, mandatory=mandatory, immediate=immediate, timeout=timeout
        )

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

        raw_properties  in place of the message's own, as `Delivery.raw_properties` has them; they are not checked
        waiter          with confirms on, is called when it comes back, and once more, with its end; on the I/O thread,
                        so it must return at once
        at_once         write to the socket now, if it has been quiet: for a single publication, not for one of many

        For programs that limit by themselves how many are unconfirmed: this never waits, so call `wait_publish` first.
        """
        with self.io.turn:
            transport = self.inner.transport
            return self.io.step(
                self.inner,
                lambda: self.inner.publish_nowait(
                    message,
                    exchange,
                    routing_key,
                    mandatory=mandatory,
                    immediate=immediate,
                    raw_properties=raw_properties,
                    waiter=waiter,
                ),
                at_once=at_once and transport.quiet and not transport.flush_due,
            )

    def publish_many(
        self, publications: Iterable[Publication], *, window: int = 5000, timeout: float | None = None
    ) -> int:
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        io, inner = self.io, self.inner
        if not _own(inner, "publish_many"):  # a middleware is called on the I/O thread
            return io.run(inner.publish_many, publications, window=window, timeout=timeout)
        seconds = seconds_of(timeout, inner.transport.timeout)
        source = iter(publications)  # the program's own code: it must not run on the I/O thread
        io.check()
        with io.turn:
            many = asyncio_api.many_of(inner, window, seconds)

        failed: Exception | None = None
        while failed is None:
            part: list[Publication] = []
            try:
                part.extend(islice(source, PART))
            except Exception as error:  # the program's own; what came before it is published
                failed = error
            if not part:
                break
            try:
                done = self._put_at_once(part, many)
            except errors.HarebellError as error:  # a message that does not fit the wire; those before it are written
                failed = error
            else:
                if not done:
                    failed = io.run(many.step, partial(many.put_all, part)) or failed
        return io.run(many.end, failed)

    def _put_at_once(self, part: list[Publication], many: PublishMany) -> bool:
        """Publish the part on the calling thread, unless something has to be waited for: then False."""
        io, inner, batch = self.io, self.inner, many.batch
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            confirming, sent = inner.core.publishes.confirming, batch.sent + len(part)
            if (
                not inner.may_publish
                or (confirming and batch.under_way + len(part) > many.window)
                or io.loop.time() > many.deadline
            ):
                return False
            io.step(inner, lambda: many.put_some(iter(part), sent), at_once=True)
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
        inner = self.io.run(
            self.inner.publish_bulk,
            bodies,
            raw_properties,
            exchange,
            routing_key,
            mandatory=mandatory,
            timeout=timeout,
        )
        return Bulk(self.io, inner)


def _own(inner: asyncio_api.Channel, method: str) -> bool:
    """Whether the method is the channel's own: a middleware around it may need a task."""
    return method not in vars(inner) and getattr(type(inner), method) is getattr(asyncio_api.Channel, method)
