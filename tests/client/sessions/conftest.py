"""Brokers, proxies and sessions for the tests of AMQP 0-10's client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harebell.broker import Broker
from harebell.client.sessions import Connection, Session, connect
from harebell.testing import FaultProxy
from tests.client.sessions.kit import FAST


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        yield broker


@pytest.fixture
async def proxy(broker: Broker) -> AsyncIterator[FaultProxy]:
    assert broker.port is not None
    async with FaultProxy("127.0.0.1", broker.port) as proxy:
        yield proxy


@pytest.fixture
async def connection(proxy: FaultProxy) -> AsyncIterator[Connection]:
    async with connect(f"amqp://{proxy.host}:{proxy.port}", timeout=60, backoff=FAST) as connection:
        yield connection


@pytest.fixture
async def session(connection: Connection) -> AsyncIterator[Session]:
    async with connection.session("test") as session:
        yield session


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Session]:
    """A session of somebody else's, that no outage touches."""
    async with connect(broker.url, timeout=60) as connection, connection.session("other") as session:
        yield session
