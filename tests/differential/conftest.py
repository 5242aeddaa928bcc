"""Both brokers, and a pair of peers that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pytest

from harebell.protocol.v091 import methods as m
from harebell.testing.rabbitmq import RabbitMQ
from tests.differential import people
from tests.differential.driver import BEYOND, Peer, Publish, Raw, Send, Step, Together, delete_all
from tests.wire import BrokerThread, Wire

Pair = tuple[Peer, Peer]


@pytest.fixture(scope="package")
def harebell_port() -> Iterator[int]:
    with BrokerThread() as harebell:
        harebell.run(lambda: people.give_harebell(harebell.broker.node))
        yield harebell.port


@pytest.fixture(scope="package")
def peopled_rabbitmq(rabbitmq_server: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> RabbitMQ:
    people.give_rabbitmq(rabbitmq_server, tmp_path_factory.mktemp("people"))
    return rabbitmq_server


@pytest.fixture(scope="package")
def cleaner(harebell_port: int, rabbitmq_server: RabbitMQ) -> Iterator[Callable[[Sequence[Step]], None]]:
    """Deletes what a script declares, from both brokers."""
    wires = [Wire(port).log_in() for port in (harebell_port, rabbitmq_server.port)]

    def clean(script: Sequence[Step]) -> None:
        for wire in wires:
            delete_all(wire, *named(script))

    yield clean
    for wire in wires:
        wire.close()


@pytest.fixture
def peers(
    harebell_port: int, peopled_rabbitmq: RabbitMQ, rabbitmq: RabbitMQ, cleaner: Callable[[Sequence[Step]], None]
) -> Iterator[Callable[..., Pair]]:
    """Called with a script and the headers that do not count: (Harebell, RabbitMQ), without the script's things."""
    used: list[tuple[Pair, Sequence[Step]]] = []

    def make(script: Sequence[Step], without: Collection[str] = BEYOND) -> Pair:
        cleaner(script)
        pair = Peer(harebell_port, without), Peer(rabbitmq.port, without)
        used.append((pair, script))
        return pair

    yield make
    for pair, script in used:
        for peer in pair:
            peer.close()
        cleaner(script)


def named(script: Sequence[Step]) -> tuple[set[str], set[str]]:
    """The queues and exchanges that a script may declare."""
    queues: set[str] = set()
    exchanges: set[str] = set()
    for step in flat(script):
        if isinstance(step, Send):
            if isinstance(step.method, m.QueueDeclare):
                queues.add(step.method.queue.strip("\r\n"))
            elif isinstance(step.method, m.ExchangeDeclare):
                exchanges.add(step.method.exchange)
    return queues - {""}, {name for name in exchanges if name and not name.startswith("amq.")}


def flat(script: Sequence[Step]) -> Iterator[Step | Send | Publish | Raw]:
    for step in script:
        if isinstance(step, Together):
            yield from step.steps
        else:
            yield step
