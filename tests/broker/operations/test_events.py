"""The event exchange. That RabbitMQ's plugin says the same is in tests/differential."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harebell.broker.auth.users import make_user
from harebell.broker.operations.events import Events
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.definitions import Permission, TopicPermission, User, VirtualHost
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path / "data", events=True)
    yield kit
    kit.stop()


@pytest.fixture
def watcher(kit: NodeKit) -> Client:
    client = kit.client()
    client.declare("events")
    client.call(m.QueueBind("events", "amq.rabbitmq.event", "#"), m.QueueBindOk)
    told(client)
    return client


def told(watcher: Client) -> list[tuple[str, Table]]:
    found = []
    while (event := watcher.get("events")) is not None:
        method, properties = event.decode_method(), event.decode_properties()
        assert isinstance(method, m.BasicGetOk)
        headers = dict(properties.headers or {})
        assert isinstance(headers.pop("timestamp_in_ms"), int)
        assert properties.timestamp is not None
        assert (properties.delivery_mode, event.body) == (2, b"")
        found.append((method.routing_key, headers))
    return found


def names(watcher: Client) -> list[str]:
    return [name for name, _ in told(watcher)]


def events(kit: NodeKit) -> Events:
    listener = kit.node.events
    assert isinstance(listener, Events)
    return listener


def test_off_there_is_no_such_exchange(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path / "off")
    client = kit.client()
    close = client.call(m.ExchangeDeclare("amq.rabbitmq.event", "topic", passive=True), m.ChannelClose)
    assert close.reply_code == 404
    events(kit).emit("nothing", {})
    kit.stop()


def test_a_connection_from_its_login_to_its_end(kit: NodeKit, watcher: Client) -> None:
    client = kit.client()
    client.send(1, m.BasicConsume("events", "c"))
    client.send(0, m.ConnectionClose(200, "", 0, 0))
    client.connection.lost()
    while watcher.get("events", no_ack=False) is not None:  # what the consumer had came back
        pass
    watcher.send(1, m.BasicNack(0, multiple=True, requeue=True))
    found = dict(told(watcher))
    assert list(found) == [
        "user.authentication.success", "connection.created", "channel.created", "consumer.created",
        "consumer.deleted", "channel.closed", "connection.closed",
    ]  # fmt: skip
    created, channel = found["connection.created"], found["channel.created"]
    assert channel["connection"] == created["pid"] == found["connection.closed"]["pid"]
    assert found["channel.closed"]["pid"] == channel["pid"] == found["consumer.created"]["channel"]
    assert (created["name"], created["peer_host"], created["peer_port"], created["port"]) == (
        "127.0.0.1:1 -> 127.0.0.1:5672", "{127,0,0,1}", 1, 5672,
    )  # fmt: skip
    assert created["client_properties"] == [
        '{<<"capabilities">>,table,[{<<"consumer_cancel_notify">>,bool,true}]}',
    ]  # fmt: skip


def test_queues_exchanges_and_bindings(watcher: Client) -> None:
    watcher.call(m.ExchangeDeclare("x", "fanout", auto_delete=True), m.ExchangeDeclareOk)
    watcher.declare("q", x_expires=1000)
    watcher.declare("q", x_expires=1000)
    watcher.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
    watcher.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
    watcher.call(m.QueueDelete("q"), m.QueueDeleteOk)
    found = told(watcher)
    assert [name for name, _ in found] == [
        "exchange.created", "queue.created", "binding.created", "exchange.deleted", "binding.deleted", "queue.deleted",
    ]  # fmt: skip
    assert found[1][1] == {
        "vhost": "/", "name": "q", "durable": True, "auto_delete": False, "exclusive": False, "owner_pid": "",
        "arguments": ['{<<"x-expires">>,signedint,1000}'], "user_who_performed_action": "guest",
    }  # fmt: skip


def test_what_nobody_asked_for_is_the_brokers_own_doing(kit: NodeKit, watcher: Client) -> None:
    watcher.declare("q", x_expires=1000)
    kit.pass_time(1000)
    assert told(watcher)[-1] == (
        "queue.deleted", {"vhost": "/", "name": "q", "user_who_performed_action": "rmq-internal"},
    )  # fmt: skip


def test_policies(kit: NodeKit, watcher: Client) -> None:
    policies = kit.node.vhosts["/"].policies
    policy = Policy("/", "p", "^z", {"max-length": 5})
    policies.set(policy)
    policies.clear("p")
    policies.clear("p")
    policies.set(policy, operator=True)
    policies.clear("p", operator=True)
    found = told(watcher)
    assert [name for name, _ in found] == [
        "policy.set", "policy.cleared", "parameter.set", "policy.set", "parameter.cleared", "operator.policy.cleared",
    ]  # fmt: skip
    assert found[0][1] == {
        "name": "p", "vhost": "/", "pattern": "^z", "definition": {"max-length": 5}, "priority": 0, "apply-to": "all",
        "user_who_performed_action": "rmq-internal",
    }  # fmt: skip


def test_users(kit: NodeKit, watcher: Client) -> None:
    users = kit.node.users
    users.put(User("u", "", tags=("management",), limits={"max-channels": 1}))
    users.put(User("u", "", tags=("management",), limits={"max-channels": 1}))
    users.put(make_user("u", "one", ("management",)))
    users.put(replace(users.users["u"], tags=()))
    users.set_permission(Permission("/", "u", "c", "w", "r"))
    users.set_topic_permission(TopicPermission("/", "u", "amq.topic", "w", "r"))
    users.set_topic_permission(TopicPermission("/", "u", "amq.fanout", "w", "r"))
    users.clear_topic_permission("/", "u", "amq.topic")
    users.remove("u")
    by = {"user_who_performed_action": "rmq-internal"}
    where = {"vhost": "/", "user": "u", **by}
    assert told(watcher) == [
        ("user.created", {"name": "u", **by}),
        ("user.tags.set", {"name": "u", "tags": ["management"], **by}),
        ("user.limits.set", {"name": "limits", "username": "u", "max-channels": 1, **by}),
        ("user.password.changed", {"name": "u", **by}),
        ("user.limits.cleared", {"name": "limits", "username": "u", **by}),
        ("user.tags.set", {"name": "u", "tags": [], **by}),
        ("permission.created", {"configure": "c", "write": "w", "read": "r", **where}),
        ("topic.permission.created", {"exchange": "amq.topic", "write": "w", "read": "r", **where}),
        ("topic.permission.created", {"exchange": "amq.fanout", "write": "w", "read": "r", **where}),
        ("topic.permission.deleted", where),
        ("user.deleted", {"name": "u", **by}),
    ]


def test_a_virtual_host_with_everything_about_it(kit: NodeKit, watcher: Client) -> None:
    kit.node.add_vhost(VirtualHost("v", "text", ("a", "b"), "quorum", limits={"max-queues": 1}))
    kit.node.add_vhost(VirtualHost("v", "another text"))
    kit.node.batch.end()
    found = [(name, headers) for name, headers in told(watcher) if not name.startswith("exchange")]
    assert [name for name, _ in found] == ["vhost.created", "parameter.set", "vhost.limits.set"]
    assert found[0][1] == {
        "name": "v", "description": "text", "tags": ["a", "b"], "default_queue_type": "quorum", "tracing": False,
        "metadata": '#{description => <<"text">>,tags => [a,b],default_queue_type => <<"quorum">>}',
        "cluster_state": {kit.node.name: "running"}, "user_who_performed_action": "rmq-internal",
    }  # fmt: skip


def test_without_its_virtual_host_nothing_is_told(kit: NodeKit, watcher: Client) -> None:
    kit.node.delete_vhost("/")
    kit.node.raise_alarm("memory")
    assert kit.node.vhosts == {}


def test_alarms(kit: NodeKit, watcher: Client) -> None:
    kit.node.raise_alarm("memory")
    kit.node.raise_alarm("memory")
    kit.node.clear_alarm("memory")
    kit.node.clear_alarm("memory")
    node = kit.node.name
    assert told(watcher) == [
        ("alarm.set", {"source": "memory", "node": node}), ("alarm.cleared", {"source": "memory", "node": node}),
    ]  # fmt: skip


def test_a_refused_login(kit: NodeKit, watcher: Client) -> None:
    client = kit.client()
    told(watcher)
    client.connection.transport.peer = "[::1]:7"
    client.connection.node.events.authenticated(client.connection, "PLAIN", "eve", "user 'eve' - invalid credentials")
    kit.node.batch.end()
    ((name, headers),) = told(watcher)
    assert (name, headers["name"], headers["error"]) == (
        "user.authentication.failure", "eve", "user 'eve' - invalid credentials",
    )  # fmt: skip
    assert (headers["peer_host"], headers["peer_port"]) == ("{0,0,0,0,0,0,0,1}", 7)
    client.connection.transport.peer = "a socket of this machine"
    client.connection.node.events.authenticated(client.connection, "PLAIN", "eve", "no")
    kit.node.batch.end()
    ((_, headers),) = told(watcher)
    assert headers["peer_host"] == "unknown"


def test_events_of_others(kit: NodeKit, watcher: Client) -> None:
    events(kit).emit("user.created", {"name": "u", "user_who_performed_action": "guest"})
    kit.node.batch.end()
    assert told(watcher) == [("user.created", {"name": "u", "user_who_performed_action": "guest"})]


def test_a_consumer_hears_of_them_at_once(kit: NodeKit, watcher: Client) -> None:
    watcher.send(1, m.BasicConsume("events", "c", no_ack=True))
    kit.node.raise_alarm("disk")
    watcher.receive()
    assert len(watcher.deliveries()) == 2  # the consumer itself, and the alarm
