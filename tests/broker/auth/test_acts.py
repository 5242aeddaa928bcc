"""Every operation with every permission alone, over the wire of one node: what is refused, and with which words.

The refusal names the first permission that is missing, in the order of the table, whatever else is missing too. The
same and more runs against RabbitMQ in `tests/differential/permissions.py`, for what RabbitMQ has.
"""

from __future__ import annotations

import json
import re
from itertools import chain, combinations

import pytest

from harebell.broker.auth.acts import ACTS
from harebell.broker.auth.users import make_user
from harebell.broker.operations.system_services import SERVICES
from harebell.protocol.v091 import Properties, methods as m
from harebell.routing.definitions import Permission
from tests.broker.auth.operations import ROWS, Action, Ask, Needed, Publish
from tests.broker.kit import Client, NodeKit

RIGHTS = ("configure", "write", "read")
ALONE = tuple(chain.from_iterable(combinations(RIGHTS, count) for count in range(len(RIGHTS) + 1)))


@pytest.fixture
def world(kit: NodeKit) -> NodeKit:
    guest = kit.client()
    for name, arguments in (("q", {}), ("others", {}), ("dlx", {"x-dead-letter-exchange": "x"})):
        guest.call(m.QueueDeclare(name, arguments=dict(arguments)), m.QueueDeclareOk)
    for name, kind in (("x", "direct"), ("y", "fanout"), ("t", "topic")):
        guest.call(m.ExchangeDeclare(name, kind), m.ExchangeDeclareOk)
    delayed = m.ExchangeDeclare("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    guest.call(delayed, m.ExchangeDeclareOk)
    guest.publish("q", b"1")
    kit.node.users.put(make_user("u", "u", (), "rabbit_password_hashing_sha256"))
    return kit


def may(kit: NodeKit, vhost: str = "/", **patterns: str) -> None:
    configure, write, read = (patterns.get(right, "") for right in RIGHTS)
    kit.node.users.set_permission(Permission(vhost, "u", configure, write, read))


def ready(kit: NodeKit) -> Client:
    """A client of u that has an exclusive queue, and consumes direct replies."""
    may(kit, configure="^own$")
    client = kit.client(user="u")
    client.call(m.QueueDeclare("own", exclusive=True), m.QueueDeclareOk)
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "replies", no_ack=True), m.BasicConsumeOk)
    return client


def refusal(client: Client, action: Action) -> str | None:
    """Do it; the text of the refusal, by the channel's end or in a service's answer."""
    if isinstance(action, m.Method):
        client.send(1, action)
    elif isinstance(action, Publish):
        client.publish(action.key, exchange=action.exchange, headers=dict(action.headers))
    else:
        reply_to = "amq.rabbitmq.reply-to" if action.reply_to == "direct" else action.reply_to or None
        properties = Properties(reply_to=reply_to)
        client.engine.send_content(1, m.BasicPublish("amq.system", action.service), properties, action.data)
        client.pump()
    closes = client.take(m.ChannelClose)
    if closes:
        if closes[0].reply_code in (404, 406):
            return None  # it was allowed to ask
        assert closes[0].reply_code == 403
        return closes[0].reply_text.removeprefix("ACCESS_REFUSED - ")
    client.call(m.ChannelFlow(active=True), m.ChannelFlowOk)  # it is really open
    if isinstance(action, Ask) and action.reply_to:
        return refused_in(answer(client, action))
    return None


def answer(client: Client, action: Ask) -> bytes:
    """The body of a service's answer, where it went."""
    if action.reply_to == "direct":
        (body,) = [body for *_, body in client.deliveries()]
        return body
    queue = client.connection.vhost.queues.get(action.reply_to)
    if queue is None:
        return b""
    held = queue.take()
    assert held is not None, "no answer"
    return held.message.content.body


def refused_in(body: bytes) -> str | None:
    try:
        told = json.loads(body)
    except ValueError:
        return None
    if isinstance(told, dict) and told.get("error") == "access_refused":
        return str(told["reason"]).removeprefix("ACCESS_REFUSED - ")
    return None


def expected(needed: tuple[Needed, ...], *rights: str) -> str | None:
    return next((each.refusal for each in needed if each.right not in rights), None)


def state(kit: NodeKit) -> object:
    """What an operation may change, the answers that lie in queues included."""
    vhost = kit.node.vhosts["/"]
    return (
        {
            name: (queue.message_count, dict(queue.arguments), len(queue.consumers))
            for name, queue in vhost.queues.items()
        },
        sorted(each.name for each in vhost.router.exchanges),
        sorted(map(str, vhost.router.bindings())),
    )


@pytest.mark.repeats
@pytest.mark.parametrize(
    "name, rights",
    [
        pytest.param(name, rights, id=f"{name} with {' and '.join(rights) or 'nothing'}")
        for name in ROWS
        for rights in ALONE
    ],
)
def test_each_permission_alone(world: NodeKit, name: str, rights: tuple[str, ...]) -> None:
    action, needed = ROWS[name]
    client = ready(world)
    may(world, **dict.fromkeys(rights, ".*"))
    before = state(world)
    wanted = expected(needed, *rights)
    assert refusal(client, action) == wanted
    if wanted is not None:
        assert state(world) == before


@pytest.mark.parametrize(
    "name, missing",
    [
        pytest.param(name, missing, id=f"{name} without {missing.right} {missing.name}")
        for name, (_, needed) in ROWS.items()
        for missing in needed
    ],
)
def test_each_object_but_one(world: NodeKit, name: str, missing: Needed) -> None:
    """The permissions name their objects exactly: one is left out, then it is there."""
    action, needed = ROWS[name]
    client = ready(world)
    for without, wanted in ((missing, missing.refusal), (None, None)):
        may(
            world,
            **{
                right: "|".join(
                    f"^{re.escape(each.name)}$" for each in needed if each.right == right and each != without
                )
                for right in RIGHTS
            },
        )
        if wanted is None and client.connection.channels.get(1) is None:
            client.send(1, m.ChannelCloseOk())
            client.open()
            client.call(m.BasicConsume("amq.rabbitmq.reply-to", "again", no_ack=True), m.BasicConsumeOk)
        assert refusal(client, action) == wanted


@pytest.mark.parametrize("name", ROWS)
def test_permissions_in_another_virtual_host(world: NodeKit, name: str) -> None:
    action, needed = ROWS[name]
    world.node.new_vhost("elsewhere")
    client = ready(world)
    world.node.users.clear_permission("/", "u")
    may(world, "elsewhere", **dict.fromkeys(RIGHTS, ".*"))
    assert refusal(client, action) == expected(needed)


def test_every_service_is_in_the_table() -> None:
    asked = {action.service for action, _ in ROWS.values() if isinstance(action, Ask)}
    assert asked | {"amq.administer"} == set(SERVICES)  # which is by tag: test_administration


def test_the_rights_of_acts_are_rights() -> None:
    assert {need.right for needs in ACTS.values() for need in needs} == set(RIGHTS)
