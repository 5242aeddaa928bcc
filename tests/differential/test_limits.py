"""Limits of virtual hosts and users, on both brokers: who is refused, at which level, in which words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from harebell.protocol.v091 import methods as m
from harebell.routing.definitions import Permission, User, VirtualHost
from harebell.testing.rabbitmq import RabbitMQ
from tests.differential.driver import Login, Peer, Send, Step, run
from tests.fixtures.rabbitmq import NEWER
from tests.wire import BrokerThread

VHOSTS = {
    "none": {"max-connections": 0},
    "one": {"max-connections": 1},
    "queues": {"max-queues": 2},
    "noqueues": {"max-queues": 0},
    "free": {"max-connections": -1, "max-queues": -1},
    "doomed": {},
}
USERS = {
    "nobody": {"max-connections": 0},
    "single": {"max-connections": 1},
    "channels": {"max-channels": 2},
    "mute": {"max-channels": 0},
    "rich": {"max-connections": -1, "max-channels": -1},
}


@dataclass
class Pair:
    harebell: BrokerThread
    rabbitmq: RabbitMQ


@pytest.fixture(scope="module")
def brokers(rabbitmq_server: RabbitMQ) -> Iterator[Pair]:
    """Both with the virtual hosts and users above; everybody has all permissions everywhere."""
    with BrokerThread() as harebell:
        harebell.run(lambda: fill(harebell))
        rabbitmq_server.evaluate(", ".join(erlang()))
        yield Pair(harebell, rabbitmq_server)
        steps = [f'rabbit_vhost:delete(<<"{vhost}">>, <<"u">>)' for vhost in VHOSTS if vhost != "doomed"]
        steps += [f'rabbit_auth_backend_internal:delete_user(<<"{user}">>, <<"u">>)' for user in USERS]
        rabbitmq_server.evaluate(", ".join(steps))


def fill(harebell: BrokerThread) -> None:
    node = harebell.broker.node
    guest = node.users.users["guest"]
    for vhost, limits in VHOSTS.items():
        node.add_vhost(VirtualHost(vhost, limits=limits))
    for user, limits in USERS.items():  # with guest's password
        node.users.put(User(user, guest.password_hash, guest.hashing_algorithm))
        harebell.broker.set_user_limits(user, limits)
    for user in (*USERS, "guest"):
        for vhost in ("/", *VHOSTS):
            node.users.set_permission(Permission(vhost, user, ".*", ".*", ".*"))


def erlang() -> Iterator[str]:
    """The same for RabbitMQ, in one command: each takes seconds."""

    def json(limits: dict[str, int]) -> str:
        return "{" + ",".join(f'\\"{name}\\":{value}' for name, value in limits.items()) + "}"

    internal = "rabbit_auth_backend_internal"
    for vhost in VHOSTS:
        yield f'rabbit_vhost:add(<<"{vhost}">>, <<"u">>)'
    for user in USERS:
        yield f'{internal}:add_user(<<"{user}">>, <<"guest">>, <<"u">>)'
    for user in (*USERS, "guest"):
        for vhost in ("/", *VHOSTS):
            everything = ", ".join(['<<".*">>'] * 3)
            yield f'{internal}:set_permissions(<<"{user}">>, <<"{vhost}">>, {everything}, <<"u">>)'
    for vhost, limits in VHOSTS.items():
        yield f'rabbit_vhost_limit:parse_set(<<"{vhost}">>, <<"{json(limits)}">>, <<"u">>)'
    for user, limits in USERS.items():
        yield f'{internal}:set_user_limits(<<"{user}">>, <<"{json(limits)}">>, <<"u">>)'


def login(connection: str = "a", vhost: str = "/", user: str = "guest") -> Login:
    return Login(connection, vhost=vhost, response=f"\0{user}\0guest".encode())


def declare(name: str, connection: str = "a", **rest: Any) -> Send:
    return Send(connection, 1, m.QueueDeclare(name, **rest))


def channel(number: int, connection: str = "a") -> Send:
    """Opens the channel, which must work, before it asks for something."""
    return Send(connection, number, m.BasicQos(0, 1))


def refused_channel(number: int, connection: str = "a") -> Send:
    return Send(connection, number, m.ChannelOpen(), bare=True)


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "no connections at all": (login(vhost="none"),),
    "one connection": (login(vhost="one"), login("b", vhost="one"), login("c", vhost="free")),
    "queues": (
        login(vhost="queues"),
        declare("a"),
        declare("b", exclusive=True),
        declare("c"),
        declare("a"),
        declare("a", durable=True),
        declare("c", passive=True),
        declare(""),
        declare("amq.c"),
        Send("a", 1, m.QueueDeclare("e", durable=True, arguments={"x-queue-type": "stream"})),
        Send("a", 1, m.QueueDelete("a")),
        declare("c"),
    ),
    "a bad argument above the limit of queues": (
        login(vhost="noqueues"), Send("a", 1, m.QueueDeclare("d", arguments={"x-expires": -1})),
    ),
    "no queues": (login(vhost="noqueues"), declare("a"), declare("amq.rabbitmq.reply-to")),
    "below 0 is no limit": (
        login(vhost="free", user="rich"), login("b", vhost="free", user="rich"), channel(1), channel(2),
        declare("a", exclusive=True), declare("b", exclusive=True),
    ),
    "a user without connections": (login(user="nobody"),),
    "a user with one connection": (login(user="single"), login("b", "free", "single"), login("c", "free", "rich")),
    "a user without channels": (login(user="mute"), refused_channel(1)),
    "a user with two channels": (
        login(user="channels"), login("b", "free", "channels"), channel(1), channel(1, "b"), refused_channel(2, "b"),
        channel(2), refused_channel(3),
    ),
    "the virtual host is looked for first": (login(vhost="zzz", user="nobody"),),
    "its limit is looked at before the user's": (login(vhost="none", user="nobody"),),
}  # fmt: skip


MISNAMED = {"a user without channels": "mute", "a user with two channels": "channels"}
"""RabbitMQ 4.0 puts the node's name in the place of this user's."""
ONLY_NEWER = {"a bad argument above the limit of queues"}
"""RabbitMQ 4 looks at the arguments first, and so does Harebell; 3.10 at the limit."""


@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - ONLY_NEWER))
def test_same_refusals(brokers: Pair, name: str, version: str) -> None:
    user = MISNAMED.get(name) if version == NEWER else None
    alike = {brokers.rabbitmq.node_name: user} if user else {}
    ours, theirs = Peer(brokers.harebell.port), Peer(brokers.rabbitmq.port, alike=alike)
    try:
        run(SCRIPTS[name], ours, theirs)
        assert ours.trace == theirs.trace
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("version", [NEWER], indirect=True, scope="session")
@pytest.mark.parametrize("name", sorted(ONLY_NEWER))
def test_same_refusals_as_the_newer(brokers: Pair, name: str, version: str) -> None:
    test_same_refusals(brokers, name, version)


def test_a_virtual_host_is_deleted_under_its_connections(brokers: Pair) -> None:
    # A connection of RabbitMQ's may see the host's processes end first.
    ours, theirs = Peer(brokers.harebell.port), Peer(brokers.rabbitmq.port, alike={"is down": "is deleted"})
    try:
        steps = (login(vhost="doomed"), login("b", "doomed"), login("c", "free"), channel(1, "c"))
        run(steps, ours, theirs)
        brokers.harebell.run(lambda: brokers.harebell.broker.delete_vhost("doomed"))
        brokers.rabbitmq.evaluate('rabbit_vhost:delete(<<"doomed">>, <<"u">>)')
        run((channel(2, "c"), Login("d", vhost="doomed")), ours, theirs)
        assert "vhost 'doomed' is deleted" in ours.trace["a0"][-1]
        assert ours.trace == theirs.trace
    finally:
        ours.close()
        theirs.close()
