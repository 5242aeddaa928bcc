"""Alarms: who publishes is told and not read any more; nobody else notices."""

from __future__ import annotations

import pytest

from tests.broker.kit import NodeKit
from warren.protocol.v091 import methods as m

KNOWS = {"connection.blocked": True}


@pytest.mark.parametrize("knows", [True, False])
def test_a_publisher_is_blocked_and_released(kit: NodeKit, knows: bool) -> None:
    publisher, reader = kit.client(capabilities=KNOWS if knows else {}), kit.client(capabilities=KNOWS)
    publisher.declare()
    reader.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    kit.node.raise_alarm("memory")
    kit.node.raise_alarm("disk")
    publisher.receive()
    assert publisher.transport.reading
    publisher.publish("q", b"1")
    assert not publisher.transport.reading
    assert [each.reason for each in publisher.take(m.ConnectionBlocked)] == (["low on disk & memory"] if knows else [])
    assert [body for *_, body in reader.deliveries()] == []
    reader.receive()
    assert [body for *_, body in reader.deliveries()] == [b"1"]  # what was said before is done
    assert reader.transport.reading
    reader.send(1, m.BasicAck(1))
    kit.node.clear_alarm("memory")
    publisher.receive()
    assert not publisher.transport.reading
    kit.node.clear_alarm("disk")
    publisher.receive()
    assert publisher.transport.reading
    assert len(publisher.take(m.ConnectionUnblocked)) == int(knows)
    publisher.publish("q", b"2")
    reader.receive()
    assert [body for *_, body in reader.deliveries()] == [b"2"]
    assert reader.take(m.ConnectionBlocked) == []


def test_an_alarm_that_is_over_before_anybody_publishes(kit: NodeKit) -> None:
    client = kit.client(capabilities=KNOWS)
    kit.node.raise_alarm("disk")
    kit.node.clear_alarm("disk")
    client.publish("nope")
    assert client.events == []
    assert client.transport.reading
