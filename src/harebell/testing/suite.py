"""A base for tests of AMQP programs: two connections, queues that are deleted afterwards, messages.

    class TestOrders(AmqpCase):
        async def test_one(self):
            queue = await self.create_test_queue("orders")
            await self.publish_messages("", queue, 3)
            delivery = await self.get_message(queue)

`AmqpCase` is for unittest, and pytest runs it too; `AmqpSuite` is the same without a framework, and the fixture
`harebell_suite` (`plugin`) is one. Both run against any broker: that of a given URL, that of the environment variable
HAREBELL_TEST_URL, or else a broker of their own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import unittest
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection, connect
from harebell.client.harness import ChannelHarness, ConnectionHarness
from harebell.client.messages import Delivery, Message, Publication
from harebell.client.middleware.registry import Middlewares
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.client.transport.dialling import Credentials
from harebell.protocol.v091 import Table
from harebell.testing.embedded import EmbeddedBroker

__all__ = ["QUICK", "URL_VARIABLE", "AmqpCase", "AmqpSuite"]

logger = logging.getLogger("harebell.testing")

URL_VARIABLE: Final = "HAREBELL_TEST_URL"
QUICK: Final = Recovery(backoff=Backoff(0.01, 0.2))
"""A short backoff, because a test should not wait as long as a program."""

CONNECT_SECONDS: Final = 10.0
MESSAGE_SECONDS: Final = 10.0
SECONDS_A_PUBLICATION: Final = 0.1  # on top of that


class AmqpSuite:
    """Two connections with a channel each, one to consume and one to publish on, and helpers for tests.

    consume_connection, consume_channel  for consumers
    publish_connection, publish_channel  for publishers; confirms are on

    Use it as an async context manager, or call `open` and `aclose`. At the end all connections are closed, held-down
    ones (`block_reconnect`) too, and the queues and exchanges of `create_test_queue` and `create_test_exchange` are
    deleted.

    recovery, timeout, credentials, middleware  as `harebell.connect` takes them, for each of its connections
    """

    def __init__(
        self,
        url: str,
        *,
        recovery: Recovery | None = QUICK,
        timeout: float = CONNECT_SECONDS,
        credentials: Credentials | None = None,
        middleware: Middlewares | None = None,
    ) -> None:
        self.url = url
        self._recovery = recovery
        self._timeout = timeout
        self._credentials = credentials
        self._middleware = middleware
        self._connections: list[Connection] = []
        self._getter: Channel | None = None
        self._litter: list[tuple[str, str]] = []  # kind, name

    async def open(self) -> None:
        """Open both connections and their channels. Raises what `harebell.connect` raises."""
        try:
            self.consume_connection = await self.connect()
            self.publish_connection = await self.connect()
            await self._open_channels()
        except BaseException:
            await self.aclose()
            raise

    async def connect(self) -> Connection:
        """Open another connection, closed at the end like the others."""
        connection = await connect(
            self.url, recovery=self._recovery, timeout=self._timeout, credentials=self._credentials,
            middleware=self._middleware,
        )  # fmt: skip
        self._connections.append(connection)
        return connection

    async def aclose(self) -> None:
        """Close the connections and delete what was created. May be called again."""
        connections, self._connections = self._connections, []
        for connection in connections:
            await release(connection)
        litter, self._litter = self._litter, []
        if not litter:
            return
        try:  # over a new connection, which no test has changed
            async with connect(
                self.url, recovery=None, timeout=self._timeout, credentials=self._credentials
            ) as connection:
                for kind, name in reversed(litter):
                    async with connection.channel() as channel:
                        await (channel.queue_delete if kind == "queue" else channel.exchange_delete)(name)
        except errors.HarebellError as error:  # the broker is gone; the test may have stopped it
            logger.warning("not cleaned up (%s): %s", ", ".join(f"{kind} {name!r}" for kind, name in litter), error)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _open_channels(self) -> None:
        self.consume_channel = await self.consume_connection.channel()
        self.publish_channel = await self.publish_connection.channel()
        await self.publish_channel.confirm_select()

    async def replace_channels(self) -> None:
        """Close both channels and open new ones, with confirms on and nothing else."""
        await self.consume_channel.close()
        await self.publish_channel.close()
        await self._open_channels()

    @property
    def consume_tester(self) -> ChannelHarness:
        return self.consume_channel.test()

    @property
    def publish_tester(self) -> ChannelHarness:
        return self.publish_channel.test()

    @property
    def consume_connection_tester(self) -> ConnectionHarness:
        return self.consume_connection.test()

    @property
    def publish_connection_tester(self) -> ConnectionHarness:
        return self.publish_connection.test()

    async def create_test_queue(
        self,
        name: str = "",
        exchange: str = "",
        binding_key: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        clean_up: bool = True,
    ) -> str:
        """Declare an empty queue and return its name: "" lets the broker choose one. Binds it to `exchange`, if given.

        An older queue of that name is deleted first. Both connections declare the queue, so that either redeclares it
        after a loss; only the consuming connection declares an exclusive or nameless one. `clean_up=False` does not
        delete it at the end.
        """
        if name:
            await self.consume_channel.queue_delete(name)
        channels = [self.consume_channel] if exclusive or not name else [self.consume_channel, self.publish_channel]
        for channel in channels:
            info = await channel.queue_declare(
                name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments
            )
            name = info.name
            if exchange:
                await channel.queue_bind(name, exchange, binding_key)
        if clean_up and not exclusive:
            self._litter.append(("queue", name))
        return name

    async def create_test_exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        clean_up: bool = True,
    ) -> str:
        """Declare an exchange without bindings on both connections, after deleting an older one; returns its name."""
        await self.consume_channel.exchange_delete(name)
        for channel in (self.consume_channel, self.publish_channel):
            await channel.exchange_declare(
                name, type, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
            )
        if clean_up:
            self._litter.append(("exchange", name))
        return name

    async def publish_messages(
        self,
        exchange: str,
        routing_key: str,
        count: int = 1,
        *,
        make: Callable[[int], Message] = lambda n: Message(str(n).encode()),
        timeout: float | None = None,
    ) -> None:
        """Publish `count` messages, "0" and up or the results of `make` for 0 and up; each must reach a queue.

        Raises Unroutable when one reached no queue, Nacked or PublishOrphaned when one was not confirmed, and
        DeadlineExceeded after `timeout` seconds (10, and 0.1 for each message, when left out).
        """
        await self.publish_channel.publish_many(
            [Publication(make(n), exchange, routing_key, mandatory=True) for n in range(count)],
            timeout=MESSAGE_SECONDS + SECONDS_A_PUBLICATION * count if timeout is None else timeout,
        )

    async def get_message(self, queue: str, *, timeout: float = MESSAGE_SECONDS) -> Delivery:
        """The next message of the queue, waiting for it if there is none yet; the test acknowledges it.

        Raises AssertionError after `timeout` seconds, so that the test fails.
        """
        if self._getter is None or self._getter.is_closed:
            self._getter = await self.consume_connection.channel()
        async with self._getter.consume(queue, prefetch=1) as consumer:
            try:
                async with asyncio.timeout(timeout):
                    return await anext(consumer)
            except TimeoutError:
                info = await self._getter.queue_declare(queue, passive=True)
                raise AssertionError(
                    f"no message from queue {queue!r} within {timeout:g} s: it has {info.message_count} ready and "
                    f"{info.consumer_count - 1} consumers beside this one"
                ) from None


async def release(connection: Connection) -> None:
    """Close a test's connection, even one that the test holds down."""
    connection.test().unblock_reconnect()
    await connection.close()


class AmqpCase(AmqpSuite, unittest.IsolatedAsyncioTestCase):
    """A test case with everything of AmqpSuite. Both connections are new for each test.

    broker_url       where to connect, set in the class; None: HAREBELL_TEST_URL, or else an embedded broker of the
                     class's own
    server           that broker, to stop and restart it; None when another one is used
    connect_options  recovery, timeout, credentials, middleware of its connections, set in the class
    """

    broker_url: ClassVar[str | None] = None
    server: ClassVar[EmbeddedBroker | None] = None
    connect_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, methodName: str = "runTest") -> None:
        unittest.IsolatedAsyncioTestCase.__init__(self, methodName)
        AmqpSuite.__init__(self, "", **self.connect_options)

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = None
        if cls.broker_url is None and not os.environ.get(URL_VARIABLE):
            cls.server = EmbeddedBroker()
            cls.server.start()
            cls.addClassCleanup(cls.server.close)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        if self.server is not None and not self.server.is_running:
            self.server.start()  # the last test stopped it
        own = self.server.url if self.server is not None else ""
        self.url = self.broker_url or own or os.environ[URL_VARIABLE]
        await self.enterAsyncContext(self)
