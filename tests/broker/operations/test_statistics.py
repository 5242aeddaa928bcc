"""What is counted, with RabbitMQ's names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harebell.broker import Broker
from harebell.broker.counts import ChannelCounts, QueueCounts
from harebell.broker.operations.statistics import statistics
from harebell.broker.v091 import cached_targets
from harebell.protocol.v010 import commands as c
from harebell.protocol.v091 import Properties, methods as m
from tests.broker.kit import Client, NodeKit
from tests.broker.v010.kit import Kit


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


def left(kit: NodeKit) -> dict[str, dict[str, int]]:
    """What left queues of each type, deleted ones too; and by AMQP 0-10."""
    statistics(kit.node)
    lasting = kit.node.lasting
    found = {f"{kind} by 0-10": nonzero(each.report()) for kind, each in lasting.amqp010.items()}
    for kind in ("classic", "quorum"):
        sums = QueueCounts()
        sums.add(lasting.gone[kind])
        for each in kit.node.vhosts["/"].queues.values():
            if each.type == kind:
                sums.add(each.counts)
        sums.publish = 0
        found[kind] = nonzero(sums.report())
    return {kind: counts for kind, counts in found.items() if counts}


def test_what_outlasts_channels_and_queues(tmp_path: Path) -> None:
    """Clients of both dialects, which go then, with a queue."""
    both = Kit(tmp_path)
    client, session = both.client(), both.peer().session(b"s")
    client.declare("q")
    client.declare("quorum", x_queue_type="quorum")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for queue_name in ("q", "quorum"):
        for _ in range(5):
            client.publish(queue_name)
        session.publish(queue_name, b"m")
    client.get("q", no_ack=True)
    client.get("q", no_ack=False)
    client.send(1, m.BasicAck(2))
    client.call(m.QueueDeclare("empty", durable=True), m.QueueDeclareOk)
    assert client.get("empty") is None
    client.send(1, m.BasicConsume("quorum", "c"))
    tags = [tag for tag, _, _ in client.deliveries()]
    client.send(1, m.BasicAck(tags[3], multiple=True))
    session.subscribe("q")
    both.settle()
    session.call(c.MessageAccept(tuple((number, number) for number, _ in session.messages)))
    expected = {
        "classic": {"get": 1, "get_no_ack": 1, "get_empty": 1, "deliver": 4, "ack": 5, "deliver_get": 6},
        "quorum": {"deliver": 6, "ack": 4, "deliver_get": 6},
        "classic by 0-10": {"deliver": 4, "ack": 4, "deliver_get": 4},
    }
    assert left(both) == expected
    before = both.node.lasting
    assert (before.gone["classic"].publish, dict(before.confirmable), before.recv_oct) == (0, {}, 0)
    session.peer.lose()
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    client.send(1, m.QueueDelete("quorum"))
    client.send(1, m.BasicAck(tags[5], multiple=True))
    client.connection.lost()
    both.settle()
    expected["quorum"] = {"deliver": 6, "ack": 6, "deliver_get": 6}
    assert left(both) == expected, "those of the deleted queue count too"
    assert {kind: each.publish for kind, each in before.gone.items()} == {"classic": 6, "quorum": 6}
    assert dict(before.confirmable) == {"amqp091": 10, "amqp010": 2}
    published = {protocol: each.publish for protocol, each in before.publications.items()}
    assert published == {"amqp091": 10, "amqp010": 2}
    assert min(before.recv_oct, before.send_oct, before.recv_cnt, before.send_cnt) > 0
    both.sessions.close()
    both.stop()


@pytest.mark.parametrize(
    ("arguments", "strategy"),
    [
        ({}, "disabled"),
        ({"x_dead_letter_exchange": ""}, "at_most_once"),
        (
            {"x_dead_letter_exchange": "", "x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"},
            "at_least_once",
        ),
    ],
)
def test_dead_messages(kit: NodeKit, client: Client, arguments: dict[str, Any], strategy: str) -> None:
    client.declare("graves")
    if arguments:
        arguments = {**arguments, "x_dead_letter_routing_key": "graves"}
    client.declare(x_queue_type="quorum", **arguments)
    for _ in range(3):
        client.publish("q", delivery_mode=2)
    client.publish("q", expiration="0")
    client.get(no_ack=False)
    client.send(1, m.BasicReject(1, requeue=False))
    kit.node.batch.end()
    while kit.node.lasting.dead["quorum", strategy]["confirmed"] < 2 and strategy == "at_least_once":
        kit.run_sync()
    found = {key: dict(reasons) for key, reasons in kit.node.lasting.dead.items() if reasons}
    confirmed = {"confirmed": 2} if strategy == "at_least_once" else {}
    assert found == {("quorum", strategy): {"expired": 1, "rejected": 1, **confirmed}}


def test_a_broker_says_them() -> None:
    async def main() -> dict[str, Any]:
        async with Broker(port=None) as broker:
            return broker.statistics()

    assert set(asyncio.run(main())) == {
        "node", "alarms", "message_stats", "churn", "object_totals", "queue_totals", "vhosts", "connections",
    }  # fmt: skip


@pytest.mark.parametrize("kind", [QueueCounts, ChannelCounts])
def test_every_count_is_added(kind: type[QueueCounts]) -> None:
    names = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    assert len(names) >= 8
    total, other = kind(), kind()
    for number, name in enumerate(names, 1):
        setattr(total, name, 100 * number)
        setattr(other, name, number)
    total.add(other)
    assert [getattr(total, name) for name in names] == [101 * number for number in range(1, len(names) + 1)]
    if kind is ChannelCounts:
        plain = QueueCounts()
        plain.publish = 5
        total.add(plain)
        assert total.publish == 101 * (names.index("publish") + 1) + 5
