"""A blocking connection and a queue for it, on each broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harebell.client.blocking import Channel, Connection, connect
from tests.client.outages import FAST


@pytest.fixture
def blocking(broker_url: str) -> Iterator[Connection]:
    with connect(broker_url, timeout=60, recovery=FAST) as connection:
        yield connection


@pytest.fixture
def other(broker_url: str) -> Iterator[Channel]:
    """A channel of somebody else's."""
    with connect(broker_url, timeout=60) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(blocking: Connection, name: str) -> Iterator[str]:
    blocking.channel().queue_declare(name)
    yield name
    if blocking.is_open:
        blocking.channel().queue_delete(name)
