"""Several virtual hosts in one node: what they keep apart, what they are told, and what goes with one."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harebell.broker import Broker, vhost as vhost_module
from harebell.broker.store.stream_log.log import StreamLog
from harebell.errors import InvalidArgument, NotFound
from harebell.protocol.v091 import Content, Table, methods as m
from harebell.routing import definitions, to_queue
from harebell.routing.policies import Policy
from harebell.routing.steps import complete
from tests.broker.disk_node import DiskNode
from tests.broker.kit import Client, NodeKit

STREAM: Table = {"x-queue-type": "stream"}
LEASE: Table = {"x-expires": 1000}


def add(kit: NodeKit, name: str = "v", **rest: Any) -> None:
    kit.node.add_vhost(definitions.VirtualHost(name, **rest))
    let_in(kit, name)


def let_in(kit: NodeKit, vhost: str) -> None:
    kit.node.users.set_permission(definitions.Permission(vhost, "guest", ".*", ".*", ".*"))


def declare(client: Client, name: str = "q", **rest: Any) -> m.QueueDeclareOk:
    return client.call(m.QueueDeclare(name, **rest), m.QueueDeclareOk)


def refusal(client: Client, method: m.Method) -> tuple[int, str]:
    client.send(1, method)
    (close,) = client.take(m.ChannelClose)
    client.send(1, m.ChannelCloseOk())
    client.open()
    client.events.clear()
    return close.reply_code, close.reply_text


def test_queues_exchanges_and_messages_are_apart(kit: NodeKit) -> None:
    add(kit)
    here, there = kit.client(), kit.client(vhost="v")
    declare(here)
    assert refusal(there, m.QueueDeclare("q", passive=True)) == (404, "NOT_FOUND - no queue 'q' in vhost 'v'")
    declare(there, durable=True)  # another queue, so other properties are no conflict
    here.call(m.ExchangeDeclare("x", "fanout"), m.ExchangeDeclareOk)
    assert refusal(there, m.QueueBind("q", "x"))[1] == "NOT_FOUND - no exchange 'x' in vhost 'v'"
    there.publish("q", b"there")
    assert (here.count(), there.count()) == (0, 1)
    there.call(m.QueueDelete("q"), m.QueueDeleteOk)
    assert here.count() == 0


def test_policies_are_apart(kit: NodeKit) -> None:
    add(kit)
    here, there = kit.client(), kit.client(vhost="v")
    kit.node.vhosts["v"].policies.set(Policy("v", "p", "", {"max-length": 1}))
    for client in (here, there):
        declare(client)
        client.publish("q")
        client.publish("q")
    assert (here.count(), there.count()) == (2, 1)


def test_a_reply_address_is_of_one_virtual_host(kit: NodeKit) -> None:
    add(kit)
    asking, there = kit.client(), kit.client(vhost="v")
    asking.call(m.BasicConsume("amq.rabbitmq.reply-to", "c", no_ack=True), m.BasicConsumeOk)
    declare(asking)
    asking.publish("q", reply_to="amq.rabbitmq.reply-to")
    request = asking.get()
    assert isinstance(request, Content)
    address = str(request.decode_properties().reply_to)
    there.publish(address, b"from elsewhere")
    asking.receive()
    assert asking.deliveries() == []
    assert refusal(there, m.QueueDeclare(address, passive=True))[0] == 404
    kit.client().publish(address, b"from here")
    asking.receive()
    assert [body for _, _, body in asking.deliveries()] == [b"from here"]


def test_exclusive_queues_of_the_same_name(kit: NodeKit) -> None:
    add(kit)
    here, there = kit.client(), kit.client(vhost="v")
    declare(here, exclusive=True)
    declare(there, exclusive=True)
    here.send(0, m.ConnectionClose(200, ""))
    assert "q" not in kit.node.vhosts["/"].queues
    assert "q" in kit.node.vhosts["v"].queues


def test_an_unknown_virtual_host(kit: NodeKit) -> None:
    (close,) = kit.client(vhost="nope").take(m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - vhost nope not found")
    assert (close.class_id, close.method_id) == (10, 40)


def test_deleting_one_ends_its_connections_and_no_other(kit: NodeKit) -> None:
    add(kit)
    here, there = kit.client(), kit.client(vhost="v")
    declare(there, "mine", exclusive=True)
    declare(there, "consumed")
    there.call(m.BasicConsume("consumed", "c"), m.BasicConsumeOk)
    there.publish("consumed", b"unacknowledged")
    there.events.clear()
    vhost = kit.node.vhosts["v"]
    kit.node.delete_vhost("v")
    there.receive()
    (close,) = there.take(m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
    assert vhost.queues == {}
    assert declare(here).queue == "q"
    assert kit.client(vhost="v").take(m.ConnectionClose)[0].reply_code == 530
    there.send(0, m.ConnectionCloseOk())
    assert there.transport.closed == 0


def test_one_made_again_is_empty(kit: NodeKit) -> None:
    for _ in range(2):
        add(kit, limits={"max-queues": 1})
        client = kit.client(vhost="v")
        assert declare(client, "q").message_count == 0
        client.call(m.ExchangeDeclare("x", "topic", auto_delete=True), m.ExchangeDeclareOk)
        client.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
        client.publish("k", exchange="x")
        assert client.count() == 1
        kit.node.users.set_permission(definitions.Permission("v", "guest", "", "", ""))
        kit.node.users.set_topic_permission(definitions.TopicPermission("v", "guest", "x", "", ""))
        kit.node.delete_vhost("v")
        assert kit.node.parameters.parameters == {}
        assert all(vhost != "v" for vhost, *_ in (*kit.node.users.permissions, *kit.node.users.topic_permissions))


def test_a_delayed_message_does_not_outlive_it(kit: NodeKit) -> None:
    add(kit)
    client = kit.client(vhost="v")
    declare(client)
    client.call(
        m.ExchangeDeclare("x", "x-delayed-message", arguments={"x-delayed-type": "fanout"}), m.ExchangeDeclareOk
    )
    client.call(m.QueueBind("q", "x"), m.QueueBindOk)
    client.publish("", exchange="x", headers={"x-delay": 1000})
    kit.node.delete_vhost("v")
    add(kit)
    client = kit.client(vhost="v")
    declare(client)
    kit.pass_time(2000)
    assert client.count() == 0


def test_there_is_none_to_delete(kit: NodeKit) -> None:
    with pytest.raises(NotFound, match="no vhost 'nope'"):
        kit.node.delete_vhost("nope")


def test_the_first_one_can_go_too(kit: NodeKit) -> None:
    kit.node.delete_vhost("/")
    assert kit.client().take(m.ConnectionClose)[0].reply_code == 530


def test_streams_bring_their_virtual_host_back_and_go_with_it(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    add(kit, description="logs")
    client = kit.client(vhost="v")
    declare(client, "s", durable=True, arguments=STREAM)
    client.publish("s", b"kept")
    kit.stop()
    kit = NodeKit(tmp_path)
    let_in(kit, "v")
    assert declare(kit.client(vhost="v"), "s", durable=True, arguments=STREAM).message_count == 1
    add(kit, description="logs")  # defined again: it finds its streams
    assert kit.node.vhosts["v"].definition.description == "logs"
    assert list(kit.node.vhosts["v"].queues) == ["s"]
    kit.node.delete_vhost("v")
    kit.stop()
    assert list((tmp_path / "streams").iterdir()) == []
    kit = NodeKit(tmp_path)
    assert list(kit.node.vhosts) == ["/"]
    kit.stop()


def test_a_disk_that_will_not_let_go_of_a_stream(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Iterator[None]:
        raise OSError(5, "Input/output error")
        yield

    add(kit)
    client = kit.client()
    declare(kit.client(vhost="v"), "s", durable=True, arguments=STREAM)
    monkeypatch.setattr(StreamLog, "delete", refuse)
    kit.node.delete_vhost("v")
    client.receive()
    assert client.take(m.ConnectionClose)[0].reply_code == 541
    assert list(kit.node.vhosts) == ["/"]


def test_what_is_said_of_it_is_kept_and_changed(kit: NodeKit) -> None:
    add(kit, metadata={"description": "of 3.10", "tags": ["a"], "default_queue_type": "undefined"})
    vhost = kit.node.vhosts["v"]
    assert (vhost.definition.description, vhost.definition.tags) == ("of 3.10", ("a",))
    assert vhost.definition.default_queue_type is None
    add(kit, description="new", tags=("b",), tracing=True)
    assert kit.node.vhosts["v"] is vhost
    assert (vhost.definition.description, vhost.definition.tags, vhost.definition.tracing) == ("new", ("b",), True)


@pytest.mark.parametrize(
    "flags, kind",
    [
        ({"durable": True}, "quorum"),
        ({}, "classic"),
        ({"durable": True, "exclusive": True}, "classic"),
        ({"durable": True, "auto_delete": True}, "classic"),
        ({"durable": True, "arguments": {"x-queue-type": "classic"}}, "classic"),
        ({"durable": True, "arguments": STREAM}, "stream"),
    ],
)
def test_the_default_queue_type(kit: NodeKit, flags: dict[str, Any], kind: str) -> None:
    add(kit, default_queue_type="quorum")
    client = kit.client(vhost="v")
    for _ in range(2):  # the second declaration finds it equal
        declare(client, **flags)
    assert kit.node.vhosts["v"].queues["q"].type == kind


def test_a_default_type_that_no_server_named_queue_has(kit: NodeKit) -> None:
    add(kit, default_queue_type="quorum")
    code, text = refusal(kit.client(vhost="v"), m.QueueDeclare("", durable=True))
    assert (code, "Cannot declare a server-named queue for type rabbit_quorum_queue" in text) == (406, True)


def test_a_default_type_is_in_the_arguments(kit: NodeKit) -> None:
    """As in RabbitMQ: whoever declares it when the default has changed is told what differs."""
    add(kit, default_queue_type="classic")
    client = kit.client(vhost="v")
    declare(client, durable=True)
    assert kit.node.vhosts["v"].queues["q"].arguments == {"x-queue-type": "classic"}
    add(kit, default_queue_type="quorum")
    assert (
        "inequivalent arg 'x-queue-type' for queue 'q' in vhost 'v'"
        in refusal(client, m.QueueDeclare("q", durable=True))[1]
    )


def test_a_default_type_that_is_none(kit: NodeKit) -> None:
    with pytest.raises(InvalidArgument, match="vhost 'v': default queue type 'zork' is none of classic, quorum"):
        add(kit, default_queue_type="zork")
    assert "v" not in kit.node.vhosts


async def test_the_brokers_own_calls() -> None:
    async with Broker(port=None) as broker:
        broker.add_vhost("v", description="d", tags=["t"], default_queue_type="quorum")
        broker.add_vhost("w", user=None)
        assert [user for vhost, user in broker.node.users.permissions if vhost != "/"] == ["guest"]
        with pytest.raises(NotFound, match="no user 'nobody'"):
            broker.add_vhost("z", user="nobody")
        assert set(broker.node.vhosts) == {"/", "v", "w"}
        described = broker.node.vhosts["v"].definition
        assert (described.description, described.tags, described.default_queue_type) == ("d", ("t",), "quorum")
        broker.delete_vhost("v")
        with pytest.raises(NotFound):
            broker.delete_vhost("v")


@pytest.fixture
def many(kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A queue "many" with twenty bindings to the exchange "e", and few of them are removed in one step."""
    monkeypatch.setattr(vhost_module, "BINDINGS", 2)
    monkeypatch.setattr(vhost_module, "FEW_BINDINGS", 4)
    client.declare("others")
    client.call(m.QueueBind("others", "amq.fanout"), m.QueueBindOk)
    alternate: Table = {"alternate-exchange": "amq.fanout"}
    client.call(m.ExchangeDeclare("e", "direct", durable=True, arguments=alternate), m.ExchangeDeclareOk)
    client.call(m.QueueDeclare("many", durable=True), m.QueueDeclareOk)
    for number in range(20):
        client.call(m.QueueBind("many", "e", str(number)), m.QueueBindOk)
    return client


def bindings_on_disk(kit: NodeKit) -> int:
    return sum(binding.source == "e" for binding in kit.node.catalog.load().definitions.bindings)


DELETIONS: dict[str, tuple[m.Method, type[m.Method]]] = {
    "queue": (m.QueueDelete("many"), m.QueueDeleteOk),
    "unused queue": (m.QueueDelete("many", if_unused=True), m.QueueDeleteOk),
    "empty queue": (m.QueueDelete("many", if_empty=True), m.QueueDeleteOk),
    "exchange": (m.ExchangeDelete("e"), m.ExchangeDeleteOk),
}


@pytest.mark.parametrize("kind", DELETIONS)
def test_an_object_with_many_bindings_is_deleted_in_steps(kit: NodeKit, many: Client, kind: str) -> None:
    request, answer = DELETIONS[kind]
    is_queue = kind != "exchange"
    other = kit.client()
    kit.stopwatch.step = 1.0
    many.send(1, request)
    left = []
    vhost = kit.node.vhosts["/"]
    while not kit.node.batch.slices.idle:
        left.append(len(vhost.router.bindings_to(to_queue("many"))))
        assert not many.take(answer)
        assert ("many" in vhost.queues) is not is_queue
        assert bindings_on_disk(kit) == (0 if is_queue else 20), "what a kill leaves is whole, or gone"
        other.publish(str(len(left) % 20), exchange="e")
        kit.node.batch.slices._turn()
        many.receive()
    kit.stopwatch.step = 0.0
    many.receive()
    assert len(many.take(answer)) == 1
    assert len(left) > 5
    assert left == sorted(left, reverse=True)
    assert vhost.router.bindings_to(to_queue("many")) == ()
    assert bindings_on_disk(kit) == 0
    assert ("many" in vhost.queues) is not is_queue
    reached = {name: queue.message_count for name, queue in vhost.queues.items()}
    assert sum(reached.values()) == len(left), "a route to a queue that is deleted leads to the alternate exchange"


def test_a_queue_declared_while_bindings_of_its_name_are_removed_has_none(kit: NodeKit, many: Client) -> None:
    other = kit.client()
    kit.stopwatch.step = 1.0
    many.send(1, m.QueueDelete("many", if_unused=True))
    kit.node.batch.slices._turn()
    vhost = kit.node.vhosts["/"]
    assert vhost.router.bindings_to(to_queue("many"))
    other.call(m.QueueDeclare("many"), m.QueueDeclareOk)
    assert vhost.router.bindings_to(to_queue("many")) == ()
    other.call(m.QueueBind("many", "e", "19"), m.QueueBindOk)
    while not kit.node.batch.slices.idle:
        kit.node.batch.slices._turn()
    many.receive()
    assert len(many.take(m.QueueDeleteOk)) == 1
    assert [each.binding_key for each in vhost.router.bindings_to(to_queue("many"))] == ["19"]
    other.publish("19", exchange="e")
    assert vhost.queues["many"].message_count == 1


@pytest.mark.parametrize("arguments", [
    LEASE, {**LEASE, "x-queue-type": "quorum"}, {**LEASE, "x-message-deduplication": True},
    {**LEASE, "x-max-priority": 3, "x-alert-length": 1}, {**LEASE, "x-message-group": "g"}, STREAM,
])  # fmt: skip
def test_a_queue_that_cannot_be_made_takes_nothing_from_the_next_of_its_name(arguments: Table) -> None:
    for after in range(10):
        node = DiskNode()
        timers, files = alive(node), node.disk.open_files
        node.disk.fail(after, errno.EIO)
        node.client.send(1, m.QueueDeclare("q", durable=True, arguments=arguments))
        node.disk.heal()
        if not node.client.take(m.ConnectionClose):
            assert after, "the disk was asked"
            node.close()
            return
        assert list(node.node.vhosts["/"].queues) == []
        assert (alive(node), node.disk.open_files) == (timers, files), "its lease has ended with it"
        assert node.disk.listdir(f"{node.folder.name}/streams") == []
        client = Client(node.node)
        declare(client, durable=True)
        client.publish("q", b"precious")
        node.node.timers.now.now += 10_000  # type: ignore[attr-defined]
        node.node.run_timers()
        assert client.count() == 1
        node.close()
    raise AssertionError("10 calls are not enough")


def alive(node: DiskNode) -> int:
    """The number of timers that will ring."""
    return sum(timer.callback is not None for _, _, timer in node.node.timers._heap)


def test_a_queue_is_deleted_and_not_the_next_of_its_name(kit: NodeKit) -> None:
    client = kit.client()
    declare(client)
    vhost = kit.node.vhosts["/"]
    gone = vhost.queues["q"]
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    declare(client)
    client.publish("q", b"precious")
    for deleted in (True, False):
        gone.deleted = deleted  # whatever is known of it
        complete(vhost.deleting_queue(gone))
    assert client.count() == 1
