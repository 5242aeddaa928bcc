"""Limits of the broker as a whole, and its alarms, on both brokers: who is refused, at which level, in which words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from harebell.protocol.v091 import Table, methods as m
from harebell.testing.rabbitmq import RabbitMQ
from tests.differential.driver import Login, Peer, Publish, Send, Step, run
from tests.fixtures.rabbitmq import Nodes
from tests.wire import CAPABILITIES, BrokerThread, Wire

CHANNELS, SIZE = 4, 1000
MEMORY = "{{resource_limit, memory, node()}, []}"
KNOWS: Table = {**CAPABILITIES, "connection.blocked": True}

pytestmark = pytest.mark.rabbitmq


@dataclass
class Pair:
    harebell: BrokerThread
    rabbitmq: RabbitMQ


@pytest.fixture(scope="module")
def brokers(version: str, rabbitmq_nodes: Nodes) -> Iterator[Pair]:
    limits: dict[str, Any] = {"channel_max": CHANNELS, "max_message_size": SIZE}
    with (
        rabbitmq_nodes.fresh(version, {name: str(value) for name, value in limits.items()}) as server,
        BrokerThread(**limits) as harebell,
    ):
        yield Pair(harebell, server)


def login(channel_max: int = CHANNELS) -> Login:
    return Login("a", tune=(channel_max, 131_072, 0))


def channel(number: int) -> Send:
    return Send("a", number, m.ChannelOpen(), bare=True)


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "one channel too many": (login(), *map(channel, range(1, CHANNELS + 2))),
    "fewer channels, as the client wants": (login(channel_max=1), channel(1), channel(2)),
    "a message of the largest size": (login(), Publish("a", 1, "", "q", b"x" * SIZE)),
    "a larger message": (login(), Publish("a", 1, "", "q", b"x" * (SIZE + 1))),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_refusals(brokers: Pair, name: str) -> None:
    ours, theirs = Peer(brokers.harebell.port), Peer(brokers.rabbitmq.port)
    try:
        run(SCRIPTS[name], ours, theirs)
        assert ours.trace == theirs.trace
    finally:
        ours.close()
        theirs.close()


def test_an_alarm(brokers: Pair) -> None:
    """Who publishes is told once, who does not is not; what was published meanwhile is there afterwards."""
    for port in (brokers.harebell.port, brokers.rabbitmq.port):
        with Wire(port).log_in(properties={"capabilities": KNOWS}) as publisher, Wire(port).log_in() as reader:
            publisher.channel(1)
            reader.channel(1)
            reader.call(1, m.QueueDeclare("alarm", exclusive=True), m.QueueDeclareOk)
            set_alarm(brokers, port)
            reader.barrier()  # it does not publish
            publisher.publish("", "alarm", b"1")
            blocked = publisher.expect(m.ConnectionBlocked).method
            publisher.publish("", "alarm", b"2")
            clear_alarm(brokers, port)
            publisher.expect(m.ConnectionUnblocked)
            reader.call(1, m.BasicConsume("alarm", "c", no_ack=True), m.BasicConsumeOk)
            assert [got.body for got in reader.take(m.BasicDeliver, 2)] == [b"1", b"2"]
            assert isinstance(blocked, m.ConnectionBlocked)
            assert blocked.reason == "low on memory"
            assert publisher.received == []
            assert reader.received == []


def set_alarm(brokers: Pair, port: int) -> None:
    if port == brokers.harebell.port:
        brokers.harebell.run(lambda: brokers.harebell.broker.node.raise_alarm("memory"))
    else:
        brokers.rabbitmq.evaluate(f"rabbit_alarm:set_alarm({MEMORY})")


def clear_alarm(brokers: Pair, port: int) -> None:
    if port == brokers.harebell.port:
        brokers.harebell.run(lambda: brokers.harebell.broker.node.clear_alarm("memory"))
    else:
        brokers.rabbitmq.evaluate("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")
