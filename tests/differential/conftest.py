"""Both brokers, and a pair of peers that leave nothing behind. Every test here runs with each version of RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pytest

from harebell.protocol.v091 import methods as m
from harebell.testing.rabbitmq import RabbitMQ
from tests.differential import people
from tests.differential.driver import BEYOND, Peer, Publish, Raw, Send, Step, Together, delete_all
from tests.fixtures.rabbitmq import VERSIONS, Nodes
from tests.wire import BrokerThread, Wire

Pair = tuple[Peer, Peer]


@pytest.fixture(scope="package")
def harebell_port() -> Iterator[int]:
    with BrokerThread(handshake_timeout=60) as harebell:
        harebell.run(lambda: people.give_harebell(harebell.broker.node))
        yield harebell.port


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The RabbitMQ that this test compares with."""
    return str(request.param)


@pytest.fixture(scope="session")
def rabbitmq_server(version: str, rabbitmq_nodes: Nodes) -> RabbitMQ:
    """In place of this machine's."""
    return rabbitmq_nodes.of(version)


@pytest.fixture(scope="package")
def peopled_rabbitmq(rabbitmq_server: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> RabbitMQ:
    people.give_rabbitmq(rabbitmq_server, tmp_path_factory.mktemp("people"))
    return rabbitmq_server


@pytest.fixture(scope="package")
def cleaner(harebell_port: int, rabbitmq_server: RabbitMQ) -> Iterator[Callable[[Sequence[Step]], None]]:
    """Deletes what a script declares, from both brokers. A connection that fails a test does not fail the next ones."""
    wires: dict[int, Wire] = {}

    def clean(script: Sequence[Step]) -> None:
        for port in (harebell_port, rabbitmq_server.port):
            wire = wires.get(port) or Wire(port).log_in()
            wires[port] = wire
            try:
                delete_all(wire, *named(script))
            except BaseException:
                wires.pop(port).close()
                raise

    yield clean
    for wire in wires.values():
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
    return (
        {name for name in queues if name and _is_utf8(name)},
        {name for name in exchanges if name and not name.startswith("amq.") and _is_utf8(name)},
    )


def _is_utf8(name: str) -> bool:
    """Other names cannot be declared, and deleting them would close the connection."""
    return name.encode("utf-8", "ignore").decode() == name


def flat(script: Sequence[Step]) -> Iterator[Step | Send | Publish | Raw]:
    for step in script:
        if isinstance(step, Together):
            yield from step.steps
        else:
            yield step
