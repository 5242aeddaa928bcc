"""What the client's tests run against: two RabbitMQs and Harebell, each test that asks for a broker against all."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

import harebell
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.recovery.policy import Recovery
from harebell.testing import EmbeddedBroker
from tests.client.outages import FAST, NOTICED
from tests.fixtures.rabbitmq import EACH


@pytest.fixture(scope="session")
def harebell_url() -> Iterator[str]:
    """A Harebell broker in a thread of its own, so that blocking tests can use it too."""
    with EmbeddedBroker() as server:
        yield server.url


@pytest.fixture(params=[*EACH, "harebell"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker; each test that asks for it runs against each."""
    if request.param in EACH:
        return str(request.getfixturevalue(request.param).url)
    return str(request.getfixturevalue("harebell_url"))


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for queues and exchanges."""
    return f"test.{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def connection(broker_url: str, harebell_url: str) -> AsyncIterator[Connection]:
    recovery = FAST if broker_url == harebell_url else NOTICED
    async with harebell.connect(broker_url, timeout=60, recovery=recovery) as connection:
        yield connection


@pytest.fixture
async def channel(connection: Connection) -> AsyncIterator[Channel]:
    async with connection.channel() as channel:
        yield channel


@pytest.fixture
async def other(broker_url: str) -> AsyncIterator[Channel]:
    """A channel of somebody else's, whom no outage touches."""
    async with harebell.connect(broker_url, timeout=60) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
async def frail(broker_url: str) -> AsyncIterator[Channel]:
    """A channel that stays closed once the broker has closed it."""
    recovery = Recovery(reopen_channels=False)
    async with (
        harebell.connect(broker_url, timeout=60, recovery=recovery) as connection,
        connection.channel() as channel,
    ):
        yield channel


@pytest.fixture
async def queue(channel: Channel, connection: Connection, name: str) -> AsyncIterator[str]:
    """An empty queue, deleted afterwards even when the test's channel has died."""
    await channel.queue_declare(name)
    yield name
    if connection.is_open:
        async with connection.channel() as cleaner:
            await cleaner.queue_delete(name)
