"""How often overdue deliveries are looked for: a short consumer timeout of one queue does not keep the broker busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.broker import node
from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.protocol.v091 import methods as m
from tests.broker.kit import Client, NodeKit

QUEUES = 20
pytestmark = pytest.mark.pure  # patches a class and a constant


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often queues, and connections, were looked at."""
    looks: Counter[str] = Counter()
    rest, give_back = Queue.rest, node.Node._give_back_overdue

    def resting(self: Queue) -> None:
        looks["queues"] += 1
        rest(self)

    def giving_back(self: node.Node, now: int, least: int) -> Work:
        looks["connections"] += 1
        return give_back(self, now, least)

    monkeypatch.setattr(Queue, "rest", resting)
    monkeypatch.setattr(node.Node, "_give_back_overdue", giving_back)
    return looks


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path, sync=False)
    yield kit
    kit.stop()


@pytest.fixture
def client(kit: NodeKit) -> Client:
    client = kit.client()
    for number in range(QUEUES):
        client.declare(f"q{number}")
    return client


@pytest.mark.parametrize("timeout", [1, 1_000, 60_000])
def test_queues_are_looked_at_once_a_minute(kit: NodeKit, client: Client, looks: Counter[str], timeout: int) -> None:
    client.declare("one", x_consumer_timeout=timeout)
    kit.pass_time(10 * node.SWEEP_MS)
    assert looks["queues"] <= 11 * (QUEUES + 1)
    assert looks["connections"] <= 10 * node.SWEEP_MS // max(node.LEAST_SWEEP_MS, timeout // 4) + 10


def test_the_shortest_timeout_is_forgotten_with_its_queue(kit: NodeKit, client: Client, looks: Counter[str]) -> None:
    client.declare("one", x_consumer_timeout=1)
    kit.pass_time(1_000)
    client.call(m.QueueDelete("one"), m.QueueDeleteOk)
    kit.pass_time(2 * node.SWEEP_MS)
    looks.clear()
    kit.pass_time(5 * node.SWEEP_MS)
    assert looks["connections"] <= 6


def test_many_channels_are_looked_at_less_often(
    kit: NodeKit, client: Client, looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "SWEPT_IN_MS", 0.01)
    for number in range(2, 21):
        client.open(number)
    client.declare("one", x_consumer_timeout=1)
    kit.pass_time(10_000)
    assert looks["connections"] <= 8


@pytest.mark.parametrize("timeout", [1, 500, 4_000])
def test_a_delivery_comes_back_soon_after_its_timeout(kit: NodeKit, client: Client, timeout: int) -> None:
    client.declare("one", x_consumer_timeout=timeout)
    client.call(m.BasicConsume("one"), m.BasicConsumeOk)
    client.publish("one", b"late")
    waits = 0
    while not client.take(m.BasicCancel):
        kit.pass_time(10)
        waits += 10
        assert waits < 10_000
    assert timeout <= waits <= timeout + 2 * max(node.LEAST_SWEEP_MS, timeout // 4) + 20
