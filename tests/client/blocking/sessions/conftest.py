"""Connections and sessions of the blocking API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harebell.client.blocking.sessions import Connection, Session, connect
from tests.client.sessions.kit import FAST


@pytest.fixture
def connection(harebell_url: str) -> Iterator[Connection]:
    with connect(harebell_url, timeout=60, backoff=FAST) as connection:
        yield connection


@pytest.fixture
def session(connection: Connection, name: str) -> Iterator[Session]:
    with connection.session(name) as session:
        yield session


@pytest.fixture
def queue(connection: Connection, name: str) -> Iterator[str]:
    """An empty queue, deleted afterwards whatever became of the test's session."""
    with connection.session() as session:
        session.queue_declare(name)
    yield name
    with connection.session() as session:
        session.queue_delete(name)
