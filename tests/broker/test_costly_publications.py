"""Publications for which much has to be looked at wait for their turns, and stay in their order; others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harebell.broker import slices
from harebell.broker.connections.base import BaseConnection
from harebell.protocol.v010 import DeliveryProperties, MessageProperties, commands as c
from harebell.protocol.v091 import Properties, methods as m
from tests.broker.kit import Client, NodeKit
from tests.broker.v010.kit import Client as Session, Kit

pytestmark = pytest.mark.pure  # patches a constant

MANY, FEW, MESSAGES = 20, 4, 10
SPREAD = 700  # queues that get a message in steps
HEADERS = {"kind": "order", "at": 1}


def declare(client: Client, name: str, kind: str, **arguments: object) -> None:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call(m.ExchangeDeclare(name, kind, arguments=table), m.ExchangeDeclareOk)


def bind(client: Client, name: str, key: str = "", queue: str = "q", **arguments: object) -> None:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call(m.QueueBind(queue, name, key, arguments=table), m.QueueBindOk)


def headers(client: Client, count: int) -> None:
    declare(client, "x", "headers")
    for number in range(count):
        bind(client, "x", str(number), x_match="any", kind="order")


def delayed(client: Client, count: int) -> None:
    declare(client, "x", "x-delayed-message", x_delayed_type="headers")
    for number in range(count):
        bind(client, "x", str(number), x_match="any", kind="order")


def hashed(client: Client, count: int) -> None:
    declare(client, "x", "x-consistent-hash")
    bind(client, "x", "1" + "0" * 90)  # nearly all keys
    for number in range(1, count):
        client.declare(f"q{number}")
        bind(client, "x", "1", f"q{number}")


def topic(client: Client, count: int) -> None:
    declare(client, "x", "topic")
    bind(client, "x", "#")
    for number in range(count if count > FEW else 0):
        bind(client, "x", f"#.{number}.#")


def walked(client: Client, count: int) -> None:
    declare(client, "x", "fanout")
    for number in range(count):
        declare(client, f"x{number}", "fanout")
        client.call(m.ExchangeBind(f"x{number}", "x", ""), m.ExchangeBindOk)
        bind(client, f"x{number}")


EXCHANGES: dict[str, Callable[[Client, int], None]] = {
    "headers": headers, "delayed": delayed, "hash": hashed, "topic": topic, "walk": walked,
}  # fmt: skip


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setattr(slices, "CHECK", 1)
    kit = Kit(tmp_path, sync=False)
    yield kit
    kit.stop()


def finish(kit: NodeKit) -> None:
    kit.stopwatch.step = 0.0
    kit.run_syncs()
    kit.node.batch.slices.finish()
    kit.node.batch.end()
    kit.run_syncs()


def keys(number: int) -> str:
    return ".".join(str((number + each) % MANY) for each in range(3))


def received(kit: NodeKit, queue: str = "q") -> list[bytes]:
    client = kit.client()
    found: list[bytes] = []
    while (content := client.get(queue)) is not None:
        found.append(content.body)
    return found


def input_of(client: Client, *, alike: bool) -> bytes:
    """The publications of a client of 0-9-1, not sent yet."""
    for number in range(MESSAGES):
        different = 0 if alike else number
        properties = Properties(headers={**HEADERS, "n": different})
        client.engine.send_content(1, m.BasicPublish("x", keys(different)), properties, b"%d" % number)
    return client.engine.data_to_send()


def input_of_session(session: Session, *, alike: bool) -> bytes:
    for number in range(MESSAGES):
        different = 0 if alike else number
        structs = [
            DeliveryProperties(routing_key=keys(different)),
            MessageProperties(application_headers={**HEADERS, "n": different}),
        ]
        item = (c.MessageTransfer("x"), structs, b"%d" % number)
        session.state.sending.send(item, 100)
        session.peer.engine.send_content(session.channel, *item)
    return session.peer.engine.data_to_send()


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("alike", [False, True], ids=["different", "alike"])
@pytest.mark.parametrize("dialect", ["0-9-1", "0-10"])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_costly_routes_are_found_in_turns(kit: Kit, exchange: str, dialect: str, alike: bool, count: int) -> None:
    client = kit.client()
    client.declare()
    EXCHANGES[exchange](client, count)
    connection: BaseConnection[Any]
    if dialect == "0-9-1":
        connection, data = client.connection, input_of(client, alike=alike)
    else:
        session = kit.peer().session()
        connection, data = session.peer.connection, input_of_session(session, alike=alike)
    kit.stopwatch.step = 1.0
    connection.receive_data(data)
    if count == FEW:
        assert not connection.busy
    elif not alike:  # else the first route may be that of all
        assert connection.busy
        assert kit.node.vhosts["/"].queues["q"].message_count < MESSAGES
    finish(kit)
    assert received(kit) == [b"%d" % number for number in range(MESSAGES)]


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("way", ["expiration", "x-message-ttl", "immediate"])
def test_consumers_with_selectors_are_asked_in_turns(kit: Kit, way: str, count: int) -> None:
    client, other = kit.client(), kit.client()
    client.declare("q", **({"x_message_ttl": 0} if way == "x-message-ttl" else {}))
    for number in range(count):
        other.call(m.BasicConsume("q", no_ack=True, arguments={"x-selector": f"n = {number}"}), m.BasicConsumeOk)
    properties = Properties(headers={"n": count - 1}, expiration="0" if way == "expiration" else None)
    for number in range(MESSAGES):
        publish = m.BasicPublish("", "q", immediate=way == "immediate")
        client.engine.send_content(1, publish, properties, b"%d" % number)
    kit.stopwatch.step = 1.0
    client.connection.receive_data(client.engine.data_to_send())
    assert client.connection.busy == (count == MANY)
    finish(kit)
    other.receive()
    assert [body for _, _, body in other.deliveries()] == [b"%d" % number for number in range(MESSAGES)]


def test_input_after_a_costly_publication_waits_for_its_long_work(kit: Kit) -> None:
    """A route that was costly to find, and many queues: the next message waits until all queues have this one."""
    client = kit.client()
    declare(client, "x", "headers")
    for number in range(SPREAD):
        client.call(m.QueueDeclare(f"q{number}"), m.QueueDeclareOk)
        bind(client, "x", "", f"q{number}", x_match="any", kind="order")
    kit.stopwatch.step = 1.0
    data = input_of(client, alike=False)
    client.connection.receive_data(data)
    seen = []
    while client.connection.busy:
        kit.run_sync()
        counts = [queue.message_count for queue in kit.node.vhosts["/"].queues.values()]
        seen.append(max(counts) - min(counts))
    assert max(seen) <= 1
    finish(kit)
    assert received(kit, f"q{SPREAD - 1}") == [b"%d" % number for number in range(MESSAGES)]


@pytest.mark.parametrize("size", [1, 2000])
@pytest.mark.parametrize("way", ["CC", "headers exchange", "user_id"])
def test_long_headers_are_decoded_in_turns(kit: Kit, way: str, size: int) -> None:
    client = kit.client()
    client.declare()
    declare(client, "x", "headers")
    bind(client, "x", x_match="any", kind="order")
    long: dict[str, Any] = {**HEADERS, "CC" if way == "CC" else "long": ["h"] * size}
    for number in range(MESSAGES):
        publish = m.BasicPublish("x" if way == "headers exchange" else "", "q")
        user = "guest" if way == "user_id" else None
        client.engine.send_content(1, publish, Properties(headers=long, user_id=user), b"%d" % number)
    kit.stopwatch.step = 1.0
    client.connection.take_in(data := client.engine.data_to_send(), 0, len(data))
    assert client.connection.busy == (size > 1)
    finish(kit)
    assert received(kit) == [b"%d" % number for number in range(MESSAGES)]
