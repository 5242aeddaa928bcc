"""Topic permissions, names that are no patterns, and what changes while a connection is open.

Each operation with each permission is in `test_acts`; the same and more runs against RabbitMQ in
`tests/differential/permissions.py`.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from harebell.broker.auth.users import make_user
from harebell.protocol.v091 import Properties, methods as m
from harebell.routing.definitions import Permission, TopicPermission
from tests.broker.auth.knock import Knock, admitted
from tests.broker.kit import Client, NodeKit


@pytest.fixture
def world(kit: NodeKit) -> NodeKit:
    guest = kit.client()
    guest.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    guest.call(m.QueueDeclare("dlx", arguments={"x-dead-letter-exchange": "x"}), m.QueueDeclareOk)
    for name, kind in (("x", "direct"), ("y", "fanout"), ("t", "topic")):
        guest.call(m.ExchangeDeclare(name, kind), m.ExchangeDeclareOk)
    kit.node.users.put(make_user("u", "u", (), "rabbit_password_hashing_sha256"))
    return kit


def allow(kit: NodeKit, *needed: str) -> None:
    """Exactly this."""
    patterns = {what: "|".join(f"^{each[2:]}$" for each in needed if each[0] == what) for what in "cwr"}
    kit.node.users.set_permission(Permission("/", "u", patterns["c"], patterns["w"], patterns["r"]))


def refusal(client: Client, action: m.Method | tuple[str, str], **properties: Any) -> str | None:
    """Do it; the text of the 403 that came."""
    if isinstance(action, m.Method):
        client.send(1, action)
    else:
        client.publish(action[1], exchange=action[0], **properties)
    closes = client.take(m.ChannelClose)
    if not closes:
        client.call(m.ChannelFlow(active=True), m.ChannelFlowOk)  # it is really open
        return None
    assert closes[0].reply_code == 403
    client.send(1, m.ChannelCloseOk())
    client.open()
    client.events.clear()
    return closes[0].reply_text


def test_a_name_that_the_server_makes_up_is_checked(world: NodeKit) -> None:
    allow(world, "c ")
    text = refusal(world.client(user="u"), m.QueueDeclare(""))
    assert text is not None
    assert "access to queue 'amq.gen-" in text
    allow(world, "c amq\\.gen-.*")
    assert refusal(world.client(user="u"), m.QueueDeclare("")) is None


@pytest.mark.parametrize("key, what, allowed", [
    (key, what, key in keys) for what, keys in (("publish", "wu"), ("bind", "r/")) for key in "wru/"
])  # fmt: skip
def test_topic_permissions(world: NodeKit, key: str, what: str, allowed: bool) -> None:
    allow(world, "c .*", "w .*", "r .*")
    world.node.users.set_topic_permission(TopicPermission("/", "u", "t", "^w$|^{username}$", "^r$|^{vhost}$"))
    for exchange, right in (("t", allowed), ("x", True)):
        action = (exchange, key) if what == "publish" else m.QueueBind("q", exchange, key)
        text = refusal(world.client(user="u"), action)
        assert (text is None) is right
        assert text is None or f"access to topic '{key}' in exchange 't' in vhost '/' refused for user 'u'" in text


@pytest.mark.parametrize("header, keys, allowed", [
    (header, keys, "no" not in keys) for header, keys in product(("CC", "BCC"), (["w"], ["no"], ["w", "no"]))
])  # fmt: skip
def test_topic_permissions_of_copies(world: NodeKit, header: str, keys: list[str], allowed: bool) -> None:
    allow(world, "c .*", "w .*", "r .*")
    world.node.users.set_topic_permission(TopicPermission("/", "u", "t", "^w$", ""))
    client = world.client(user="u")
    assert (refusal(client, ("t", "w"), headers={header: keys}) is None) is allowed
    assert refusal(client, ("x", "w"), headers={header: keys}) is None


def test_a_name_is_no_pattern(world: NodeKit) -> None:
    """A user called .* may not publish with every key where {username} is the pattern."""
    world.node.users.put(make_user(".*", ".*", (), "rabbit_password_hashing_sha256"))
    world.node.users.set_permission(Permission("/", ".*", ".*", ".*", ".*"))
    world.node.users.set_topic_permission(TopicPermission("/", ".*", "t", "^{username}$", ""))
    client = world.client(user=".*")
    assert refusal(client, ("t", ".*")) is None
    assert refusal(client, ("t", "w")) is not None


def test_a_change_holds_for_open_channels(world: NodeKit) -> None:
    allow(world, "w x", "r q")
    client = world.client(user="u")
    assert refusal(client, ("x", "k")) is None
    assert refusal(client, ("x", "k")) is None
    allow(world, "r q")
    assert refusal(client, ("x", "k")) is not None
    allow(world, "w .*")
    assert refusal(client, ("t", "k")) is None
    world.node.users.set_topic_permission(TopicPermission("/", "u", "t", "", ""))
    assert refusal(client, ("t", "k")) is not None
    world.node.users.clear_topic_permission("/", "u")
    assert refusal(client, ("t", "k")) is None
    world.node.users.clear_permission("/", "u")
    assert refusal(client, ("t", "k")) is not None
    assert refusal(client, m.BasicGet("q")) is not None


def test_a_consumer_that_may_no_longer_read_goes_on(world: NodeKit) -> None:
    """As with RabbitMQ: a permission is asked for when consuming begins."""
    allow(world, "r q")
    client = world.client(user="u")
    client.call(m.BasicConsume("q", "c", no_ack=True), m.BasicConsumeOk)
    allow(world)
    world.clients[0].publish("q", b"1")
    client.receive()
    assert [body for _, _, body in client.deliveries()] == [b"1"]


def test_a_refused_publication_loses_none_before_it(world: NodeKit) -> None:
    allow(world, "w amq.default")
    client = world.client(user="u")
    for exchange in ("", "", "x", ""):
        client.engine.send_content(1, m.BasicPublish(exchange, "q"), Properties(), b"1")
    client.pump()
    assert len(client.take(m.ChannelClose)) == 1
    assert world.clients[0].count() == 2


def test_removing_a_user_ends_its_connections(world: NodeKit) -> None:
    allow(world)
    client, guest = world.client(user="u"), world.clients[0]
    world.node.users.remove("u")
    client.receive()
    (close,) = client.take(m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - user 'u' is deleted")
    assert guest.count() == 0


@pytest.mark.parametrize("tags, allowed", [((), False), (("administrator",), False), (("impersonator",), True)])
def test_user_id_of_somebody_else(world: NodeKit, tags: tuple[str, ...], allowed: bool) -> None:
    world.node.users.put(make_user("u", "u", tags, "rabbit_password_hashing_sha256"))
    allow(world, "w amq.default")
    client = world.client(user="u")
    client.publish("q", user_id="u")
    client.publish("q", user_id="guest")
    assert [close.reply_code for close in client.take(m.ChannelClose)] == ([] if allowed else [406])
    assert world.clients[0].count() == (2 if allowed else 1)


def test_no_permission_in_the_vhost_at_all(world: NodeKit) -> None:
    knock = Knock(world)
    assert admitted(knock.plain("u", "u"))
    knock.say(m.ConnectionTuneOk(2047, 131_072, 0))
    (close,) = knock.say(m.ConnectionOpen("/"))
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - access to vhost '/' refused for user 'u'")
