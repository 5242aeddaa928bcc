"""A process's connections for publishing tasks: one thread with an event loop, for the callers of all threads.

Django makes a backend for each thread, and for each request under ASGI; those with the same options share a connection.
A task is published with a confirm, and declared queues are remembered for as long as the connection has not come back.
After a fork the child makes its own.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message
from harebell.client.patterns.outbox import is_final
from harebell.client.servers import product_of
from harebell.django import topology
from harebell.django.messages import DUE, message_of
from harebell.django.options import EMBEDDED, Options

__all__ = ["Broker", "Publisher", "close_publisher", "embedded_url", "publisher_of"]

_T = TypeVar("_T")

DEAD: Final = "dead"
DELAYS: Final = "delays"
UNROUTABLE_SECONDS: Final = 0.05  # before a task that reached no queue is published again
FORGET_SECONDS: Final = 1.0  # what was declared is declared again for many tasks at once


class Broker:
    """A connection with what tasks need on the broker; for one event loop."""

    def __init__(self, connection: Connection, channel: Channel, options: Options) -> None:
        self.connection = connection
        self.channel = channel
        self.options = options
        self.names = topology.Names(options.prefix)
        self.product = product_of(connection.server_properties)
        self._declared: set[object] = set()  # what is known to be there: DEAD, DELAYS, (queue, delayed)
        self._declaring = asyncio.Lock()
        self._forgotten = -FORGET_SECONDS  # when that was last found to be wrong by a worker

    @classmethod
    async def connect(cls, options: Options) -> Broker:
        connection = await harebell.connect(options.url, timeout=options.timeout)
        try:
            channel = await connection.channel()
            await channel.confirm_select(on_orphan="retry")
        except BaseException:
            await connection.close()
            raise
        return cls(connection, channel, options)

    async def declare(self, name: str, *, delayed: bool = False) -> None:
        """Declare a Django queue, once; with `delayed` what leads delayed tasks to it, too."""
        await self._once((name, False), topology.declare_queue, self.options, self.product, name)
        if delayed:
            await self.declare_delays()
            await self._once((name, True), topology.bind_delayed, self.product, name)

    async def declare_delays(self) -> None:
        """Declare what keeps tasks until they are due, and where those come to that reach no queue then; once."""
        await self._once(DELAYS, topology.declare_delays, self.product)

    async def declare_dead(self) -> None:
        """Declare the queue of dead tasks, once."""
        await self._once(DEAD, topology.declare_dead, self.options)

    async def _once(self, what: object, declare: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        if what in self._declared:
            return
        async with self._declaring:  # several tasks that want the same declare it once
            if what not in self._declared:
                await declare(self.channel, self.names, *arguments)
                self._declared.add(what)

    async def publish(self, record: dict[str, Any], *, attempt: int = 1, delay: float = 0.0, waits: int = 0) -> None:
        """Publish a task, due in `delay` seconds; return when the broker has it. Raises what `Channel.publish` does."""
        message, name = message_of(record, self.options, attempt, waits), record["queue"]
        exchange, key, headers = topology.route(self.names, self.product, name, delay)
        if delay > 0:
            headers[DUE] = round((time.time() + delay) * 1000)
            message = Message(message.body, properties=message.properties)
            message.properties.headers = {**message.headers, **headers}
        await self._publish(message, exchange, key, lambda: self.declare(name, delayed=delay > 0))

    async def publish_again(self, record: dict[str, Any], *, attempt: int, due: int, waits: int) -> None:
        """Publish a task that reached no queue when it was due, and declare again what leads there.

        due  milliseconds since 1970: when it may run; a rung of the ladder may have been missing long before
        """
        self.forget()
        await self.declare(record["queue"], delayed=True)
        await self.publish(record, attempt=attempt, delay=due / 1000 - time.time(), waits=waits)

    def forget(self) -> None:
        """Declare everything again before it is next used: somebody has deleted some of it."""
        if (now := time.monotonic()) - self._forgotten >= FORGET_SECONDS:
            self._forgotten = now
            self._declared.clear()

    async def dead(self, message: Message, why: str) -> None:
        """Publish a task that has failed for good to the queue of dead tasks."""
        message = Message(message.body, properties=message.properties)
        message.properties.headers = {**message.headers, "x-error": why[:1000]}
        await self._publish(message, "", self.names.dead, self.declare_dead)

    async def _publish(
        self, message: Message, exchange: str, key: str, declare: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Publish a message that some queue must take; declare again what leads there as long as none does.

        Somebody may have deleted what was declared. And RabbitMQ answers a declaration of what another process declares
        at the same time before it routes by it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.options.timeout
        while True:
            try:
                await declare()
                await self.channel.publish(message, exchange, key, mandatory=True)
            except (errors.Unroutable, errors.NotFound):
                self._declared.clear()
                if loop.time() + UNROUTABLE_SECONDS > until:
                    raise
                await asyncio.sleep(UNROUTABLE_SECONDS)
            else:
                return

    async def close(self) -> None:
        await self.connection.close()


class Publisher:
    """Publishes tasks from any thread of this process, over one connection. Made by `publisher_of`.

    The coroutines run in the loop.
    """

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._connecting: asyncio.Task[Broker] | None = None  # done while there is a connection
        self._publishing: set[asyncio.Task[Any]] = set()

    def publish(self, record: dict[str, Any], *, delay: float = 0.0) -> None:
        """Publish a task; return when the broker has it. HarebellError when that does not succeed in time."""
        self._run(self._publish(record, delay))

    def close(self) -> None:
        """Close the connection, after the tasks that other threads are publishing. The next task opens it again."""
        self._run(self._close())

    def is_final(self, error: errors.HarebellError) -> bool:
        """Whether another attempt would end with this error of `publish`, too. Never while there is no connection."""
        known = self._connecting
        connected = known is not None and known.done() and not known.exception() and known.result().connection.is_open
        return connected and is_final(error)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _publish(self, record: dict[str, Any], delay: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._publishing.add(task)
        try:
            broker = await self._connected()
            await broker.publish(record, delay=delay)
        finally:
            self._publishing.discard(task)

    async def _connected(self) -> Broker:
        """The connection. All that wait for it share one attempt, so that none waits for those of others first."""
        known = self._connecting
        if known is not None and known.done() and (known.exception() or known.result().connection.is_closed):
            known = None
        if known is None:
            known = self._connecting = asyncio.create_task(Broker.connect(self._options))
        return await asyncio.shield(known)

    async def _close(self) -> None:
        connecting, self._connecting = self._connecting, None
        if self._publishing:
            await asyncio.wait(self._publishing)
        if connecting is not None:
            try:
                broker = await connecting
            except errors.HarebellError:
                return
            await broker.close()


class _Process:
    """What publishes in this process: one thread with an event loop, and a publisher for each set of options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._publishers: dict[Options, Publisher] = {}

    def publisher(self, options: Options) -> Publisher:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="harebell-tasks", daemon=True).start()
            if options not in self._publishers:
                self._publishers[options] = Publisher(resolved(options), self._loop)
            return self._publishers[options]

    def known(self, options: Options) -> Publisher | None:
        with self._lock:
            return self._publishers.get(options)


_process = _Process()


def publisher_of(options: Options) -> Publisher:
    """The publisher of this process for these options: each backend with them has the same."""
    return _process.publisher(options)


def close_publisher(options: Options) -> None:
    """Close this process's connection for these options, if it has one. The next task opens it again."""
    if (publisher := _process.known(options)) is not None:
        publisher.close()


def _forked() -> None:
    """Begin anew in a child: the parent's thread is not there, and its lock may be held for ever."""
    global _process
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


_embedded: Any = None
_embedding = threading.Lock()


def embedded_url() -> str:
    """The URL of the broker in this process, which the first call starts.

    Only this function needs the broker; it is imported when the URL is "embedded://".
    """
    global _embedded
    with _embedding:
        if _embedded is None:
            server = importlib.import_module("harebell.testing").EmbeddedBroker()
            server.start()
            _embedded = server
    return str(_embedded.url)


def resolved(options: Options) -> Options:
    """The options with the URL of the embedded broker where they say so."""
    from dataclasses import replace

    return replace(options, url=embedded_url()) if options.url == EMBEDDED else options
