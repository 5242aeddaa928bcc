"""Changes of the topology that concern many bindings or messages: others have their turns, and nothing is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harebell.broker import vhost
from harebell.broker.exchanges import delayed
from harebell.broker.v010 import topology
from harebell.protocol.v010 import Command, commands as c, structs as s
from harebell.protocol.v091 import Properties, methods as m
from tests.broker.kit import Client
from tests.broker.v010.kit import Client as Session, Kit

MANY = 40
pytestmark = pytest.mark.pure  # patches constants


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    for module, name in (
        (vhost, "BINDINGS"), (vhost, "FEW_BINDINGS"), (vhost, "REMEMBERED"), (delayed, "REVOKED"),
        (topology, "COMPARED"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 1)
    kit = Kit(tmp_path, sync=False)
    yield kit
    kit.stop()


@pytest.fixture
def client(kit: Kit) -> Client:
    client = kit.client()
    client.declare()
    return client


def turns(kit: Kit, begin: Callable[[], object]) -> int:
    """Begin something, and run long work slice by slice until nothing is left of it. Returns the number of slices."""
    kit.stopwatch.step = 1.0
    begin()
    count = 0
    while not kit.node.batch.slices.idle:
        kit.run_sync()
        count += 1
        assert count < 10 * MANY
    kit.stopwatch.step = 0.0
    kit.settle()
    for client in kit.clients:
        client.receive()
    return count


def send(session: Session, command: Command) -> int:
    """Send a command, of which one slice is executed. Returns its number."""
    number = session.state.sending.send(command, 100)
    session.peer.engine.send_command(session.channel, command)
    session.peer.connection.receive_data(session.peer.engine.data_to_send())
    return number


def bind(client: Client, exchange: str, count: int) -> None:
    for number in range(count):
        client.call(m.QueueBind("q", exchange, "k", arguments={"n": number, "x-match": "all"}), m.QueueBindOk)


def ask(kit: Kit, session: Session, command: c.ExchangeBound) -> tuple[int, s.ExchangeBoundResult]:
    command.sync = True
    number: list[int] = []
    took = turns(kit, lambda: number.append(send(session, command)))
    result = session.results[number[0]]
    assert isinstance(result, s.ExchangeBoundResult)
    return took, result


def test_a_key_with_many_bindings_is_unbound(kit: Kit, client: Client) -> None:
    bind(client, "amq.headers", MANY)
    bind(client, "amq.direct", 1)
    session = kit.peer().session()
    command = c.ExchangeUnbind("q", "amq.headers", "k")
    command.sync = True
    number: list[int] = []
    assert turns(kit, lambda: number.append(send(session, command))) >= MANY - 1
    assert number[0] in session.complete
    assert [each.source for each in kit.node.vhosts["/"].router.bindings(implicit=False)] == ["amq.direct"]


def test_many_bindings_are_compared(kit: Kit, client: Client) -> None:
    bind(client, "amq.headers", MANY)
    client.declare("other")
    session = kit.peer().session()
    took, found = ask(kit, session, c.ExchangeBound("amq.headers", "q", "k", {"n": MANY - 1}))
    assert took >= MANY - 1
    assert not any((found.queue_not_matched, found.key_not_matched, found.args_not_matched))
    took, found = ask(kit, session, c.ExchangeBound("amq.headers", "other", "zz", {"n": MANY}))
    assert took >= MANY - 1
    assert found.queue_not_matched
    assert found.key_not_matched
    assert found.args_not_matched


@pytest.mark.parametrize("dialect", ["0-9-1", "0-10"])
def test_a_new_binding_gets_a_long_history(kit: Kit, client: Client, dialect: str) -> None:
    history = m.ExchangeDeclare("x", "x-recent-history", arguments={"x-recent-history-length": MANY})
    client.call(history, m.ExchangeDeclareOk)
    for number in range(MANY):
        client.publish("", b"%d" % number, "x")
    session = kit.peer().session()
    client.events.clear()
    if dialect == "0-9-1":
        took = turns(kit, lambda: client.send(1, m.QueueBind("q", "x", "")))
        assert client.take(m.QueueBindOk)
    else:
        command = c.ExchangeBind("q", "x", "")
        command.sync = True
        number_of: list[int] = []
        took = turns(kit, lambda: number_of.append(send(session, command)))
        assert number_of[0] in session.complete
    assert took >= MANY - 1
    contents = [client.get() for _ in range(MANY)]
    assert [each.body for each in contents if each is not None] == [b"%d" % number for number in range(MANY)]


def test_many_delayed_messages_are_revoked(kit: Kit, client: Client) -> None:
    arguments = {"x-delayed-type": "fanout"}
    client.call(m.ExchangeDeclare("x", "x-delayed-message", arguments=arguments), m.ExchangeDeclareOk)
    for number in range(MANY + 1):
        client.publish("", b"1", "x", headers={"x-delay": 1000}, message_id="a" if number else "b")
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", no_ack=True), m.BasicConsumeOk)
    properties = Properties(reply_to="amq.rabbitmq.reply-to", headers={"exchange": "x", "id": "a"})
    publish = m.BasicPublish("amq.system", "amq.revoke")
    client.engine.send_content(1, publish, properties, b'{"exchange": "x", "id": "a"}')
    assert turns(kit, client.pump) >= MANY - 1
    assert [body for _, _, body in client.deliveries()] == [b'{"revoked": %d}' % MANY]
    assert len(kit.node.vhosts["/"].delays_of("x")) == 1


def test_an_exchange_to_which_many_are_bound_is_deleted_if_unused(kit: Kit, client: Client) -> None:
    client.call(m.ExchangeDeclare("x", "fanout"), m.ExchangeDeclareOk)
    for number in range(MANY):
        client.call(m.ExchangeBind("x", "amq.direct", str(number)), m.ExchangeBindOk)
    assert turns(kit, lambda: client.send(1, m.ExchangeDelete("x", if_unused=True))) >= MANY - 2
    assert client.take(m.ExchangeDeleteOk)
    assert not kit.node.vhosts["/"].router.has_exchange("x")
    assert list(kit.node.vhosts["/"].router.bindings(implicit=False)) == []
