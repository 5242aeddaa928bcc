from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.kit import Client, NodeKit
from tests.broker.store.held_syncs import HeldSyncs
from tests.wire import BrokerThread


@pytest.fixture(autouse=True)
def catalogs_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that kills a broker leaves its catalog open, which Python 3.13 warns about, in some later test."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(
            connect(*arguments, **{"check_same_thread": False, **options})
        )  # a broker may have its own thread
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    yield
    for connection in opened:
        connection.close()


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path / "data")
    yield kit
    kit.stop()


@pytest.fixture
def client(kit: NodeKit) -> Client:
    return kit.client()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> HeldSyncs:
    """The process's fdatasync, in the hands of the test."""
    disk = HeldSyncs()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker
