"""Limits of the broker as a whole, and its alarms, on both brokers: who is refused, at which level, in which words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.differential.driver import Login, Peer, Publish, Send, Step, run
from tests.wire import CAPABILITIES, BrokerThread, Wire
from warren.errors import ServerUnavailable
from warren.protocol.v091 import Table, methods as m
from warren.testing.rabbitmq import RabbitMQ

CHANNELS, CONNECTIONS, CONSUMERS, SIZE = 4, 3, 2, 1000
# There is no key of rabbitmq.conf for consumers in 3.10.
SET_CONSUMERS = f"application:set_env(rabbit, consumer_max_per_channel, {CONSUMERS})."
KNOWS: Table = {**CAPABILITIES, "connection.blocked": True}


@dataclass
class Pair:
    warren: BrokerThread
    rabbitmq: RabbitMQ


@pytest.fixture(scope="module")
def brokers() -> Iterator[Pair]:
    config = {"channel_max": CHANNELS, "connection_max": CONNECTIONS, "max_message_size": SIZE}
    limits = {
        "channel_max": CHANNELS, "max_connections": CONNECTIONS, "max_message_size": SIZE,
        "max_consumers_per_channel": CONSUMERS,
    }  # fmt: skip
    try:
        server = RabbitMQ(config={name: str(value) for name, value in config.items()})
        server.start()
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with server, BrokerThread(**limits) as warren:
        server.ctl("eval", SET_CONSUMERS)
        yield Pair(warren, server)


def login(connection: str = "a", channel_max: int = CHANNELS) -> Login:
    return Login(connection, tune=(channel_max, 131_072, 0))


def channel(number: int) -> Send:
    return Send("a", number, m.ChannelOpen(), bare=True)


def consume(tag: str) -> Send:
    return Send("a", 1, m.BasicConsume("q", tag))


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "more channels than are proposed": (login(channel_max=CHANNELS + 1),),
    "no limit of channels": (login(channel_max=0),),
    "one channel too many": (login(), *map(channel, range(1, CHANNELS + 2))),
    "fewer channels, as the client wants": (login(channel_max=1), channel(1), channel(2)),
    "a message of the largest size": (login(), Publish("a", 1, "", "q", b"x" * SIZE)),
    "a larger message": (login(), Publish("a", 1, "", "q", b"x" * (SIZE + 1))),
    "one consumer too many": (
        login(), Send("a", 1, m.QueueDeclare("q", exclusive=True)), consume("1"), consume("2"), consume("3")
    ),
    "a consumer tag that is used, where there may be no more": (
        login(), Send("a", 1, m.QueueDeclare("q", exclusive=True)), consume("1"), consume("2"), consume("2")
    ),
    "one connection too many": (login("a"), login("b"), login("c"), login("d")),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_refusals(brokers: Pair, name: str) -> None:
    ours, theirs = Peer(brokers.warren.port), Peer(brokers.rabbitmq.port)
    try:
        run(SCRIPTS[name], ours, theirs)
        assert ours.trace == theirs.trace
        print(ours.trace)
    finally:
        ours.close()
        theirs.close()
