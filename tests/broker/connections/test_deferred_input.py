"""What waits, and how large it is: the socket is not read once that is too much."""

from __future__ import annotations

import pytest

from harebell.broker.connections.deferred_input import METHOD_BYTES
from harebell.protocol.v091 import ConnectionState, Properties, encode_content, methods as m
from harebell.protocol.v091.codec import encode_method
from tests.broker.kit import Client, NodeKit

ACKS = b"".join(encode_method(1, m.BasicAck(tag)) for tag in range(1, 101))
PUBLISH = encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(), b"x" * 100, 0)


def blocked(kit: NodeKit) -> Client:
    """A client whose publications wait, with one of them."""
    client = kit.client()
    client.declare()
    kit.node.alarms.add("memory")
    client.connection.receive_data(PUBLISH)
    return client


@pytest.mark.parametrize("data", [ACKS, 10 * PUBLISH], ids=["acks", "publications"])
def test_what_comes_together_counts_as_what_comes_one_by_one(kit: NodeKit, data: bytes) -> None:
    together, each = blocked(kit), blocked(kit)
    each.connection.engine.grouping = False
    for client in (together, each):
        assert client.connection.engine.state is ConnectionState.OPEN
        client.connection.receive_data(data)
    assert together.connection.waiting.size == each.connection.waiting.size
    assert together.connection.waiting.size > len(PUBLISH)
    if data is ACKS:
        assert together.connection.waiting.size >= 100 * METHOD_BYTES
