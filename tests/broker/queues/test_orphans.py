"""The messages of a queue that is deleted go to its x-orphan-exchange: all of them, in order, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell.protocol.v091 import Table, methods as m
from tests.broker.disk_node import DiskNode
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

PERSISTENT: dict[str, Any] = {"delivery_mode": 2}


def bodies(client: Client, queue: str = "heir") -> list[str]:
    found = []
    while (content := client.get(queue)) is not None:
        found.append(content.body.decode())
    return found


def declare(client: Client, *, exchange: str = "amq.fanout", auto_delete: bool = False, **arguments: Any) -> None:
    client.declare("heir")
    client.call(m.QueueBind("heir", exchange, "q"), m.QueueBindOk)
    table: Table = {"x-orphan-exchange": exchange} | arguments
    client.call(m.QueueDeclare("q", durable=True, auto_delete=auto_delete, arguments=table), m.QueueDeclareOk)


def fill(client: Client, count: int = 3, **properties: Any) -> list[str]:
    for number in range(count):
        client.publish("q", str(number).encode(), **(PERSISTENT | properties))
    return [str(number) for number in range(count)]


def delete(client: Client, kit: NodeKit, *, if_unused: bool = False) -> None:
    """Delete the queue, which is answered when its messages are on disk elsewhere."""
    client.send(1, m.QueueDelete("q", if_unused=if_unused))
    while not client.take(m.QueueDeleteOk):
        kit.run_sync()
        kit.run_syncs()
        client.receive()


@pytest.mark.parametrize("if_unused", [False, True])
@pytest.mark.parametrize("exchange", ["amq.fanout", "amq.direct", "amq.topic"])
def test_deletion(client: Client, kit: NodeKit, exchange: str, if_unused: bool) -> None:
    declare(client, exchange=exchange)
    sent = fill(client)
    delete(client, kit, if_unused=if_unused)
    content = client.get("heir")
    assert content is not None
    assert not content.decode_properties().headers  # it did not die
    assert [content.body.decode(), *bodies(client)] == sent


def test_an_alternate_exchange_is_for_both(client: Client) -> None:
    client.declare("heir")
    client.call(m.QueueBind("heir", "amq.fanout"), m.QueueBindOk)
    client.call(m.QueueDeclare("q", arguments={"alternate-exchange": "amq.fanout"}), m.QueueDeclareOk)
    sent = fill(client)
    client.send(1, m.BasicGet("q"))
    client.send(1, m.BasicReject(1, requeue=False))
    client.send(1, m.QueueDelete("q"))
    assert bodies(client) == sent


def test_a_queue_bound_to_its_own_exchange_gets_nothing(client: Client, kit: NodeKit) -> None:
    declare(client)
    client.call(m.QueueBind("q", "amq.fanout"), m.QueueBindOk)
    sent = fill(client)
    delete(client, kit)
    assert bodies(client) == sent


def test_without_the_exchange_they_are_dropped(client: Client) -> None:
    client.call(m.QueueDeclare("q", arguments={"x-orphan-exchange": "nowhere"}), m.QueueDeclareOk)
    fill(client)
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)


def test_what_a_consumer_holds_follows_when_it_comes_back(client: Client, kit: NodeKit) -> None:
    declare(client)
    fill(client)
    holder = kit.client()
    holder.send(1, m.BasicGet("q"))
    delete(client, kit)
    assert bodies(client) == ["1", "2"]
    holder.send(1, m.BasicNack(1, requeue=True))
    assert bodies(client) == ["0"]


def test_the_last_consumer_of_an_auto_delete_queue_leaves(client: Client, kit: NodeKit) -> None:
    declare(client, auto_delete=True)
    sent = fill(client)
    consumer = kit.client()
    consumer.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    consumer.send(1, m.BasicConsume("q", "t"))
    assert len(consumer.deliveries()) == 1
    consumer.send(0, m.ConnectionClose(200, ""))
    while "q" in kit.node.vhosts["/"].queues:
        kit.run_sync()
        kit.run_syncs()
    assert bodies(client) == sent  # what it held came back to its place first


def test_an_expiration_is_kept(client: Client, kit: NodeKit) -> None:
    declare(client)
    fill(client, expiration="1000")
    delete(client, kit)
    assert client.count("heir") == 3
    kit.pass_time(1001)
    assert client.count("heir") == 0


def test_a_broker_that_stops_ends_the_deletion(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    declare(client)
    sent = fill(client)
    client.send(1, m.QueueDelete("q"))
    kit.stop()
    again = NodeKit(tmp_path)
    assert list(again.node.vhosts["/"].queues) == ["heir"]
    assert bodies(again.client()) == sent
    again.stop()


@settings(max_examples=scaled(30))
@given(count=st.integers(0, 40), syncs=st.integers(0, 3), power=st.none() | st.integers(0, 1 << 16))
def test_a_kill_during_the_deletion_loses_nothing(count: int, syncs: int, power: int | None) -> None:
    node = DiskNode()
    declare(node.client)
    sent = fill(node.client, count)
    node.sync()
    node.client.send(1, m.QueueDelete("q"))
    for _ in range(syncs):
        node.commit.run()
    node.client.receive()
    answered = bool(node.client.take(m.QueueDeleteOk))
    assert answered is (syncs > 0 or not count)
    node.restart(power)
    there = node.node.vhosts["/"].queues
    assert not (answered and "q" in there)
    assert {body for each in node.contents(there).values() for body in each} == {each.encode() for each in sent}
    node.close()


def test_what_waits_for_a_retry_goes_too(client: Client, kit: NodeKit) -> None:
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000,
    }  # fmt: skip
    declare(client, **arguments)
    sent = fill(client)
    client.send(1, m.BasicGet("q"))
    client.events.clear()
    client.send(1, m.BasicNack(1, requeue=True))
    assert client.count() == len(sent) - 1
    delete(client, kit)
    assert bodies(client) == sent
