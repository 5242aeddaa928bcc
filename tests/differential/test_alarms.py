"""connection.blocked on both brokers: who is told, when, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.fields import Table
from harebell.testing.rabbitmq import RabbitMQ
from tests.wire import CAPABILITIES, BrokerThread, Wire


@dataclass
class Side:
    """A broker, and how its alarms are raised and cleared."""

    port: int
    raise_alarm: Callable[[str], object]
    clear_alarm: Callable[[str], object]


@pytest.fixture
def sides(rabbitmq: RabbitMQ) -> Iterator[tuple[Side, Side]]:
    def alarm(function: str, resource: str) -> None:
        limit = f"{{resource_limit, {resource}, node()}}"
        rabbitmq.evaluate(f"rabbit_alarm:{function}_alarm({limit if function == 'clear' else f'{{{limit}, []}}'})")

    with BrokerThread() as harebell:
        node = harebell.broker.node
        ours = Side(
            harebell.port,
            lambda resource: harebell.run(lambda: node.raise_alarm(resource)),
            lambda resource: harebell.run(lambda: node.clear_alarm(resource)),
        )
        theirs = Side(rabbitmq.port, lambda resource: alarm("set", resource), lambda resource: alarm("clear", resource))
        yield ours, theirs


def conversation(side: Side) -> list[str]:
    """One who publishes, one who does not, one who publishes and knows nothing of it; during an alarm."""
    knows: Table = {"capabilities": {**CAPABILITIES, "connection.blocked": True}}
    said: list[str] = []
    with Wire(side.port) as publisher, Wire(side.port) as reader, Wire(side.port) as unaware:
        unknowing: Table = {"capabilities": CAPABILITIES}
        for wire, properties in ((publisher, knows), (reader, knows), (unaware, unknowing)):
            wire.log_in(properties=properties)
            wire.channel(1)
        reader.call(1, m.QueueDeclare("alarmed", exclusive=True), m.QueueDeclareOk)
        side.raise_alarm("memory")
        publisher.barrier()
        publisher.publish("", "alarmed", b"1")
        said.append(f"publisher: {publisher.expect(m.ConnectionBlocked).method!r}")
        unaware.publish("", "alarmed", b"2")
        reader.barrier()
        side.clear_alarm("memory")
        said.append(f"publisher: {publisher.expect(m.ConnectionUnblocked).method!r}")
        for name, wire in (("publisher", publisher), ("reader", reader), ("unaware", unaware)):
            wire.barrier()
            said += [f"{name}: {each.method!r}" for each in wire.received]
        found = reader.call(1, m.QueueDeclare("alarmed", passive=True), m.QueueDeclareOk)
        return [*said, repr(found)]


def test_same_warnings(sides: tuple[Side, Side]) -> None:
    ours, theirs = (conversation(side) for side in sides)
    assert ours == theirs
    assert "low on memory" in ours[0]
