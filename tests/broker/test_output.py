"""Clients that do not read: what the broker holds for them is bounded, whatever they ask for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harebell.broker.connections.base import OUTPUT_BYTES
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.content import Content
from tests.broker.kit import Client, NodeKit
from tests.broker.test_net import connected, output_held
from tests.wire import BrokerThread


@pytest.fixture
def slow(kit: NodeKit, client: Client) -> Client:
    """Its socket takes nothing more, and holds more than it may; three messages are in "q"."""
    client.declare()
    for number in range(3):
        client.publish("q", b"%d" % number)
    client.connection.writable = False
    client.transport.unsent = OUTPUT_BYTES + 1
    return client


def test_nothing_more_is_done_for_who_takes_nothing(kit: NodeKit, slow: Client) -> None:
    for _ in range(3):
        slow.engine.send_method(1, m.BasicGet("q", no_ack=True))
    slow.pump()
    assert not slow.transport.reading
    assert slow.connection.state == "flow"
    # Bytes that a TLS layer had decrypted before it was told to pause come all the same.
    slow.send(1, m.BasicGet("q", no_ack=True))
    before = len(slow.events)
    slow.transport.unsent = 0
    slow.connection.resume()
    slow.receive()
    assert slow.transport.reading
    assert len(slow.events) > before
    assert [type(event).__name__ for _, event in slow.events] == ["Content"] * 3 + ["BasicGetEmpty"]


def test_a_batch_of_requests_stops_where_output_is_too_much(kit: NodeKit, client: Client) -> None:
    """As many basic.get as fit into one read may ask for gigabytes."""
    client.declare()
    size = 1 << 20
    for _ in range(20):
        client.publish("q", b"x" * size)

    def write(data: bytes | memoryview) -> None:
        client.transport.unsent += len(data)
        client.connection.writable = False

    client.transport.write = write  # type: ignore[method-assign]
    for _ in range(20):
        client.engine.send_method(1, m.BasicGet("q", no_ack=True))
    client.pump()
    assert OUTPUT_BYTES < client.transport.unsent < OUTPUT_BYTES + 2 * size
    rounds = 0
    while not client.transport.reading:
        client.transport.unsent = 0
        client.connection.resume()
        assert client.transport.unsent < OUTPUT_BYTES + 2 * size
        rounds += 1
    assert rounds > 1
    assert kit.node.vhosts["/"].queues["q"].message_count == 0


@pytest.mark.parametrize("body", [b"x" * 100, b"x" * 65_536], ids=["short", "long"])
def test_only_long_messages_are_written_uncopied(kit: NodeKit, client: Client, body: bytes) -> None:
    client.declare()
    client.call(m.BasicConsume("q", "c", no_ack=True), m.BasicConsumeOk)
    sizes: list[int] = []
    write_all = client.transport.write_all

    def note(pieces: Sequence[bytes | memoryview]) -> None:
        sizes.extend(map(len, pieces))
        write_all(pieces)

    client.transport.write_all = note  # type: ignore[method-assign]
    for _ in range(4):
        client.engine.send_content(1, m.BasicPublish(routing_key="q"), m.Properties(), body)
    client.pump()
    received = [event.body for _, event in client.events if isinstance(event, Content)]
    assert received[-4:] == [body] * 4
    assert len(sizes) == (8 if len(body) > 4096 else 0), sizes


def test_over_a_socket(broker: BrokerThread) -> None:
    """Thousands of requests for large messages, and no answer read until all are sent."""
    body, count = b"x" * 100_000, 600
    with connected(broker) as slow, connected(broker) as other:
        other.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        for _ in range(count):
            other.publish("", "q", body)
        other.barrier()
        slow.raw(encode_method(1, m.BasicGet("q", no_ack=True)) * count)
        for _ in range(20):
            other.barrier()
            assert output_held(broker) < OUTPUT_BYTES + (2 << 20)
        assert all(got.body == body for got in slow.take(m.BasicGetOk, count))
