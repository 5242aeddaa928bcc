"""The firehose: copies of what is published and delivered. What RabbitMQ's says is compared in tests/differential."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harebell.broker.operations.firehose import set_tracing
from harebell.errors import NotFound
from harebell.protocol.v091 import Properties, Table, methods as m
from tests.broker.kit import Client, NodeKit


@pytest.fixture
def watcher(kit: NodeKit) -> Client:
    client = kit.client()
    client.declare("trace")
    client.call(m.QueueBind("trace", "amq.rabbitmq.trace", "#"), m.QueueBindOk)
    return client


def copies(watcher: Client) -> list[tuple[str, Table, bytes]]:
    """(routing key, headers, body) of each copy. They are taken with basic.get, which is not traced for copies."""
    found = []
    while (copy := watcher.get("trace")) is not None:
        method = copy.decode_method()
        assert isinstance(method, m.BasicGetOk)
        found.append((method.routing_key, copy.decode_properties().headers or {}, copy.body))
    return found


def keys(watcher: Client) -> list[str]:
    return [key for key, *_ in copies(watcher)]


def test_switched_on_and_off_at_work(kit: NodeKit, client: Client, watcher: Client) -> None:
    client.declare()
    client.publish("q", b"1")
    client.send(1, m.BasicConsume("q", "c"))
    assert keys(watcher) == []
    set_tracing(kit.node, "/", True)
    client.publish("q", b"2")
    assert keys(watcher) == ["publish.", "deliver.q"]
    set_tracing(kit.node, "/", False)
    client.publish("q", b"3")
    assert keys(watcher) == []
    assert [body for *_, body in client.deliveries()] == [b"1", b"2", b"3"]


def test_a_consumer_with_a_selector(kit: NodeKit, client: Client, watcher: Client) -> None:
    client.declare()
    client.send(1, m.BasicConsume("q", "c", arguments={"x-selector": "n > 1"}))
    set_tracing(kit.node, "/", True)
    for number in range(3):
        client.publish("q", b"%d" % number, headers={"n": number})
    assert [body for *_, body in client.deliveries()] == [b"2"]
    assert keys(watcher) == ["publish.", "publish.", "publish.", "deliver.q"]


def test_a_vhost_that_is_missing(kit: NodeKit) -> None:
    with pytest.raises(NotFound, match="no vhost 'nope'"):
        set_tracing(kit.node, "nope", True)


def test_what_a_copy_says(kit: NodeKit, client: Client, watcher: Client) -> None:
    client.declare()
    set_tracing(kit.node, "/", True)
    client.publish("q", b"body", priority=3, timestamp=datetime.fromtimestamp(5, UTC), headers={"h": 1, "BCC": ["q"]})
    client.get()
    common = {
        "exchange_name": "", "routing_keys": ["q", "q"], "node": kit.node.name, "vhost": "/", "channel": 1,
        "user": "guest", "connection": "127.0.0.1:1 -> 127.0.0.1:5672",
        "properties": {"priority": 3, "timestamp": 5, "headers": {"h": 1}},
    }  # fmt: skip
    assert copies(watcher) == [
        ("publish.", {**common, "routed_queues": ["q"]}, b"body"),
        ("deliver.q", {**common, "redelivered": 0}, b"body"),
    ]


def test_a_queue_that_is_plain_stays_so(kit: NodeKit, client: Client, watcher: Client) -> None:
    client.declare()
    set_tracing(kit.node, "/", True)
    for body in (b"1", b"2"):
        client.publish("q", body)
    client.send(1, m.BasicGet("q"))
    client.send(1, m.BasicNack(1, requeue=True))
    client.send(1, m.BasicConsume("q", "c", no_ack=True))
    assert [body for *_, body in client.deliveries()] == [b"1", b"2"]
    assert [headers.get("redelivered") for _, headers, _ in copies(watcher)] == [None, None, 0, 1, 0]


@pytest.mark.parametrize("arguments", [{"x_max_priority": 3}, {"x_queue_type": "stream"}])
def test_queues_that_are_not_plain(kit: NodeKit, client: Client, watcher: Client, arguments: dict[str, Any]) -> None:
    client.declare(**arguments)
    client.send(1, m.BasicQos(0, 10, False))
    client.send(1, m.BasicConsume("q", "c"))
    set_tracing(kit.node, "/", True)
    client.publish("q", b"1")
    while not (delivered := client.deliveries()):
        kit.run_sync()
        client.receive()
    assert [body for *_, body in delivered] == [b"1"]
    assert keys(watcher) == ["publish.", "deliver.q"]


def test_unroutable_messages_and_direct_replies(kit: NodeKit, client: Client, watcher: Client) -> None:
    set_tracing(kit.node, "/", True)
    client.engine.send_content(1, m.BasicPublish("amq.topic", "nope", mandatory=True), Properties(), b"")
    client.pump()
    assert client.take(m.BasicReturn)
    client.send(1, m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True))
    client.publish("amq.ping", b"1", "amq.system", reply_to="amq.rabbitmq.reply-to")
    assert [body for *_, body in client.deliveries()] == [b"1"]
    assert [(key, headers["routed_queues"]) for key, headers, _ in copies(watcher)] == [
        ("publish.amq.topic", []), ("publish.amq.system", []),
    ]  # fmt: skip


def test_consumers_of_copies_make_none(kit: NodeKit, client: Client, watcher: Client) -> None:
    watcher.send(1, m.BasicConsume("trace", "t", no_ack=True))
    set_tracing(kit.node, "/", True)
    client.publish("nope")
    client.publish("nope")
    watcher.receive()
    assert len(watcher.deliveries()) == 2


def test_a_name_that_leaves_no_room_for_a_copy(kit: NodeKit, client: Client, watcher: Client) -> None:
    name = "x" * 255
    client.declare(name)
    set_tracing(kit.node, "/", True)
    client.publish(name, b"1")
    assert client.get(name).body == b"1"  # type: ignore[union-attr]
    assert keys(watcher) == ["publish."]
