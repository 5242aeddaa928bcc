"""Moves messages over one pair of connections, until all are moved or either connection is lost.

`run` returns when all messages are moved or the shovel is stopped; every message that the destination has is then
acknowledged. It raises the error that ended a connection or a channel; the source then delivers the unacknowledged
messages again to the next session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from harebell.bridge.rewriting import Rewriter
from harebell.bridge.window import Acknowledgements, InFlightMessage, Window
from harebell.client.core.slots import copy_of
from harebell.errors import DeadlineExceeded, HarebellError, InvalidArgument, NotFound

if TYPE_CHECKING:
    from harebell.bridge.options import Destination, ShovelOptions, Source
    from harebell.bridge.progress import Progress
    from harebell.client.channel import Channel
    from harebell.client.connection import Connection
    from harebell.client.consumer import Consumer
    from harebell.protocol.v091 import Table

__all__ = ["Session", "at"]

log = logging.getLogger("harebell.bridge")

EMPTY_CHECK_SECONDS: Final = 0.1  # between two checks whether the source queue is empty
QUIET: Final = 3.0  # seconds without a delivery after which a stream, which is never empty, has been read to its end


class Session:
    """Moves messages over one pair of open connections.

    running  called when everything is declared, before the first message is received
    ended    called after that, when the last message was received or a connection was lost
    """

    def __init__(
        self,
        options: ShovelOptions,
        progress: Progress,
        source: Connection,
        destination: Connection,
        rewriter: Rewriter,
        *,
        name: str,
        running: Callable[[Session], None],
        ended: Callable[[], None],
    ) -> None:
        self._options = options
        self._progress = progress
        self._connections = (source, destination)
        self._rewriter = rewriter
        self._name = name
        self._running = running
        self._ended = ended
        self._taken = 0
        self._streaming: bool | None = None  # known from the first delivery on
        self._flush_due = False
        self._acknowledgements: Acknowledgements
        self.window: Window

    async def run(self) -> None:
        source, destination = self._connections
        async with AsyncExitStack() as stack:
            with at("source", source.parameters.peer):
                queue = await prepare_source(source, self._options.source)
                taking = await stack.enter_async_context(source.channel())
                await self._count(taking, queue)
            with at("destination", destination.parameters.peer):
                await prepare_destination(destination, self._options.destination)
                giving = await stack.enter_async_context(destination.channel())
                await giving.confirm_select()
            self._acknowledgements = Acknowledgements(taking, acknowledges=self._options.ack_mode != "no-ack")
            self.window = Window(
                giving,
                self._options.source.prefetch,
                self._accepted,
                self._options.ack_mode,
                self._options.reconnect_delay,
                self._name,
            )
            self._running(self)
            try:
                await self._supervise(taking, queue)
                await taking.drain()
            finally:
                self.window.close()
                if self._acknowledgements.next_offset is not None:
                    self._progress.next_offset = self._acknowledgements.next_offset
                self._ended()

    async def _count(self, channel: Channel, queue: str) -> None:
        """Set the number of messages to move, if the options need it."""
        progress = self._progress
        if progress.expected is None:
            ready = (await channel.queue_declare(queue, passive=True)).message_count
            if self._options.source.delete_after == "queue-length":
                progress.limit = ready
            progress.expected = ready if progress.limit is None else progress.limit

    async def _supervise(self, taking: Channel, queue: str) -> None:
        """Move messages until all are moved; raises as soon as either side is lost, also while it is idle."""
        source, destination = self._connections
        consumer = taking.consume(
            queue,
            prefetch=self._prefetch(),
            no_ack=self._options.ack_mode == "no-ack",
            arguments=self._consumer_arguments(),
        )
        pump = asyncio.create_task(self._pump(consumer))
        renewing = asyncio.create_task(self._renew(destination))
        ending = asyncio.create_task(self._end(consumer, source, queue))
        losses = [asyncio.create_task(each.wait_closed()) for each in self._connections]
        failures: tuple[asyncio.Future[HarebellError], ...] = (*losses, self.window.failed)
        watched: set[asyncio.Future[Any]] = {pump, ending, renewing, *failures}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not pump.done():
                ending.result()
                await asyncio.wait(watched - {ending}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
                return
            for connection, failure in zip((*self._connections, destination), failures, strict=True):
                if failure.done():
                    with at("source" if connection is source else "destination", connection.parameters.peer):
                        raise copy_of(failure.result())
            with at("destination", destination.parameters.peer):
                renewing.result()
        finally:
            tasks = [pump, ending, renewing, *losses]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _prefetch(self) -> int:
        left, most = self._progress.left(), self._options.source.prefetch
        return most if left is None else max(1, min(left, most))

    def _consumer_arguments(self) -> Table | None:
        arguments = dict(self._options.source.consumer_arguments)
        if self._progress.next_offset is not None:
            arguments["x-stream-offset"] = self._progress.next_offset
        return arguments or None

    async def _renew(self, destination: Connection) -> None:
        """Give the window another channel when it asks for one."""
        window = self.window
        while True:
            await window.stuck.wait()
            last, channel = window.channel, await destination.channel()
            await channel.confirm_select()
            window.go_on(channel)
            log.info("%s: the destination refused again and again: another channel", self._name)
            await last.close()

    async def _pump(self, consumer: Consumer) -> None:
        left, window = self._progress.left(), self.window
        if left != 0:
            async with consumer:
                async for delivery in consumer:
                    if self._streaming is None:
                        self._streaming = delivery.stream_offset is not None
                    message = self._rewriter.prepare(delivery, delivery.stream_offset if self._streaming else None)
                    self._acknowledgements.take(message)
                    if not (window.channel.may_publish and window.has_room()) and not await self._room():
                        break
                    window.send(message)
                    self._taken += 1
                    if self._options.ack_mode != "on-confirm":
                        self._acknowledge(message)
                    if self._taken == left:
                        break
        while window.sent or (window.held and not self._progress.stopping.is_set()):
            await window.changed()
        self._flush()

    async def _room(self) -> bool:
        """Wait until the window and the destination take another message; False when the shovel is stopped."""
        while not self._progress.stopping.is_set():
            try:
                await self.window.channel.wait_publish()
            except DeadlineExceeded:
                if self._connections[1].blocked is None:
                    raise
                continue  # a broker that is low on memory or disk may block for hours
            if self.window.has_room():
                return True
            await self.window.changed()
        return False

    def _accepted(self, message: InFlightMessage) -> None:
        self._progress.forwarded += 1
        if self._options.ack_mode == "on-confirm":
            self._acknowledge(message)

    def _acknowledge(self, message: InFlightMessage) -> None:
        self._acknowledgements.done(message)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self._acknowledgements.flush()

    async def _end(self, consumer: Consumer, source: Connection, queue: str) -> None:
        """Cancel the subscription when the shovel is stopped, or when no message is left to move."""
        stopping = self._progress.stopping
        if not self._progress.until_empty:
            await stopping.wait()
        else:
            async with source.channel() as asking:
                await self._emptied(consumer, asking, queue)
        await consumer.cancel()
        self.window.wake()

    async def _emptied(self, consumer: Consumer, asking: Channel, queue: str) -> None:
        stopping, loop = self._progress.stopping, asyncio.get_running_loop()
        taken, since = -1, loop.time()
        while not stopping.is_set():
            try:
                await asyncio.wait_for(stopping.wait(), EMPTY_CHECK_SECONDS)
            except TimeoutError:
                pass
            if self._taken != taken:
                taken, since = self._taken, loop.time()
            elif consumer.buffered or self._acknowledgements.open:
                continue
            elif self._reads_stream():
                if loop.time() - since >= QUIET:
                    return
            elif not (await asking.queue_declare(queue, passive=True)).message_count:
                return

    def _reads_stream(self) -> bool:
        return bool(self._streaming) or "x-stream-offset" in self._options.source.consumer_arguments


async def prepare_source(connection: Connection, source: Source) -> str:
    """Declare the queues and bindings of the source; returns the queue to consume from."""
    if source.queue is not None:
        await ensure_queue(connection, source.queue, source.queue_arguments, declare=not source.predeclared)
        return source.queue
    if source.exchange is None:
        raise InvalidArgument("a shovel needs a queue or an exchange to take messages from")
    channel = await connection.channel()  # stays open as long as the connection
    queue = (await channel.queue_declare(exclusive=True, arguments=source.queue_arguments or None)).name
    await channel.queue_bind(queue, source.exchange, source.key)
    return queue


async def prepare_destination(connection: Connection, destination: Destination) -> None:
    """Check that the queue or exchange to publish to exists, or declare the queue where that is allowed."""
    if destination.queue is not None:
        await ensure_queue(
            connection, destination.queue, destination.queue_arguments, declare=not destination.predeclared
        )
    elif destination.exchange:
        async with connection.channel() as channel:
            await channel.exchange_declare(destination.exchange, passive=True)


async def ensure_queue(connection: Connection, name: str, arguments: Table, *, declare: bool) -> None:
    """Check that the queue exists, or declare a durable one if `declare`. NotFound when it is missing otherwise."""
    try:
        async with connection.channel() as channel:
            await channel.queue_declare(name, passive=True)
    except NotFound:
        if not declare:
            raise
        async with connection.channel() as channel:
            await channel.queue_declare(name, durable=True, arguments=arguments or None)


@contextmanager
def at(end: str, peer: str) -> Iterator[None]:
    """Add to an error raised in the block at which end it happened."""
    try:
        yield
    except HarebellError as error:
        notes = getattr(error, "__notes__", [])
        named = any(peer in text for text in (str(error), *notes))
        error.__notes__ = [end if named else f"{end} {peer}", *notes]
        raise
