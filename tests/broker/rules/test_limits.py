"""Limits of virtual hosts and users; that texts and codes are RabbitMQ's is tests/differential/test_limits.py's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harebell.broker import Broker
from harebell.broker.rules.limits import set_user_limits
from harebell.config import Limits
from harebell.errors import InvalidArgument, NotFound
from harebell.protocol.v091 import methods as m
from harebell.routing import definitions
from harebell.routing.definitions import Parameter
from tests.broker.kit import Client, NodeKit


@pytest.fixture(autouse=True)
def vhost(kit: NodeKit) -> None:
    kit.node.add_vhost(definitions.VirtualHost("v"))
    kit.node.users.set_permission(definitions.Permission("v", "guest", ".*", ".*", ".*"))


def limit(kit: NodeKit, **limits: int) -> None:
    kit.node.parameters.set_limits("v", {name.replace("_", "-"): value for name, value in limits.items()})


def limit_user(kit: NodeKit, **limits: int) -> None:
    set_user_limits(kit.node.users, "guest", {name.replace("_", "-"): value for name, value in limits.items()})


def let_in(client: Client) -> bool:
    return not client.take(m.ConnectionClose)


def test_connections_of_a_virtual_host(kit: NodeKit) -> None:
    limit(kit, max_connections=1)
    first = kit.client(vhost="v")
    assert let_in(first)
    assert not let_in(kit.client(vhost="v"))
    assert let_in(kit.client())
    first.send(0, m.ConnectionClose(200, ""))
    assert let_in(kit.client(vhost="v"))
    limit(kit, max_connections=0)
    assert not let_in(kit.client(vhost="v"))
    for unlimited in (-1, -2):
        limit(kit, max_connections=unlimited)
        assert let_in(kit.client(vhost="v"))
    limit(kit)
    assert let_in(kit.client(vhost="v"))


def test_connections_of_a_user_in_all_virtual_hosts(kit: NodeKit) -> None:
    limit_user(kit, max_connections=1)
    first = kit.client()
    assert let_in(first)
    assert not let_in(kit.client(vhost="v"))
    first.connection.lost()
    assert let_in(kit.client(vhost="v"))


def test_channels_of_a_user_on_all_connections(kit: NodeKit) -> None:
    limit_user(kit, max_channels=3)
    first, second = kit.client(), kit.client(vhost="v")
    first.open(2)
    second.open(2)
    (close,) = second.take(m.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 0, 0)
    first.events.clear()
    first.open(3)  # the channel of the other one went with its connection
    assert not first.take(m.ConnectionClose)
    first.open(4)
    assert first.take(m.ConnectionClose)


def test_queues_of_a_virtual_host(kit: NodeKit) -> None:
    limit(kit, max_queues=1)
    client = kit.client(vhost="v")
    client.call(m.QueueDeclare("q", exclusive=True), m.QueueDeclareOk)
    client.call(m.QueueDeclare("q", exclusive=True), m.QueueDeclareOk)
    client.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
    client.send(1, m.QueueDeclare("another"))
    assert client.take(m.ChannelClose)[0].reply_code == 406
    assert list(kit.node.vhosts["v"].queues) == ["q"]


def test_user_limits_not_named_stay(kit: NodeKit) -> None:
    limit_user(kit, max_connections=5)
    limit_user(kit, max_channels=6)
    assert kit.node.users.users["guest"].limits == {"max-connections": 5, "max-channels": 6}


@pytest.mark.parametrize(
    "limits, text",
    [
        ({"max-foo": 1}, 'Unrecognised terms [{<<"max-foo">>,1}] in '),
        ({"max-connections": "a"}, 'max-connections should be a number, actually was <<"a">>'),
        ({"max-connections": 1.5}, "max-connections should be a number, actually was 1.5"),
        ({"max-connections": True}, "max-connections should be a number, actually was true"),
    ],
)
def test_limits_that_are_none(kit: NodeKit, limits: Mapping[str, int], text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        kit.node.parameters.set_limits("v", limits)
    assert str(refused.value).startswith(f"Validation failed\n\n{text}")
    with pytest.raises(InvalidArgument) as refused:
        set_user_limits(kit.node.users, "guest", limits)
    assert str(refused.value).startswith(text)
    assert kit.node.vhosts["v"].limits == {}


@pytest.mark.parametrize(
    "parameter, text",
    [
        (Parameter("v", "vhost-limits", "other", {}), "the name must be 'limits'"),
        (Parameter("v", "vhost-limits", "limits", [1]), "the value must be an object"),
        (Parameter("v", "policy", "p", {}), "policies may not be set using this method"),
        (Parameter("v", "operator_policy", "p", {}), "policies may not be set using this method"),
    ],
)
def test_parameters_that_are_none(kit: NodeKit, parameter: Parameter, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        kit.node.parameters.set(parameter)


def test_parameters_are_kept_by_name(kit: NodeKit) -> None:
    parameters = kit.node.parameters
    shovel = Parameter("v", "shovel", "s", {"src-queue": "q"})
    parameters.set(shovel)
    assert parameters.parameters["v", "shovel", "s"] == shovel
    assert parameters.clear("v", "shovel", "s")
    assert not parameters.clear("v", "shovel", "s")
    parameters.set_global(definitions.GlobalParameter("g", None))
    assert parameters.clear_global("g")
    assert not parameters.clear_global("g")
    with pytest.raises(NotFound, match="no vhost 'nope'"):
        parameters.set(Parameter("nope", "shovel", "s", {}))


async def test_the_brokers_own_calls() -> None:
    async with Broker(port=None) as broker:
        broker.set_vhost_limits("/", {"max-queues": 0})
        broker.set_user_limits("guest", {"max-channels": 7})
        assert broker.node.vhosts["/"].limits == {"max-queues": 0}
        assert broker.node.users.users["guest"].limits == {"max-channels": 7}
        with pytest.raises(NotFound, match="no user 'nobody'"):
            broker.set_user_limits("nobody", {})
        with pytest.raises(NotFound, match="no vhost 'nope'"):
            broker.set_vhost_limits("nope", {})


# -- of the broker ---------------------------------------------------------------------------------------------------


def refusal(client: Client) -> str:
    return client.take(m.ConnectionClose)[0].reply_text


def test_connections_of_the_broker(kit: NodeKit) -> None:
    kit.node.set_limits(Limits(max_connections=1))
    first = kit.client()
    assert let_in(first)
    assert refusal(kit.client()) == "NOT_ALLOWED - connection refused: node connection limit (1) is reached"
    first.send(0, m.ConnectionClose(200, ""))
    assert let_in(kit.client())
    kit.node.set_limits(Limits())
    assert let_in(kit.client())


def test_consumers_of_a_channel(kit: NodeKit) -> None:
    kit.node.set_limits(Limits(max_consumers_per_channel=2))
    client = kit.client()
    client.open(2)
    client.declare()
    for tag in "ab":
        client.call(m.BasicConsume("q", tag), m.BasicConsumeOk)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk, 2)
    client.call(m.BasicCancel("a"), m.BasicCancelOk)
    client.call(m.BasicConsume("q", "d"), m.BasicConsumeOk)
    client.send(1, m.BasicConsume("q", "e"))
    assert refusal(client) == "NOT_ALLOWED - reached maximum (2) of consumers per channel"


def test_a_connection_keeps_what_it_agreed_on(kit: NodeKit) -> None:
    before = kit.client()
    kit.node.set_limits(Limits(max_message_size=10))
    before.declare()
    before.publish("q", b"x" * 11)
    after = kit.client()
    after.publish("q", b"x" * 11)
    assert [close.reply_code for close in after.take(m.ChannelClose)] == [406]
    assert before.count() == 1


def test_the_consumer_timeout_changes_at_once(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    client.publish("q", b"1")
    client.send(1, m.BasicConsume("q", "c"))
    kit.node.set_limits(Limits(consumer_timeout=10))
    kit.pass_time(15_000)
    assert client.take(m.BasicCancel)
    assert client.count() == 1
