"""The blocking API: what a queue delivers, on a channel that exists for that alone.

    with connection.deliveries("work") as deliveries:
        for delivery in deliveries:
            ...
            delivery.ack()

When it ends, and when it goes on, stands at the top of `harebell.client.patterns.reader`.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from harebell.client.blocking.channel import Channel
from harebell.client.blocking.consumer import Consumer
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.settler import Settler
from harebell.client.channel import Channel as AsyncChannel
from harebell.client.consumer import Consumer as AsyncConsumer
from harebell.client.messages import Delivery
from harebell.client.patterns import reader as asyncio_api
from harebell.protocol.v091 import TableLike

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection

__all__ = ["QueueReader"]


@documented_by(asyncio_api.QueueReader)
class QueueReader:
    """An iterator of Delivery, made by `connection.deliveries`; it begins when entered or first asked.

    Several threads may iterate over one reader; each delivery goes to one of them. Leaving the `with` block gives back
    what was not settled, and so does dropping the iterator.
    """

    def __init__(
        self,
        connection: Connection,
        queue: str,
        *,
        prefetch: int,
        resubscribe: bool,
        exclusive: bool,
        arguments: TableLike | None,
        timeout: float | None,
    ) -> None:
        self.queue = queue
        self._connection = connection  # keeps it open
        self._io = io = connection.io
        self._twin: tuple[AsyncConsumer, Consumer] | None = None  # the present consumer
        self._channel: Channel | None = None

        def prepare(channel: AsyncChannel) -> None:
            channel.core.settler = Settler(io, channel)

        with io.turn:
            self._inner = asyncio_api.QueueReader(
                connection.inner, queue, prefetch=prefetch, resubscribe=resubscribe, exclusive=exclusive,
                arguments=arguments, timeout=timeout, prepare=prepare,
            )  # fmt: skip

    @property
    def channel(self) -> Channel:
        if self._channel is None:
            self._channel = Channel(self._connection, self._inner.channel)
        return self._channel

    @property
    def ended(self) -> bool:
        return self._inner.ended

    @property
    def tag(self) -> str:
        return self._inner.tag

    def start(self) -> Self:
        self._io.run_or_undo(lambda started: self._inner.abandon(), self._inner.start)
        return self

    def cancel(self) -> None:
        self._io.run(self._inner.cancel)

    def close(self) -> None:
        self._io.run(self._inner.close)

    def abandon(self) -> None:
        with self._io.turn:
            self._inner.abandon()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self.abandon()  # an interrupted program does not wait for the network
            return
        self._io.run(self._inner.__aexit__, kind, error, traceback)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        while not self._inner.ended:
            inner, consumer = self._present()
            try:
                return next(consumer)
            except asyncio_api.PASSING as error:
                if not self._inner.goes_on(error):
                    raise
                self._io.run(self._inner.renew, inner)
        raise StopIteration

    def receive(
        self, max_messages: int = 20_000, timeout: float | None = None, *, within: float = 0.0
    ) -> list[Delivery]:
        while not self._inner.ended:
            inner, consumer = self._present()
            try:
                return consumer.receive(max_messages, timeout, within=within)
            except asyncio_api.PASSING as error:
                if not self._inner.goes_on(error):
                    raise
                self._io.run(self._inner.renew, inner)
        return []

    def _present(self) -> tuple[AsyncConsumer, Consumer]:
        """The present consumer of the reader, and what takes its deliveries from it."""
        twin, reader = self._twin, self._inner
        if twin is None:
            self.start()
        if twin is None or twin[0] is not reader.consumer:
            twin = self._twin = (reader.consumer, Consumer(self._connection, self._io, reader.consumer))
        return twin
