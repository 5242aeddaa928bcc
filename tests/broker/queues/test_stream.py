"""Streams drop what is too old or too much, and readers go on with what is left; each has an id for its life."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from harebell.broker.queues.stream import QUEUE_ID, RETENTION_MS, StreamQueue
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


# -- the id


def describe(client: Client, queue: str = "q") -> dict[str, object]:
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.publish("amq.queue", json.dumps({"queue": queue}).encode(), "amq.system", reply_to="amq.rabbitmq.reply-to")
    (body,) = [body for *_, body in client.deliveries()]
    client.call(m.BasicCancel("r"), m.BasicCancelOk)
    found: dict[str, object] = json.loads(body)
    return found


def test_a_stream_keeps_its_id_and_another_one_has_another(tmp_path: Path) -> None:
    ids = []
    for restart in range(2):
        kit = NodeKit(tmp_path / "data", sync=False)
        client = kit.client()
        declare(client)
        fill(client, 5)
        told = describe(client)
        assert (told["type"], told["first_offset"], told["next_offset"]) == ("stream", 0, 5 * (restart + 1))
        ids.append(told["id"])
        kit.stop()
    assert ids[0] == ids[1]
    kit = NodeKit(tmp_path / "data", sync=False)
    client = kit.client()
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    declare(client)
    assert describe(client)["id"] != ids[0]
    ids.append(describe(client)["id"])
    kit.stop()
    shutil.rmtree(tmp_path / "data" / "streams" / str(ids[-1]))  # all of it is lost: what comes is another stream
    kit = NodeKit(tmp_path / "data", sync=False)
    ids.append(describe(kit.client())["id"])
    kit.stop()
    kit = NodeKit(tmp_path / "data", sync=False)
    assert describe(kit.client())["id"] == ids[-1]
    assert len(set(ids)) == 3
    kit.stop()


@pytest.mark.parametrize("wanted", ["its own", "0123456789abcdef", 5, None, b"x"])
def test_a_consumer_names_the_stream_that_it_is_for(kit: NodeKit, wanted: object) -> None:
    client = kit.client()
    declare(client)
    fill(client, 3)
    value = describe(client)["id"] if wanted == "its own" else wanted
    client.call(m.BasicQos(prefetch_count=200), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c", arguments={"x-stream-offset": "first", QUEUE_ID: value}))
    if wanted == "its own":
        assert len(client.deliveries()) == 3
    else:
        (close,) = client.take(m.ChannelClose)
        assert close.reply_code == 406
        assert "invalid arg 'x-queue-id' for queue 'q' in vhost '/'" in close.reply_text
        assert "it was deleted and declared again" in close.reply_text
        assert not stream(kit).consumers
    kit.stop()


@pytest.mark.parametrize(
    ("age", "first"),
    [("0s", 30), ("59m", 20), ("1h", 10), ("23h", 10), ("1D", 0), ("7D", 0), ("1d", None), ("h", None)],
)
def test_a_consumer_starts_at_the_messages_that_are_no_older(
    kit: NodeKit, wall: WallClock, age: str, first: int | None
) -> None:
    client = kit.client()
    declare(client)
    for hours in (23, 1, 0):  # to the next ten
        fill(client, 10)
        wall.now += hours * 3_600_000
    wall.now += 1 if age == "0s" else 0
    client.call(m.BasicQos(prefetch_count=200), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c", arguments={"x-stream-offset": age}))
    if first is None:
        (close,) = client.take(m.ChannelClose)
        assert "invalid_stream_offset_arg" in close.reply_text
    else:
        assert len(client.deliveries()) == 30 - first
    kit.stop()


def test_other_queues_have_no_id(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("q")
    assert "id" not in describe(client)
    client.send(1, m.BasicConsume("q", "c", arguments={QUEUE_ID: "x"}))
    assert [close.reply_code for close in client.take(m.ChannelClose)] == [406]
    kit.stop()
