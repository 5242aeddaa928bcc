"""A process's connection for publishing tasks: one thread with an event loop, for callers of every kind.

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
from harebell.client.servers import product_of
from harebell.django import topology
from harebell.django.messages import DUE, message_of
from harebell.django.options import EMBEDDED, Options

__all__ = ["Broker", "Publisher", "embedded_url"]

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
