"""Fixtures of the tests of AMQP 0-10."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.v010.kit import Client, Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path, sync=False)
    yield kit
    kit.sessions.close()
    kit.stop()


@pytest.fixture
def client(kit: Kit) -> Client:
    """A session of a client of its own."""
    return kit.peer().session(b"fixture")
