"""One connection of a layer to the broker, with its AMQP channels. In the I/O thread.

A link ends with its transport and never comes back: the layer's connection opens another one (`connection`), and each
part of the layer makes there what it needs. Nothing is redeclared behind their backs: what another process has ended
meanwhile stays ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, cast

import harebell
from harebell import errors
from harebell.channels.links.batch import Part, run_batch
from harebell.channels.names import Names
from harebell.channels.settings import Settings, explained
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.core.slots import Reply
from harebell.client.messages import Delivery, QueueInfo
from harebell.client.middleware.registry import FEATURES, Middlewares
from harebell.client.servers import HAREBELL, product_of
from harebell.protocol.v091 import Table, methods as m

__all__ = ["Link", "bind", "bind_exchange", "declare_exchange", "declare_queue"]

BATCHES: Final = 16  # under way at a time, each on an AMQP channel of its own


class Link:
    """An open connection.

    publishing  the AMQP channel of messages, with confirms
    on_harebell whether the broker is Harebell: it deduplicates, and lists bindings
    lost        done when the connection has ended; `on_lost` is called at once
    """

    publishing: Channel

    def __init__(self, client: Connection, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.on_harebell = product_of(client.server_properties) == HAREBELL
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_lost: Callable[[], None] | None = None
        self._free: list[Channel] = []
        self._batches = asyncio.Semaphore(BATCHES)
        client.notify_close(lambda _: self._end())

    @classmethod
    async def open(cls, url: str, settings: Settings, names: Names) -> Link:
        """A link to the broker at that URL, with what every layer needs declared."""
        # Nothing is restored, and the layer tells itself of losses.
        without = Middlewares().without(*FEATURES)
        client = await harebell.connect(url, timeout=settings.timeout, recovery=None, middleware=without)
        link = cls(client, settings)
        try:
            await link.ask(
                [
                    declare_exchange(names.groups, "direct"),
                    declare_exchange(names.dead_letters, "fanout"),
                    declare_queue(names.dead_letters, settings.dead_letter_arguments()),
                    bind(names.dead_letters, names.dead_letters),
                    declare_queue(names.dropped, settings.dropped_arguments()),
                    bind(names.dropped, names.dead_letters),
                    declare_queue(names.registry, settings.registry_arguments()),
                ]
            )
            link.publishing = await link.channel()
            await link.publishing.confirm_select()
        except errors.PreconditionFailed as error:
            await link.close()
            raise explained(error) from error
        except BaseException:
            await link.close()
            raise
        return link

    def _end(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
            if self.on_lost is not None:
                self.on_lost()

    @property
    def is_open(self) -> bool:
        return not self.lost.done()

    async def channel(self) -> Channel:
        """A channel on which the whole layer depends: when the broker closes it with an error, the link ends."""
        channel = await self.client.channel()
        channel.notify_close(lambda event: self._channel_closed(event.error))
        return channel

    def _channel_closed(self, reason: errors.HarebellError | None) -> None:
        if isinstance(reason, errors.ChannelError):
            self.end()

    def end(self) -> None:
        """End the link: the next one is opened, where all is declared again."""
        if self.is_open:
            self.client.recovery.hang_up()
            self._end()

    async def ask(self, parts: Sequence[Part]) -> list[Reply | bool]:
        """The answers to requests and publications, which are sent together on a channel of their own.

        Raises the error of the one that was refused; see `batch`.
        """
        async with self._batches:
            channel = self._free.pop() if self._free else await self._batch_channel()
            try:
                answers = await run_batch(channel, parts, self.settings.timeout)
            except BaseException:
                if not channel.is_closed:
                    channel.recovery.say_goodbye()  # an answer on its way would be taken for that of the next batch
                raise
            self._free.append(channel)
            return answers

    async def _batch_channel(self) -> Channel:
        channel = await self.client.channel()
        await channel.confirm_select()
        return channel

    async def queue(self, name: str) -> QueueInfo | None:
        """The counts of a queue; None when there is none."""
        try:
            (answer,) = await self.ask([m.QueueDeclare(name, passive=True)])
        except errors.NotFound:
            return None
        ok = cast(m.QueueDeclareOk, answer)
        return QueueInfo(name, ok.message_count, ok.consumer_count)

    async def peek(self, name: str) -> bytes | None:
        """The body of the queue's first message, which stays there; None without a queue or a ready message."""
        try:
            (answer,) = await self.ask([m.BasicGet(name)])
        except errors.NotFound:
            return None
        if not isinstance(answer, Delivery):
            return None
        answer.nack(requeue=True)
        return answer.body

    async def close(self) -> None:
        try:
            await self.client.close()
        except errors.HarebellError:
            pass  # it is gone
        self._end()


# All that a layer declares is durable (RabbitMQ 4.3 refuses other queues), and each queue expires.


def declare_queue(name: str, arguments: Table) -> m.QueueDeclare:
    return m.QueueDeclare(name, False, True, arguments=arguments)


def declare_exchange(name: str, type: str, *, auto_delete: bool = False) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(name, type, False, True, auto_delete)


def bind(queue: str, exchange: str, binding_key: str = "") -> m.QueueBind:
    return m.QueueBind(queue, exchange, binding_key)


def bind_exchange(destination: str, source: str, binding_key: str = "") -> m.ExchangeBind:
    return m.ExchangeBind(destination, source, binding_key)
