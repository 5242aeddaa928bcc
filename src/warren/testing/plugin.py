"""Fixtures for pytest. A conftest.py asks for them with `pytest_plugins = ["warren.testing.plugin"]`.

    async def test_orders(warren_channel):
        await warren_channel.queue_declare("orders")

Each test has a broker of its own, unless WARREN_TEST_URL names another one. Coroutine tests and fixtures need
pytest-asyncio; where that is missing, the fixtures are plain ones, as anyio's plugin runs them. `warren_broker` and
`warren_url` need neither, and serve blocking clients.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import pytest

from warren.broker import Broker
from warren.client.channel import Channel
from warren.client.connection import Connection, connect
from warren.testing.embedded import EmbeddedBroker
from warren.testing.suite import CONNECT_SECONDS, QUICK, URL_VARIABLE, AmqpSuite, release

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    async_fixture = pytest.fixture  # type: ignore[assignment]

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
def warren_broker_options() -> Mapping[str, object]:
    """What Broker is made with. Override it: `return {"definitions": "definitions.json"}`."""
    return {}


@pytest.fixture
def warren_broker(warren_broker_options: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker of the test's own: `.url`, `.restart()`, `.run(lambda broker: ...)`."""
    with EmbeddedBroker(lambda: Broker(**warren_broker_options)) as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture
def warren_url(request: pytest.FixtureRequest) -> str:
    """Where the test connects: what WARREN_TEST_URL says, or else `warren_broker`."""
    server: EmbeddedBroker
    if url := os.environ.get(URL_VARIABLE):
        return url
    server = request.getfixturevalue("warren_broker")
    return server.url


@pytest.fixture
def warren_connect_options() -> Mapping[str, object]:
    """What `warren.connect` is called with beside the URL. Override it for a recovery of your own."""
    return {"recovery": QUICK, "timeout": CONNECT_SECONDS}


@async_fixture
async def warren_connect(warren_url: str, warren_connect_options: Mapping[str, object]) -> AsyncIterator[Connect]:
    """`await warren_connect()` is a connection, let go and closed after the test; takes the options of `connect`."""
    opened: list[Connection] = []

    async def open_one(url: str = warren_url, **options: object) -> Connection:
        connection = await connect(url, **{**warren_connect_options, **options})  # type: ignore[arg-type]
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await release(connection)


@async_fixture
async def warren_connection(warren_connect: Connect) -> Connection:
    """A connection; one that the test holds down with `block_reconnect` is let go."""
    return await warren_connect()


@async_fixture
async def warren_channel(warren_connection: Connection) -> Channel:
    """A channel of `warren_connection`."""
    return await warren_connection.channel()


@async_fixture
async def warren_suite(warren_url: str) -> AsyncIterator[AmqpSuite]:
    """Two connections with a channel each, queues that go away, messages: see `AmqpSuite`."""
    async with AmqpSuite(warren_url) as suite:
        yield suite
