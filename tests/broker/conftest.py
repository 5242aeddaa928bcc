from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.kit import Client, NodeKit
from tests.wire import BrokerThread


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path / "data")
    yield kit
    kit.stop()


@pytest.fixture
def client(kit: NodeKit) -> Client:
    return kit.client()


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker
