"""What is counted, with RabbitMQ's names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harebell.broker import Broker
from harebell.broker.operations.statistics import statistics
from harebell.broker.v091 import cached_targets
from harebell.protocol.v091 import Properties, methods as m
from tests.broker.kit import Client, NodeKit


def vhost(kit: NodeKit) -> dict[str, Any]:
    found: dict[str, Any] = statistics(kit.node)["vhosts"]["/"]
    return found


def queue(kit: NodeKit, name: str = "q") -> dict[str, int]:
    """What is not zero."""
    return nonzero(vhost(kit)["queues"][name]["message_stats"])


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def channel(kit: NodeKit, client: Client) -> dict[str, Any]:
    name = client.connection.name
    found: dict[str, Any] = next(
        each["channels"][0]
        for each, other in zip(statistics(kit.node)["connections"], kit.node.connections, strict=True)
        if other is client.connection and each["name"] == name
    )
    return found


def test_publications(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.declare("r")
    for name in ("q", "r"):
        client.call(m.QueueBind(name, "amq.fanout", ""), m.QueueBindOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for _ in range(3):
        client.publish("", b"1", "amq.fanout")
    client.publish("q")
    client.publish("nope")
    client.publish("nope", headers={"CC": ["q", "r"]})
    client.engine.send_content(1, m.BasicPublish("", "nada", mandatory=True), Properties(), b"")
    client.pump()
    exchanges = vhost(kit)["exchanges"]
    assert exchanges["amq.fanout"]["type"] == "fanout"
    assert exchanges["amq.fanout"]["message_stats"] == {"publish_in": 3, "publish_out": 6}
    assert exchanges[""]["message_stats"] == {"publish_in": 4, "publish_out": 3}
    assert queue(kit) == {"publish": 5}
    assert queue(kit, "r") == {"publish": 4}
    counts = {"publish": 7, "confirm": 7, "drop_unroutable": 1, "return_unroutable": 1}
    assert nonzero(channel(kit, client)["message_stats"]) == counts
    client.declare("new")  # the topology changed: publishers ask anew, and nothing is lost or counted twice
    client.publish("q")
    assert queue(kit)["publish"] == 6
    client.send(1, m.ChannelClose())
    assert nonzero(vhost(kit)["message_stats"]) == {**counts, "publish": 8, "confirm": 8}


def test_targets_that_are_forgotten_are_counted(kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_targets, "MAX_TARGETS", 2)
    client.declare()
    client.open(2)
    for key in ("q", "a", "b", "q", "c", "q"):
        client.publish(key)
        client.publish(key, channel=2)
    assert queue(kit) == {"publish": 6}
    assert vhost(kit)["message_stats"]["publish"] == 12


def test_a_headers_exchange_counts_each_message(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.call(m.QueueBind("q", "amq.headers", "", arguments={"x-match": "all", "a": 1}), m.QueueBindOk)
    client.publish("", exchange="amq.headers", headers={"a": 1})
    client.publish("", exchange="amq.headers", headers={"a": 2})
    assert vhost(kit)["exchanges"]["amq.headers"]["message_stats"] == {"publish_in": 2, "publish_out": 1}
    assert queue(kit) == {"publish": 1}


def test_a_transaction_counts_when_it_is_committed(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.call(m.TxSelect(), m.TxSelectOk)
    client.publish("q")
    assert channel(kit, client)["messages_uncommitted"] == 1
    client.call(m.TxRollback(), m.TxRollbackOk)
    assert queue(kit) == {}
    client.publish("q")
    client.declare("new")  # the target is forgotten meanwhile
    client.call(m.TxCommit(), m.TxCommitOk)
    assert queue(kit) == {"publish": 1}
    assert nonzero(channel(kit, client)["message_stats"]) == {"publish": 1}


@pytest.mark.parametrize("arguments", [{}, {"x_max_length": 100}])
def test_consumers(kit: NodeKit, client: Client, arguments: dict[str, Any]) -> None:
    client.declare(**arguments)
    for _ in range(5):
        client.publish("q")
    client.send(1, m.BasicConsume("q", "c"))
    assert queue(kit) == {"publish": 5, "deliver": 5, "deliver_get": 5}
    assert vhost(kit)["queues"]["q"]["messages_unacknowledged"] == 5
    client.send(1, m.BasicAck(2, multiple=True))
    client.send(1, m.BasicNack(3, requeue=True))
    assert queue(kit) == {"publish": 5, "deliver": 6, "deliver_get": 6, "redeliver": 1, "ack": 2}
    client.send(1, m.BasicCancel("c"))
    client.send(1, m.BasicAck(0, multiple=True))
    assert queue(kit)["ack"] == 5
    client.send(1, m.BasicConsume("q", "d", no_ack=True))
    client.publish("q")
    assert queue(kit) == {
        "publish": 6, "deliver": 6, "deliver_no_ack": 1, "deliver_get": 7, "redeliver": 1, "ack": 5,
    }  # fmt: skip
    assert nonzero(channel(kit, client)["message_stats"]) == queue(kit)


def test_gets(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.publish("q")
    client.publish("q")
    client.get(no_ack=True)
    client.get(no_ack=False)
    client.get()
    client.send(1, m.BasicReject(2, requeue=True))
    client.get(no_ack=False)
    client.send(1, m.BasicAck(3))
    expected = {
        "publish": 2, "get": 2, "get_no_ack": 1, "deliver_get": 3, "get_empty": 1, "redeliver": 1, "ack": 1,
    }  # fmt: skip
    assert queue(kit) == expected
    assert nonzero(channel(kit, client)["message_stats"]) == expected


def test_what_a_queue_drops(kit: NodeKit, client: Client) -> None:
    client.declare(x_max_length=1, x_message_deduplication=True)
    client.publish("q", headers={"x-deduplication-header": 1})
    client.publish("q", headers={"x-deduplication-header": 1})
    client.publish("q", expiration="5")
    kit.pass_time(5)
    assert vhost(kit)["queues"]["q"]["dropped"] == {"maxlen": 1, "discarded": 1, "expired": 1}


def test_a_stream(kit: NodeKit, client: Client) -> None:
    client.declare("s", x_queue_type="stream")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("s")
    assert channel(kit, client)["messages_unconfirmed"] == 1
    kit.run_sync()
    client.send(1, m.BasicQos(0, 10, False))
    client.send(1, m.BasicConsume("s", "c", arguments={"x-stream-offset": "first"}))
    assert queue(kit, "s") == {"publish": 1, "deliver": 1, "deliver_get": 1}
    assert channel(kit, client)["messages_unconfirmed"] == 0


def test_the_node(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.declare()
    client.publish("q")
    client.open(2)
    client.send(2, m.ChannelClose())
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    report = statistics(kit.node)
    assert report["churn"] == {
        "connection_created": 1, "connection_closed": 0, "channel_created": 2, "channel_closed": 1,
        "queue_declared": 2, "queue_created": 1, "queue_deleted": 1,
    }  # fmt: skip
    assert report["message_stats"]["publish"] == 1
    assert report["object_totals"] == {"connections": 1, "channels": 1, "consumers": 0, "exchanges": 8, "queues": 0}
    assert report["queue_totals"] == {"messages": 0, "messages_ready": 0, "messages_unacknowledged": 0}
    only = report["connections"][0]
    assert only["state"] == "running"
    assert min(only[name] for name in ("recv_oct", "recv_cnt", "send_oct", "send_cnt")) > 0
    client.connection.lost()
    client.connection.lost()
    assert statistics(kit.node)["churn"]["connection_closed"] == 1


def test_a_broker_says_them() -> None:
    async def main() -> dict[str, Any]:
        async with Broker(port=None) as broker:
            return broker.statistics()

    assert set(asyncio.run(main())) == {
        "node", "alarms", "message_stats", "churn", "object_totals", "queue_totals", "vhosts", "connections",
    }  # fmt: skip
