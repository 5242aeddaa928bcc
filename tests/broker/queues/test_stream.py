"""Streams drop what is too old or too much, by arguments and by policies; readers go on with what is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harebell.broker.queues.stream import RETENTION_MS, StreamQueue
from harebell.protocol.v091 import methods as m
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit


class WallClock:
    """Milliseconds since 1970, for the records and for their end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_900_000_000_000
        monkeypatch.setattr("harebell.broker.queues.stream.wall_clock", lambda: self.now)
        monkeypatch.setattr("time.time_ns", lambda: self.now * 1_000_000)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture
def kit(tmp_path: Path, wall: WallClock) -> NodeKit:
    return NodeKit(tmp_path / "data", sync=False)


def declare(client: Client, **arguments: object) -> None:
    table = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000}
    table |= {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    client.call(m.QueueDeclare("q", durable=True, arguments=table), m.QueueDeclareOk)


def fill(client: Client, count: int) -> None:
    for number in range(count):
        client.publish("q", b"%d" % number + b"x" * 100)


def stream(kit: NodeKit) -> StreamQueue:
    (queue,) = kit.node.vhosts["/"].queues.values()
    assert isinstance(queue, StreamQueue)
    return queue


def test_by_size(kit: NodeKit) -> None:
    client = kit.client()
    declare(client, max_length_bytes=3000)
    fill(client, 100)
    log = stream(kit).log
    assert sum(file.stat().st_size for file in log.path.glob("*.log")) < 4200
    assert log.first > 60
    assert client.count() == 100 - log.first
    client.call(m.BasicQos(prefetch_count=200), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c", arguments={"x-stream-offset": "first"}))
    assert [int(body.split(b"x")[0]) for _, _, body in client.deliveries()] == list(range(log.first, 100))
    kit.stop()


def test_by_age_while_nothing_comes(kit: NodeKit, wall: WallClock) -> None:
    client = kit.client()
    declare(client, max_age="1m")
    fill(client, 50)
    wall.now += 60_000
    kit.pass_time(RETENTION_MS)
    assert client.count() == 50
    wall.now += 1
    kit.pass_time(RETENTION_MS)
    assert 0 < client.count() < 15
    kit.stop()


def test_a_policy_comes_and_goes(kit: NodeKit) -> None:
    client = kit.client()
    declare(client)
    fill(client, 50)
    policies = kit.node.vhosts["/"].policies
    policies.set(Policy("/", "p", ".*", {"max-length-bytes": 2000}))
    assert client.count() < 30
    policies.clear("p")
    left = client.count()
    fill(client, 50)
    assert client.count() == left + 50
    kit.stop()


def test_after_a_restart(kit: NodeKit, wall: WallClock, tmp_path: Path) -> None:
    client = kit.client()
    declare(client, max_age="1h")
    fill(client, 50)
    kit.stop()
    wall.now += 3_600_001
    kit = NodeKit(tmp_path / "data", sync=False)
    assert 0 < kit.client().count() < 15
    kit.stop()


def test_a_deleted_stream_looks_no_more(kit: NodeKit) -> None:
    client = kit.client()
    declare(client, max_age="1h")
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    kit.pass_time(3 * RETENTION_MS)
    assert kit.node.batch.failed is None
    kit.stop()


def test_a_disk_that_refuses_ends_the_broker(kit: NodeKit, wall: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    client = kit.client()
    declare(client, max_age="1m")
    fill(client, 50)

    def refuse(*arguments: object, **keywords: object) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "unlink", refuse)
    wall.now += 60_001
    kit.pass_time(RETENTION_MS)
    assert kit.node.batch.failed is not None
    kit.stop()
