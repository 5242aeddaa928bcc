"""Threshold alerts: told once when a queue is long, and once when it is short again; queues that end by a limit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harebell.broker.queues.changes import change_queue
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.policies import Policy
from harebell.routing.settings import queue_settings
from tests.broker.kit import Client, NodeKit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path / "data", events=True, sync=False)
    yield kit
    kit.stop()


@pytest.fixture
def watcher(kit: NodeKit) -> Client:
    client = kit.client()
    client.declare("alerts")
    client.call(m.QueueBind("alerts", "amq.rabbitmq.event", "queue.alert.#"), m.QueueBindOk)
    return client


def told(watcher: Client) -> list[tuple[object, ...]]:
    """What was told: set or cleared, of what, the value, the limit, and whether it was told before."""
    found: list[tuple[object, ...]] = []
    while (event := watcher.get("alerts")) is not None:
        method, headers = event.decode_method(), event.decode_properties().headers or {}
        assert isinstance(method, m.BasicGetOk)
        assert (headers["vhost"], headers["name"]) == ("/", "q")
        what = method.routing_key.removeprefix("queue.alert.")
        found.append((what, *(headers[name] for name in ("alert", "value", "limit", "repeated"))))
    return found


def fill(client: Client, count: int, **rest: Any) -> None:
    for _ in range(count):
        client.publish("q", b"12345", **rest)


def take(client: Client, count: int) -> None:
    for _ in range(count):
        assert client.get() is not None


KINDS: dict[str, Table] = {
    "plain": {},
    "limited": {"x-max-length": 1000},
    "quorum": {"x-queue-type": "quorum"},
    "grouped": {"x-message-group": "g"},
    "selected": {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", ["ours", "Qpid's"])
def test_once_for_each_crossing(client: Client, watcher: Client, kind: str, names: str) -> None:
    limits = (
        {"x-alert-length": 10, "x-alert-length-clear": 5}
        if names == "ours"
        else {"qpid.alert_count_up": 10, "qpid.alert_count_down": 5}
    )
    client.call(m.QueueDeclare("q", durable=True, arguments={**KINDS[kind], **limits}), m.QueueDeclareOk)
    if kind == "selected":
        client.send(1, m.BasicConsume("q", arguments={"x-selector": "FALSE"}))
        assert client.take(m.BasicConsumeOk)
    fill(client, 8)
    take(client, 6)
    assert told(watcher) == []
    fill(client, 8)
    assert told(watcher) == [("set", "length", 10, 10, False)]
    take(client, 4)
    fill(client, 6)
    assert told(watcher) == []
    take(client, 7)
    assert told(watcher) == [("cleared", "length", 5, 5, False)]
    take(client, 5)
    fill(client, 10)
    assert told(watcher) == [("set", "length", 10, 10, False)]
    client.call(m.QueuePurge("q"), m.QueuePurgeOk)
    assert told(watcher) == [("cleared", "length", 0, 5, False)]


@pytest.mark.parametrize("arguments", [{"x-alert-length-bytes": 20}, {"qpid.alert_size": 20}])
def test_bytes_and_half_of_the_limit(client: Client, watcher: Client, arguments: Table) -> None:
    client.call(m.QueueDeclare("q", arguments=arguments), m.QueueDeclareOk)
    fill(client, 5)
    assert told(watcher) == [("set", "length-bytes", 20, 20, False)]
    take(client, 2)
    assert told(watcher) == []
    take(client, 1)
    assert told(watcher) == [("cleared", "length-bytes", 10, 10, False)]


def test_both_measures(client: Client, watcher: Client) -> None:
    client.declare(x_alert_length=2, x_alert_length_bytes=10)
    fill(client, 2)
    assert told(watcher) == [("set", "length", 2, 2, False), ("set", "length-bytes", 10, 10, False)]


def test_a_consumer_that_takes_all_causes_none(client: Client, watcher: Client) -> None:
    client.declare(x_alert_length=2)
    client.send(1, m.BasicConsume("q", no_ack=True))
    for _ in range(5):
        client.engine.send_content(1, m.BasicPublish("", "q"), b"\0\0", b"x")
    client.pump()
    assert len(client.deliveries()) == 5
    assert told(watcher) == []


def test_what_ends_it(kit: NodeKit, client: Client, watcher: Client) -> None:
    """Consumers, expiry, a limit; what comes back sets it again."""
    client.declare(x_alert_length=4)
    fill(client, 4, expiration="100")
    kit.pass_time(101)
    assert told(watcher) == [("set", "length", 4, 4, False), ("cleared", "length", 0, 2, False)]
    fill(client, 4)
    client.call(m.BasicQos(0, 2), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c"))
    assert told(watcher) == [("set", "length", 4, 4, False), ("cleared", "length", 2, 2, False)]
    client.send(1, m.BasicCancel("c", no_wait=True))
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))
    assert told(watcher) == [("set", "length", 4, 4, False)]


def test_the_repeat_gap(kit: NodeKit, client: Client, watcher: Client) -> None:
    """Beyond it, what happens in a queue that is too long is told again."""
    client.declare(x_alert_length=2, x_alert_repeat_gap=1000)
    fill(client, 3)
    kit.pass_time(900)
    fill(client, 1)
    assert told(watcher) == [("set", "length", 2, 2, False)]
    kit.pass_time(100)
    fill(client, 2)
    assert told(watcher) == [("set", "length", 5, 2, True)]
    kit.pass_time(2000)
    assert told(watcher) == []  # nothing happened in the queue
    take(client, 5)
    assert told(watcher) == [("set", "length", 5, 2, True), ("cleared", "length", 1, 1, False)]


def test_a_policy_and_a_change_of_arguments(kit: NodeKit, client: Client, watcher: Client) -> None:
    policies = kit.node.vhosts["/"].policies
    client.declare()
    fill(client, 3)
    policies.set(Policy("/", "p", "q", {"alert-length": 3}))
    kit.node.batch.end()
    assert told(watcher) == [("set", "length", 3, 3, False)]
    queue = kit.node.vhosts["/"].queues["q"]
    change_queue(queue, {"x-alert-length": 9, "x-alert-length-clear": 2}, lambda table: queue_settings(table, "q"))
    kit.node.batch.end()
    assert told(watcher) == []
    policies.clear("p")
    change_queue(
        queue, {"x-alert-length": None, "x-alert-length-clear": None}, lambda table: queue_settings(table, "q")
    )
    kit.node.batch.end()
    assert [each[0] for each in told(watcher)] == ["cleared"]


def test_the_log_has_it_without_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "harebell.broker.queue")
    kit = NodeKit(tmp_path / "off", sync=False)
    client = kit.client()
    client.declare(x_alert_length=2)
    fill(client, 2)
    take(client, 1)
    kit.stop()
    assert [record.getMessage() for record in caplog.records if record.name == "harebell.broker.queue"] == [
        "queue 'q' in vhost '/' has 2 messages ready, its alert is at 2",
        "queue 'q' in vhost '/' has 1 messages ready, its alert has ended",
    ]


# -- delete-queue: the alert of those who cannot listen ----------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-length": 2, "x-overflow": "delete-queue"},
        {"qpid.max_count": 2, "qpid.policy_type": "self_destruct"},
    ],
)
def test_a_queue_that_is_deleted_when_it_is_full(kit: NodeKit, client: Client, arguments: Table) -> None:
    client.call(m.QueueDeclare("q", arguments=arguments), m.QueueDeclareOk)
    slow = kit.client()
    slow.call(m.BasicQos(0, 1), m.BasicQosOk)
    slow.send(1, m.BasicConsume("q", "slow"))
    slow.take(m.BasicConsumeOk)
    fill(client, 3)
    assert kit.node.vhosts["/"].queues  # one is with the consumer, two are ready
    fill(client, 2)
    kit.node.batch.slices.finish()
    slow.receive()
    assert "q" not in kit.node.vhosts["/"].queues
    assert [each.consumer_tag for each in slow.take(m.BasicCancel)] == ["slow"]


def test_its_messages_go_to_the_orphan_exchange(kit: NodeKit, client: Client) -> None:
    client.call(m.ExchangeDeclare("all", "fanout"), m.ExchangeDeclareOk)
    client.declare("rest")
    client.call(m.QueueBind("rest", "all"), m.QueueBindOk)
    client.declare(x_max_length=1, x_overflow="delete-queue", x_orphan_exchange="all")
    for body in (b"1", b"2"):
        client.publish("q", body)
    kit.node.batch.slices.finish()
    assert [client.get("rest").body for _ in range(2)] == [b"1", b"2"]  # type: ignore[union-attr]
