"""Fixtures for pytest. A conftest.py loads them with `pytest_plugins = ["harebell.testing.plugin"]`.

    async def test_orders(harebell_channel):
        await harebell_channel.queue_declare("orders")

Each test has a broker of its own, unless HAREBELL_TEST_URL names another one. Coroutine tests and fixtures need
pytest-asyncio; where that is missing, the fixtures are plain ones, as anyio's plugin runs them. `harebell_broker` and
`harebell_url` need neither, and serve blocking clients.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import pytest

from harebell.broker import Broker
from harebell.client.channel import Channel
from harebell.client.connection import Connection, connect
from harebell.testing.embedded import EmbeddedBroker
from harebell.testing.suite import CONNECT_SECONDS, QUICK, URL_VARIABLE, AmqpSuite, release

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    async_fixture = pytest.fixture  # type: ignore[assignment]

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
def harebell_broker_options() -> Mapping[str, object]:
    """The keyword arguments of Broker. Override it: `return {"definitions": "definitions.json"}`."""
    return {}


@pytest.fixture
def harebell_broker(harebell_broker_options: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker of the test's own: `.url`, `.restart()`, `.run(lambda broker: ...)`."""
    with EmbeddedBroker(lambda: Broker(**harebell_broker_options)) as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture
def harebell_url(request: pytest.FixtureRequest) -> str:
    """The URL that the test connects to: HAREBELL_TEST_URL, else that of `harebell_broker`."""
    server: EmbeddedBroker
    if url := os.environ.get(URL_VARIABLE):
        return url
    server = request.getfixturevalue("harebell_broker")
    return server.url


@pytest.fixture
def harebell_connect_options() -> Mapping[str, object]:
    """The keyword arguments of `harebell.connect` beside the URL. Override it for a recovery of your own."""
    return {"recovery": QUICK, "timeout": CONNECT_SECONDS}


@async_fixture
async def harebell_connect(harebell_url: str, harebell_connect_options: Mapping[str, object]) -> AsyncIterator[Connect]:
    """`await harebell_connect()` opens a connection, closed after the test; takes the options of `connect`."""
    opened: list[Connection] = []

    async def open_one(url: str = harebell_url, **options: object) -> Connection:
        connection = await connect(url, **{**harebell_connect_options, **options})  # type: ignore[arg-type]
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await release(connection)


@async_fixture
async def harebell_connection(harebell_connect: Connect) -> Connection:
    """A connection, closed after the test even when `block_reconnect` holds it down."""
    return await harebell_connect()


@async_fixture
async def harebell_channel(harebell_connection: Connection) -> Channel:
    """A channel of `harebell_connection`."""
    return await harebell_connection.channel()


@async_fixture
async def harebell_suite(harebell_url: str, harebell_connect_options: Mapping[str, object]) -> AsyncIterator[AmqpSuite]:
    """Two connections with a channel each, queues that go away, messages: see `AmqpSuite`."""
    async with AmqpSuite(harebell_url, **harebell_connect_options) as suite:  # type: ignore[arg-type]
        yield suite
