"""Credit flow: who publishes faster than the disk writes waits for it, and nobody else does.

No sync is done in these tests unless they say so: what the sync thread reports waits in the kit.
"""

from __future__ import annotations

import pytest

from harebell.broker.connections.base import WAITING_BYTES
from harebell.broker.connections.credit_flow import LIMIT, CreditFlow
from harebell.errors import ConnectionForced
from harebell.protocol.v091 import methods as m
from tests.broker.kit import Client, NodeKit

BODY = b"x" * (LIMIT // 4)


def overdraw(client: Client, queue: str = "s") -> int:
    """Publish until the connection is held; how many."""
    for count in range(1, 10):
        client.publish(queue, BODY)
        if not client.transport.reading:
            return count
    raise AssertionError("never held")


@pytest.fixture
def publisher(kit: NodeKit) -> Client:
    client = kit.client(capabilities={"connection.blocked": True, "consumer_cancel_notify": True})
    client.declare("s", x_queue_type="stream")
    client.declare("q")
    return client


def test_held_and_released(kit: NodeKit, publisher: Client) -> None:
    assert overdraw(publisher) == 4
    assert publisher.connection.state == "flow"
    assert publisher.connection.paused
    assert publisher.events == []  # connection.blocked is for alarms
    while not publisher.transport.reading:
        kit.run_sync()
    assert (publisher.connection.state, publisher.connection.paused) == ("running", False)
    publisher.publish("s", BODY)
    assert publisher.transport.reading


def test_others_are_not_starved(kit: NodeKit, publisher: Client) -> None:
    other, consumer = kit.client(), kit.client()
    consumer.send(1, m.BasicConsume("q", "c", no_ack=True))
    overdraw(publisher)
    other.publish("q", b"1")
    other.publish("s", b"2")
    consumer.receive()
    assert [body for *_, body in consumer.deliveries()] == [b"1"]
    assert other.transport.reading
    assert consumer.transport.reading


def test_queues_in_memory_hold_nobody(publisher: Client) -> None:
    for _ in range(10):
        publisher.publish("q", BODY)
    assert publisher.transport.reading


def test_without_sync_nobody_is_held(tmp_path_factory: pytest.TempPathFactory) -> None:
    kit = NodeKit(tmp_path_factory.mktemp("data"), sync=False)
    client = kit.client()
    client.declare("s", x_queue_type="stream")
    for _ in range(10):
        client.publish("s", BODY)
    assert client.transport.reading
    kit.stop()


def test_a_queue_that_dies_releases(kit: NodeKit, publisher: Client) -> None:
    other = kit.client()
    publisher.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    overdraw(publisher)
    other.call(m.QueueDelete("s"), m.QueueDeleteOk)
    while not publisher.transport.reading:
        kit.run_sync()
    publisher.receive()
    acks = publisher.take(m.BasicAck)
    while not acks or acks[-1].delivery_tag < 4:  # a queue that is gone counts as one that has the message
        kit.run_sync()
        publisher.receive()
        acks += publisher.take(m.BasicAck)


def test_who_consumes_too_cannot_hold_himself(kit: NodeKit, publisher: Client) -> None:
    """Its acknowledgements wait behind what it published, and nothing waits for them."""
    publisher.send(1, m.BasicQos(0, 1, False))
    publisher.send(1, m.BasicConsume("q", "c"))
    publisher.publish("q", b"1")
    publisher.publish("q", b"2")
    overdraw(publisher)
    while not publisher.transport.reading:
        kit.run_sync()
    publisher.events.clear()
    publisher.send(1, m.BasicAck(1))
    assert [body for *_, body in publisher.deliveries()] == [b"2"]


def test_an_alarm_and_the_disk_together(kit: NodeKit, publisher: Client) -> None:
    overdraw(publisher)
    kit.node.raise_alarm("disk")
    publisher.publish("q", b"x" * WAITING_BYTES)  # it was in the socket already
    assert publisher.connection.state == "blocked"
    while publisher.connection.held:
        kit.run_sync()
    assert not publisher.transport.reading
    kit.node.clear_alarm("disk")
    assert publisher.transport.reading
    publisher.receive()
    assert publisher.count("q") == 1


def test_a_connection_that_is_closed_is_read_to_its_end(kit: NodeKit, publisher: Client) -> None:
    overdraw(publisher)
    publisher.connection.close(ConnectionForced("the end"))
    kit.node.batch.end()
    publisher.receive()
    assert publisher.take(m.ConnectionClose)
    assert publisher.transport.reading


def test_a_connection_that_is_lost_is_forgotten(kit: NodeKit, publisher: Client) -> None:
    overdraw(publisher)
    publisher.connection.lost()
    assert not kit.node.batch.held
    kit.run_sync()


def test_the_account() -> None:
    flow = CreditFlow()
    assert not flow.charge(1, LIMIT, 0)
    assert flow.charge(2, 1, 0)
    assert not flow.grant(0)
    assert flow.grant(1)
    assert flow.owed == 1
    assert not flow.charge(3, LIMIT, 2)  # the batch of sync 2 is done meanwhile
    assert flow.owed == LIMIT
