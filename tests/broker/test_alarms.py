"""Alarms: publications wait, their publisher is told, and nobody else notices."""

from __future__ import annotations

import pytest

from harebell.broker.connections.base import WAITING_BYTES
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.fields import Table
from tests.broker.kit import Client, NodeKit

KNOWS: Table = {"connection.blocked": True, "consumer_cancel_notify": True}


def bodies(client: Client) -> list[bytes]:
    client.receive()
    return [body for *_, body in client.deliveries()]


@pytest.mark.parametrize("knows", [True, False])
def test_a_publisher_is_blocked_and_released(kit: NodeKit, knows: bool) -> None:
    publisher, reader = kit.client(capabilities=KNOWS if knows else {}), kit.client(capabilities=KNOWS)
    publisher.declare()
    publisher.publish("q", b"0")
    kit.node.raise_alarm("memory")
    kit.node.raise_alarm("disk")
    reader.send(1, m.BasicConsume("q", "c"))
    publisher.receive()
    assert publisher.events == []
    publisher.publish("q", b"1")
    assert [each.reason for each in publisher.take(m.ConnectionBlocked)] == (["low on disk & memory"] if knows else [])
    assert publisher.connection.state == "blocked"
    assert bodies(reader) == [b"0"]  # what was there is delivered
    reader.send(1, m.BasicAck(1))
    kit.node.clear_alarm("memory")
    assert bodies(reader) == []
    kit.node.clear_alarm("disk")
    publisher.receive()
    assert len(publisher.take(m.ConnectionUnblocked)) == int(knows)
    assert publisher.connection.state == "running"
    publisher.publish("q", b"2")
    assert bodies(reader) == [b"1", b"2"]
    assert reader.take(m.ConnectionBlocked) == []


def test_an_alarm_that_is_over_before_anybody_publishes(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    kit.node.raise_alarm("disk")
    kit.node.clear_alarm("disk")
    client.publish("nope")
    assert client.events == []
    assert client.transport.reading


def test_who_publishes_on_one_channel_acknowledges_on_another(kit: NodeKit) -> None:
    """RabbitMQ reads no acknowledgement of such a connection until the alarm is over."""
    client = kit.client(capabilities=KNOWS)
    client.declare()
    client.publish("q", b"1")
    client.publish("q", b"2")
    client.open(2)
    client.call(m.BasicQos(0, 1), m.BasicQosOk, 2)
    client.send(2, m.BasicConsume("q", "c"))
    kit.node.raise_alarm("memory")
    client.publish("q", b"3")
    assert bodies(client) == [b"1"]
    client.send(2, m.BasicAck(1))
    assert bodies(client) == [b"2"]
    client.send(2, m.BasicAck(2))
    assert bodies(client) == []
    kit.node.clear_alarm("memory")
    assert bodies(client) == [b"3"]


def test_the_order_of_a_channel_is_kept(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    client.declare()
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    kit.node.raise_alarm("memory")
    client.publish("q", b"1")
    client.send(1, m.QueueDeclare("q", passive=True))
    client.publish("q", b"2")
    client.send(1, m.ChannelClose(200, "", 0, 0))
    assert [type(event) for _, event in client.events] == [m.ConnectionBlocked]
    client.events.clear()
    kit.node.clear_alarm("memory")
    client.receive()
    assert [type(event) for _, event in client.events] == [m.ConnectionUnblocked, m.ChannelCloseOk]
    other = kit.client()
    assert other.count() == 2


def test_a_client_that_closes_has_published_first(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    client.declare()
    kit.node.raise_alarm("memory")
    client.publish("q", b"1")
    client.send(0, m.ConnectionClose(200, "", 0, 0))
    assert client.transport.closed is None
    kit.node.clear_alarm("memory")
    client.receive()
    assert client.take(m.ConnectionCloseOk)
    assert client.transport.closed is not None
    assert kit.client().count() == 1


def test_a_transaction_waits(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    client.declare()
    client.call(m.TxSelect(), m.TxSelectOk)
    kit.node.raise_alarm("memory")
    client.publish("q", b"1")
    client.send(1, m.TxCommit())
    assert not client.take(m.TxCommitOk)
    kit.node.clear_alarm("memory")
    client.receive()
    assert client.take(m.TxCommitOk)
    assert client.count() == 1


def test_who_publishes_on_is_not_read_any_more(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    client.declare()
    kit.node.raise_alarm("memory")
    client.publish("q", b"x" * (WAITING_BYTES // 2))
    assert client.transport.reading
    client.publish("q", b"x" * (WAITING_BYTES // 2))
    assert not client.transport.reading
    kit.node.clear_alarm("memory")
    assert client.transport.reading
    assert client.count() == 2


def test_a_client_that_goes_takes_what_waits_with_it(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    client.declare()
    kit.node.raise_alarm("memory")
    client.publish("q", b"1")
    client.connection.lost()
    kit.node.clear_alarm("memory")
    assert kit.client().count() == 0


def test_a_channel_that_the_broker_closed_meanwhile(kit: NodeKit) -> None:
    client, other = kit.client(capabilities=KNOWS), kit.client()
    client.declare()
    kit.node.raise_alarm("memory")
    client.publish("missing", b"1", exchange="none")  # its 404 comes when the alarm is over
    client.publish("q", b"2")
    kit.node.clear_alarm("memory")
    client.receive()
    assert [each.reply_code for each in client.take(m.ChannelClose)] == [404]
    assert other.count() == 0
