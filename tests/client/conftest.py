"""What the client's tests run against: RabbitMQ and Warren, each test that asks for a broker against both."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

import warren
from warren.broker import Broker
from warren.client.channel import Channel
from warren.client.connection import Connection
from warren.client.recovery import Recovery


@pytest.fixture(scope="session")
def warren_url() -> Iterator[str]:
    """A Warren broker in a thread of its own, so that blocking tests can use it too."""
    ready = threading.Event()
    state: dict[str, object] = {}

    async def serve() -> None:
        async with Broker() as broker:
            stop = asyncio.Event()
            state.update(url=broker.url, loop=asyncio.get_running_loop(), stop=stop)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20), "the broker did not start"
    yield str(state["url"])
    loop, stop = state["loop"], state["stop"]
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert isinstance(stop, asyncio.Event)
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture(params=["rabbitmq", "warren"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker; each test that asks for it runs against both."""
    if request.param == "rabbitmq":
        return str(request.getfixturevalue("rabbitmq").url)
    return str(request.getfixturevalue("warren_url"))


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for queues and exchanges."""
    return f"test.{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def connection(broker_url: str) -> AsyncIterator[Connection]:
    async with warren.connect(broker_url, timeout=20) as connection:
        yield connection


@pytest.fixture
async def channel(connection: Connection) -> AsyncIterator[Channel]:
    async with connection.channel() as channel:
        yield channel


@pytest.fixture
async def frail(broker_url: str) -> AsyncIterator[Channel]:
    """A channel that stays closed once the broker has closed it."""
    recovery = Recovery(reopen_channels=False)
    async with warren.connect(broker_url, timeout=20, recovery=recovery) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
async def queue(channel: Channel, connection: Connection, name: str) -> AsyncIterator[str]:
    """An empty queue, deleted afterwards even when the test's channel has died."""
    await channel.queue_declare(name)
    yield name
    if connection.is_open:
        async with connection.channel() as cleaner:
            await cleaner.queue_delete(name)
