"""A process's connection for publishing tasks: one thread with an event loop, for callers of every kind.

A task is published with a confirm, and declared queues are remembered for as long as the connection has not come back.
After a fork the child makes its own.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message
from harebell.client.servers import product_of
from harebell.django import topology
from harebell.django.messages import message_of
from harebell.django.options import EMBEDDED, Options

__all__ = ["Broker", "Publisher", "embedded_url"]

_T = TypeVar("_T")

DEAD: Final = "dead"
DELAYS: Final = "delays"
UNROUTABLE_SECONDS: Final = 0.05  # before a task that reached no queue is published again


class Broker:
    """A connection with what tasks need on the broker; for one event loop."""

    def __init__(self, connection: Connection, channel: Channel, options: Options) -> None:
        self.connection = connection
        self.channel = channel
        self.options = options
        self.names = topology.Names(options.prefix)
        self.product = product_of(connection.server_properties)
        self._declared: set[object] = set()  # what is known to be there: DEAD, DELAYS, (queue, delayed)

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
        if (name, False) not in self._declared:
            await topology.declare_queue(self.channel, self.names, self.options, self.product, name)
            self._declared.add((name, False))
        if delayed and DELAYS not in self._declared:
            await topology.declare_delays(self.channel, self.names, self.product)
            self._declared.add(DELAYS)
        if delayed and (name, True) not in self._declared:
            await topology.bind_delayed(self.channel, self.names, self.product, name)
            self._declared.add((name, True))

    async def declare_dead(self) -> None:
        """Declare the queue of dead tasks, once."""
        if DEAD not in self._declared:
            await topology.declare_dead(self.channel, self.names, self.options)
            self._declared.add(DEAD)

    async def publish(self, record: dict[str, Any], *, attempt: int = 1, delay: float = 0.0, waits: int = 0) -> None:
        """Publish a task, due in `delay` seconds; return when the broker has it. Raises what `Channel.publish` does."""
        message, name = message_of(record, self.options, attempt, waits), record["queue"]
        exchange, key, headers = topology.route(self.names, self.product, name, delay)
        if headers:
            message = Message(message.body, properties=message.properties)
            message.properties.headers = {**message.headers, **headers}
        await self._publish(message, exchange, key, lambda: self.declare(name, delayed=delay > 0))

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
    """Publishes tasks from any thread of this process, and from its children after a fork."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._process = 0
        self._loop: asyncio.AbstractEventLoop
        self._broker: Broker | None = None
        self._opening: asyncio.Lock

    def publish(self, record: dict[str, Any], *, delay: float = 0.0) -> None:
        """Publish a task; return when the broker has it. HarebellError when that does not succeed in time."""
        self._run(self._publish(record, delay))

    async def apublish(self, record: dict[str, Any], *, delay: float = 0.0) -> None:
        """The same, for coroutines."""
        self._start()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._publish(record, delay), self._loop))

    def close(self) -> None:
        """Close the connection. The next task opens it again."""
        if self._process == os.getpid():
            self._run(self._close())

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        self._start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _start(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._broker = None
                self._loop = asyncio.new_event_loop()
                self._opening = asyncio.Lock()
                threading.Thread(target=self._loop.run_forever, name="harebell-tasks", daemon=True).start()

    async def _publish(self, record: dict[str, Any], delay: float) -> None:
        async with self._opening:
            if self._broker is None or self._broker.connection.is_closed:
                self._broker = await Broker.connect(self._options)
        await self._broker.publish(record, delay=delay)

    async def _close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()


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
