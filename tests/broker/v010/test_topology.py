"""Exchanges, queues and bindings of AMQP 0-10: the rules of the specification by name, and what queries say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harebell.broker.v010 import topology
from harebell.protocol.v010 import Command, commands as c, structs as s
from harebell.protocol.v091 import Table, methods as m
from tests.broker.v010.kit import Client, Kit, add_user

# Its letters have no place, so it is not empty.
DYING: Table = {
    "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "nowhere",
    "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
}  # fmt: skip
SETUP = (
    c.ExchangeDeclare("x", "direct"),
    c.ExchangeDeclare("t", "topic", alternate_exchange="x"),
    c.ExchangeDeclare("h", "headers"),
    c.QueueDeclare("q"),
    c.QueueDeclare("full"),
    c.QueueDeclare("dying", arguments=DYING),
    c.QueueDeclare("a", alternate_exchange="amq.fanout"),
    c.ExchangeBind("q", "x", "k"),
    c.ExchangeBind("q", "amq.topic", "a.*"),
    c.ExchangeBind("q", "h", "", {"x-match": "all", "n": 1}),
)


@pytest.fixture
def ready(client: Client) -> Client:
    for command in SETUP:
        client.call(command)
    client.publish("full", b"m")
    client.publish("dying", b"m")
    assert client.exception is None
    return client


REFUSED: list[tuple[str, Command, int]] = [
    ("reserved-names", c.ExchangeDeclare("amq.new", "direct"), 530),
    ("reserved-names", c.ExchangeDeclare("qpid.new", "direct"), 530),
    ("exchange-name-required", c.ExchangeDeclare("", "direct"), 542),
    ("typed", c.ExchangeDeclare("x", "topic"), 530),
    ("typed", c.ExchangeDeclare("x", "topic", passive=True), 530),
    ("exchange-type-not-found", c.ExchangeDeclare("new", "strange"), 404),
    ("pre-existing-exchange", c.ExchangeDeclare("t", "topic", alternate_exchange="amq.direct"), 530),
    ("not-found", c.ExchangeDeclare("nowhere", "direct", passive=True), 404),
    ("not-found", c.ExchangeDeclare("new", "direct", alternate_exchange="nowhere"), 404),
    ("unknown-argument", c.ExchangeDeclare("new", "direct", arguments={"strange": 1}), 540),
    ("exists", c.ExchangeDelete("nowhere"), 404),
    ("exchange-name-required", c.ExchangeDelete(""), 542),
    ("used-as-alternate", c.ExchangeDelete("x"), 530),
    ("used-as-alternate", c.ExchangeDelete("amq.fanout"), 530),
    ("exchange-in-use", c.ExchangeDelete("h", if_unused=True), 406),
    ("default-access", c.ExchangeDelete("amq.direct"), 530),
    ("empty-queue", c.ExchangeBind("", "x", "k"), 542),
    ("queue-existence", c.ExchangeBind("nowhere", "x", "k"), 404),
    ("exchange-existence", c.ExchangeBind("q", "nowhere", "k"), 404),
    ("exchange-name-required", c.ExchangeBind("q", "", "k"), 542),
    ("x-match", c.ExchangeBind("q", "h", "", {"n": 1}), 541),
    ("non-existent-queue", c.ExchangeUnbind("nowhere", "x", "k"), 404),
    ("non-existent-exchange", c.ExchangeUnbind("q", "nowhere", "k"), 404),
    ("exchange-name-required", c.ExchangeUnbind("q", "", "k"), 542),
    ("non-existent-binding-key", c.ExchangeUnbind("q", "x", "other"), 404),
    ("reserved-prefix", c.QueueDeclare("amq.new"), 530),
    ("unknown-exchange", c.QueueDeclare("new", alternate_exchange="nowhere"), 404),
    ("pre-existing-exchange", c.QueueDeclare("a", alternate_exchange="amq.direct"), 530),
    ("passive", c.QueueDeclare("nowhere", passive=True), 404),
    ("empty-name", c.QueueDeclare(""), 531),
    ("unknown-argument", c.QueueDeclare("new", arguments={"strange": 3}), 540),
    ("empty-name", c.QueueDelete(""), 531),
    ("queue-exists", c.QueueDelete("nowhere"), 404),
    ("not-empty", c.QueueDelete("full", if_empty=True), 406),
    ("not-empty", c.QueueDelete("dying", if_empty=True), 406),
    ("empty-name", c.QueuePurge(""), 531),
    ("queue-exists", c.QueuePurge("nowhere"), 404),
]


@pytest.mark.parametrize(
    ("rule", "command", "code"), REFUSED, ids=[f"{command.NAME}-{rule}-{code}" for rule, command, code in REFUSED]
)
def test_refusals(ready: Client, rule: str, command: Command, code: int) -> None:
    ready.call(command)
    assert ready.exception is not None, rule
    assert ready.exception.error_code == code
    assert (ready.exception.class_code, ready.exception.command_code) == tuple(command.KEY)


ALLOWED: list[tuple[str, Command]] = [
    ("support", c.ExchangeDeclare("amq.direct", "direct", passive=True)),
    ("sticky", c.ExchangeDeclare("x", "direct", durable=True, auto_delete=True)),
    ("redeclared-without-alternate", c.ExchangeDeclare("t", "topic")),
    ("duplicates", c.ExchangeBind("q", "x", "k")),
    ("pre-existence", c.QueueDeclare("q", durable=True, auto_delete=True)),
    ("passive", c.QueueDeclare("q", passive=True)),
    ("if-unused", c.ExchangeDelete("t", if_unused=True)),
    ("if-empty", c.QueueDelete("q", if_unused=True, if_empty=True)),
    ("purge", c.QueuePurge("full")),
    ("unbind", c.ExchangeUnbind("q", "h", "")),
]


@pytest.mark.parametrize(("rule", "command"), ALLOWED, ids=[f"{each[1].NAME}-{each[0]}" for each in ALLOWED])
def test_what_is_allowed(ready: Client, rule: str, command: Command) -> None:
    assert ready.call(command) in ready.complete, rule
    assert ready.exception is None


@pytest.mark.parametrize("name", ["amq.direct", "amq.fanout", "amq.topic", "amq.match", "amq.headers", ""])
def test_required_instances(client: Client, name: str) -> None:
    found = client.ask(c.ExchangeQuery(name), s.ExchangeQueryResult)
    assert not found.not_found
    assert found.durable or not name


def test_names_are_case_sensitive(client: Client) -> None:
    client.call(c.QueueDeclare("Q"))
    client.call(c.QueueDeclare("q"))
    assert client.ask(c.QueueQuery("Q"), s.QueueQueryResult).queue == "Q"
    assert client.ask(c.ExchangeQuery("amq.Direct"), s.ExchangeQueryResult).not_found
    client.publish("q", b"m")
    assert client.ask(c.QueueQuery("Q"), s.QueueQueryResult).message_count == 0
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 1


def test_default_binding(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    client.subscribe("q")
    assert client.bodies() == [b"m"]


def test_exchange_query(ready: Client) -> None:
    found = ready.ask(c.ExchangeQuery("t"), s.ExchangeQueryResult)
    assert (found.type, found.durable, found.arguments) == ("topic", False, {"alternate-exchange": "x"})
    assert ready.ask(c.ExchangeQuery("nowhere"), s.ExchangeQueryResult).not_found


def test_queue_query(ready: Client) -> None:
    ready.subscribe("full", messages=None)
    found = ready.ask(c.QueueQuery("full"), s.QueueQueryResult)
    assert (found.queue, found.message_count, found.subscriber_count) == ("full", 1, 1)
    assert ready.ask(c.QueueQuery("a"), s.QueueQueryResult).alternate_exchange == "amq.fanout"
    assert ready.ask(c.QueueQuery("nowhere"), s.QueueQueryResult).queue == ""


def flags(found: s.ExchangeBoundResult) -> str:
    names = ("exchange_not_found", "queue_not_found", "queue_not_matched", "key_not_matched", "args_not_matched")
    return " ".join(name for name in names if getattr(found, name))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (c.ExchangeBound("x", "q", "k"), ""),
        (c.ExchangeBound("x"), ""),
        (c.ExchangeBound("nowhere", "none"), "exchange_not_found queue_not_found"),
        (c.ExchangeBound("x", "none"), "queue_not_found"),
        (c.ExchangeBound("x", "a"), "queue_not_matched"),
        (c.ExchangeBound("x", "q", "other"), "key_not_matched"),
        (c.ExchangeBound("x", "a", "other"), "queue_not_matched key_not_matched"),
        (c.ExchangeBound("h", "q", None, {"x-match": "all", "n": 1}), ""),
        (c.ExchangeBound("h", "q", None, {"x-match": "any"}), "args_not_matched"),
        (c.ExchangeBound("", "q", "q"), ""),
    ],
    ids=str,
)
def test_exchange_bound(ready: Client, command: Command, said: str) -> None:
    assert flags(ready.ask(command, s.ExchangeBoundResult)) == said


def test_exclusive_queues_belong_to_their_session(kit: Kit, client: Client) -> None:
    """Rule in-use: declare, bind, subscribe, purge and delete of others are refused with 405."""
    client.call(c.QueueDeclare("own", exclusive=True))
    for number, command in enumerate(
        (
            c.QueueDeclare("own"),
            c.QueueDeclare("own", passive=True, exclusive=True),
            c.ExchangeBind("own", "amq.direct", "k"),
            c.MessageSubscribe("own", "t"),
            c.QueuePurge("own"),
            c.QueueDelete("own"),
        )
    ):
        other = client.peer.session(f"other {number}".encode(), 5)
        other.call(command)
        assert other.exception is not None
        assert other.exception.error_code == 405, command
    other = client.peer.session(b"asks", 5)
    assert other.call(c.QueueDeclare("own", passive=True)) in other.complete  # Qpid's clients check a reply queue so
    old = kit.client()
    old.send(1, m.QueueDeclare("own"))
    closed = old.events[-1][1]
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 405
    client.peer.lose()
    other = kit.peer().session(b"after")
    assert other.call(c.QueueDeclare("own", exclusive=True)) in other.complete  # free, and still there


def test_exclusive_and_auto_delete_ends_with_the_session(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("own", exclusive=True, auto_delete=True))
    client.subscribe("own")
    client.call(c.MessageCancel("t"))
    assert "own" in kit.node.vhosts["/"].queues
    client.peer.lose()
    assert "own" not in kit.node.vhosts["/"].queues


def test_auto_delete_ends_with_the_last_subscriber(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("shared", auto_delete=True))
    client.subscribe("shared")
    assert "shared" in kit.node.vhosts["/"].queues
    client.call(c.MessageCancel("t"))
    assert "shared" not in kit.node.vhosts["/"].queues


def test_exclusive_needs_a_queue_without_subscribers_of_others(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    client.subscribe("q")
    other = kit.peer().session(b"other")
    other.call(c.QueueDeclare("q", exclusive=True))
    assert other.exception is not None
    assert other.exception.error_code == 405


def test_an_exchange_whose_prefix_is_reserved_in_this_dialect_alone_can_be_deleted(kit: Kit, client: Client) -> None:
    vhost = kit.node.vhosts["/"]
    given = {"passive": False, "durable": False, "auto_delete": False, "internal": False}
    vhost.declare_exchange("qpid.x", "direct", **given, arguments={}, user="guest")
    client.call(c.ExchangeDelete("qpid.x"))
    assert client.exception is None
    assert not vhost.router.has_exchange("qpid.x")


def test_a_stream_cannot_be_exclusive(client: Client) -> None:
    client.call(c.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}))
    client.call(c.QueueDeclare("s", exclusive=True))
    assert client.exception is not None
    assert client.exception.error_code == 406


def test_permissions(kit: Kit) -> None:
    add_user(kit, "eve", "mine.*")
    for command in (c.QueueDeclare("q"), c.ExchangeDeclare("x", "direct"), c.MessageSubscribe("r", "t")):
        kit.peer().session(b"s").call(c.QueueDeclare("r"))
        client = kit.peer(user="eve").session(b"s")
        client.call(command)
        assert client.exception is not None
        assert client.exception.error_code == 403, command
    client = kit.peer(user="eve").session(b"s")
    client.publish("mine", b"m", "amq.direct")
    assert client.exception is not None
    assert client.exception.error_code == 403


STREAM: dict[str, object] = {"x-queue-type": "stream"}
REFUSED_QUEUES = {
    "exclusive stream": c.QueueDeclare("new", durable=True, exclusive=True, arguments=STREAM),
    "stream that is not durable": c.QueueDeclare("new", arguments=STREAM),
    "unknown type": c.QueueDeclare("new", arguments={"x-queue-type": "strange"}),
    "unknown argument": c.QueueDeclare("new", arguments={"strange": 1}),
    "invalid value": c.QueueDeclare("new", exclusive=True, arguments={"x-max-length": "many"}),
    "unknown alternate": c.QueueDeclare("new", exclusive=True, alternate_exchange="nowhere"),
    "passive": c.QueueDeclare("new", passive=True),
}


@pytest.mark.parametrize("default", [None, "classic", "quorum", "stream"])
@pytest.mark.parametrize("case", REFUSED_QUEUES)
def test_a_refused_declaration_leaves_nothing(kit: Kit, client: Client, case: str, default: str | None) -> None:
    kit.node.vhosts["/"].definition = replace(kit.node.vhosts["/"].definition, default_queue_type=default)
    client.call(REFUSED_QUEUES[case])
    assert client.exception is not None
    assert "new" not in kit.node.vhosts["/"].queues
    data = kit.node.catalog.path.parent
    assert [*data.glob("queues/*"), *data.glob("streams/*")] == []
    assert not any(queue.folder for queue in kit.node.vhosts["/"].queues.values())


@pytest.mark.parametrize("default", [None, "classic", "quorum", "stream"])
@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("auto_delete", [True, False])
def test_the_default_type_is_that_of_0_9_1(
    kit: Kit, client: Client, default: str | None, *, exclusive: bool, durable: bool, auto_delete: bool
) -> None:
    vhost = kit.node.vhosts["/"]
    vhost.definition = replace(vhost.definition, default_queue_type=default)
    client.call(c.QueueDeclare("new", durable=durable, exclusive=exclusive, auto_delete=auto_delete))
    old = kit.client()
    old.send(1, m.QueueDeclare("old", durable=durable, exclusive=exclusive, auto_delete=auto_delete))
    assert client.exception is None
    assert vhost.queues["new"].type == vhost.queues["old"].type
    assert vhost.queues["new"].arguments == vhost.queues["old"].arguments


@pytest.mark.parametrize("acquire_mode", [0, 1], ids=["acquiring", "browsing"])
@pytest.mark.parametrize(
    ("command", "code"),
    [(c.QueueDelete("q", if_unused=True), 406), (c.QueueDeclare("q", durable=True, exclusive=True), 405)],
    ids=["deletion if-unused", "exclusive declaration"],
)
def test_every_subscriber_uses_the_queue(kit: Kit, command: Command, code: int, acquire_mode: int) -> None:
    """One that browses too: queue.query counts it."""
    client, other = kit.peer().session(b"uses"), kit.peer().session(b"other")
    client.call(c.QueueDeclare("q", durable=True))
    client.subscribe("q", acquire_mode=acquire_mode)
    assert other.ask(c.QueueQuery("q"), s.QueueQueryResult).subscriber_count == 1
    other.call(command)
    assert other.exception is not None
    assert other.exception.error_code == code
    assert client.attached


def begin(client: Client, command: Command) -> int:
    """Send a command, and let the broker have no more than its first slice. Returns its number."""
    command.sync = True
    number = client.state.sending.send(command, 100)
    client.peer.engine.send_command(0, command)
    client.peer.connection.receive_data(client.peer.engine.data_to_send())
    return number


def end(kit: Kit, client: Client) -> None:
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    kit.node.batch.end()
    client.peer.receive()


@pytest.mark.pure
@pytest.mark.parametrize("kind, name, key, refused", [
    (c.ExchangeDelete, "x", "", None), (c.ExchangeDelete, "used", "", 530),
    (c.ExchangeUnbind, "x", "k", None), (c.ExchangeUnbind, "x", "none", 404),
])  # fmt: skip
def test_what_looks_at_everything_takes_turns(
    kit: Kit, client: Client, monkeypatch: pytest.MonkeyPatch, kind: type[Command], name: str, key: str,
    refused: int | None,
) -> None:  # fmt: skip
    """Others are served meanwhile, and a client that may not do it is refused before."""
    for each in (c.ExchangeDeclare("x", "direct"), c.ExchangeDeclare("used", "direct"), c.QueueDeclare("q")):
        client.call(each)
    for number in range(20):
        client.call(c.ExchangeBind("q", "x", f"k{number}"))
    client.call(c.ExchangeBind("q", "x", "k"))
    client.call(c.QueueDeclare("last", alternate_exchange="used"))
    add_user(kit, "eve", "nothing")
    eve = kit.peer(user="eve").session()
    monkeypatch.setattr(topology, "COMPARED", 1)
    kit.stopwatch.step = 1.0
    commands = [kind(name) if kind is c.ExchangeDelete else kind("q", name, key) for _ in range(2)]  # type: ignore[call-arg]
    waiting = kit.node.batch.slices.waiting
    begin(eve, commands[0])
    assert kit.node.batch.slices.waiting == waiting
    eve.peer.receive()
    assert eve.exception is not None
    assert eve.exception.error_code == 403
    number = begin(client, commands[1])
    assert kit.node.batch.slices.waiting == waiting + 1
    end(kit, client)
    assert (None if client.exception is None else client.exception.error_code) == refused
    assert (number in client.complete) is (refused is None)
    router = kit.node.vhosts["/"].router
    assert router.has_exchange(name) is (kind is c.ExchangeUnbind or refused is not None)


@pytest.mark.pure
def test_another_exchange_of_the_name_stays(kit: Kit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchange is deleted and declared again while all others are looked at."""
    client.call(c.ExchangeDeclare("x", "direct"))
    monkeypatch.setattr(topology, "COMPARED", 1)
    kit.stopwatch.step = 1.0
    begin(client, c.ExchangeDelete("x"))
    vhost = kit.node.vhosts["/"]
    list(vhost.deleting_exchange("x"))
    vhost.declare_exchange("x", "fanout", passive=False, durable=False, auto_delete=False, internal=False, arguments={})
    end(kit, client)
    assert client.exception is not None
    assert client.exception.error_code == 404
    assert vhost.router.exchange("x").type == "fanout"
