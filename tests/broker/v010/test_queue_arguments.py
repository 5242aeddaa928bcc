"""Arguments of queues by Qpid's names, declared in both dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from harebell.protocol.v010 import commands as c, structs as s
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.settings import queue_settings
from tests.broker.kit import Client as Client091
from tests.broker.v010.kit import Client, Kit
from tests.routing.test_qpid_arguments import MEANT, REFUSED

QPID = [cast("Table", arguments) for arguments, _ in MEANT if "strange" not in arguments]


def declare_091(kit: Kit, arguments: Table) -> int:
    """Declare q in 0-9-1. Returns the code of the refusal, or 0."""
    client = kit.client()
    client.send(1, m.QueueDeclare("q", durable=True, arguments=arguments))
    codes = [close.reply_code for close in client.take(m.ChannelClose)]
    codes += [close.reply_code for close in client.take(m.ConnectionClose)]
    return codes[0] if codes else 0


def declare_010(kit: Kit, arguments: Table) -> int:
    client = kit.peer().session(b"declares")
    client.call(c.QueueDeclare("q", durable=True, arguments=dict(arguments)))
    return 0 if client.exception is None else client.exception.error_code


@pytest.mark.parametrize("arguments", QPID, ids=map(str, QPID))
@pytest.mark.parametrize("declare", [declare_091, declare_010])
def test_a_queue_has_the_settings_and_shows_the_arguments(
    kit: Kit, declare: Callable[[Kit, Table], int], arguments: Table
) -> None:
    assert declare(kit, arguments) == 0
    queue = kit.node.vhosts["/"].queues["q"]
    assert queue.settings == queue_settings(arguments, "q")
    assert queue.arguments == arguments
    shown = kit.peer().session(b"asks").ask(c.QueueQuery("q"), s.QueueQueryResult)
    assert (shown.arguments or {}) == arguments
    assert declare_091(kit, arguments) == 0, "it is the same queue"


@pytest.mark.parametrize(
    ("arguments", "code"), [(row[0], row[1].reply_code) for row in REFUSED], ids=[str(row[0]) for row in REFUSED]
)
@pytest.mark.parametrize("declare", [declare_091, declare_010])
def test_refusals(kit: Kit, declare: Callable[[Kit, Table], int], arguments: Table, code: int) -> None:
    assert declare(kit, arguments) == code
    assert "q" not in kit.node.vhosts["/"].queues


def bodies(client: Client091, queue: str = "q") -> list[bytes]:
    found = []
    while (message := client.get(queue)) is not None:
        found.append(message.body)
    return found


@pytest.mark.parametrize(("policy", "left"), [(None, [b"1", b"2"]), ("reject", [b"1", b"2"]), ("ring", [b"2", b"3"])])
def test_a_full_queue(kit: Kit, client: Client, policy: str | None, left: list[bytes]) -> None:
    policies = {} if policy is None else {"qpid.policy_type": policy}
    client.call(c.QueueDeclare("q", arguments={"qpid.max_count": 2, **policies}))
    for body in (b"1", b"2", b"3"):
        client.publish("q", body, accept_mode=0)
    assert bool(client.rejected) is (policy != "ring")
    assert bodies(kit.client()) == left


def test_priorities_of_both_dialects(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("q", arguments={"qpid.priorities": 2}))
    other = kit.client()
    for priority in range(10):
        client.publish("q", b"%d" % priority, priority=priority)
        other.publish("q", b"+%d" % priority, priority=priority)
    high = [b"%s%d" % (sign, priority) for priority in range(5, 10) for sign in (b"", b"+")]
    low = [b"%s%d" % (sign, priority) for priority in range(5) for sign in (b"", b"+")]
    assert bodies(other) == high + low


def test_groups(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("q", arguments={"qpid.group_header_key": "g", "qpid.shared_msg_group": 1}))
    first, second = kit.client(), kit.client()
    for group in "aab":
        client.publish("q", group.encode(), message=s.MessageProperties(application_headers={"g": group}))
    for consumer in (first, second):
        consumer.send(1, m.BasicQos(prefetch_count=1))
        consumer.send(1, m.BasicConsume("q", "tag"))
    first.receive()
    assert [body for _, _, body in first.deliveries()] == [b"a"]
    assert [body for _, _, body in second.deliveries()] == [b"b"]


@pytest.mark.parametrize("owned", [True, False])
def test_no_local(kit: Kit, client: Client, owned: bool) -> None:
    """A queue with `no-local` takes no messages of the connection that owns it or has its only subscription."""
    client.call(c.QueueDeclare("q", exclusive=owned, auto_delete=True, arguments={"no-local": "true"}))
    client.call(c.ExchangeBind("q", "amq.fanout", "k"))
    client.subscribe("q", exclusive=not owned)
    other = client.peer.session(b"same connection", 5)
    foreign = kit.peer().session(b"other connection")
    for session, body in ((client, b"1"), (other, b"2"), (foreign, b"3")):
        session.publish("", body, "amq.fanout", accept_mode=0)
        assert not session.rejected
    kit.client().publish("", b"4", "amq.fanout")
    assert client.bodies() == [b"3", b"4"]


def test_no_local_beside_another_queue(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("q", exclusive=True, arguments={"no-local": 1}))
    client.call(c.QueueDeclare("all", arguments={"no-local": 0}))
    for queue in ("q", "all"):
        client.call(c.ExchangeBind(queue, "amq.fanout", "k"))
    client.publish("", b"1", "amq.fanout")
    counts = [client.ask(c.QueueQuery(queue), s.QueueQueryResult).message_count for queue in ("q", "all")]
    assert [count or 0 for count in counts] == [0, 1]


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("comes", [True, False])
def test_a_delayed_auto_delete(kit: Kit, client: Client, exclusive: bool, comes: bool) -> None:
    declare = c.QueueDeclare("q", exclusive=exclusive, auto_delete=True, arguments={"qpid.auto_delete_timeout": 3})
    client.call(declare)
    client.subscribe("q")
    client.peer.lose()
    kit.pass_time(2_900)
    other = kit.peer().session(b"other")
    if comes:
        other.subscribe("q")
    kit.pass_time(10_000)
    assert ("q" in kit.node.vhosts["/"].queues) is comes
    if comes:
        other.call(c.MessageCancel("t"))
        kit.pass_time(2_900)
        assert "q" in kit.node.vhosts["/"].queues
        kit.pass_time(200)
        assert "q" not in kit.node.vhosts["/"].queues


@pytest.mark.parametrize("if_unused", [False, True])
def test_the_alternate_exchange_of_a_queue_that_is_deleted(kit: Kit, client: Client, if_unused: bool) -> None:
    client.call(c.QueueDeclare("heir"))
    client.call(c.ExchangeBind("heir", "amq.fanout", "k"))
    client.call(c.QueueDeclare("q", alternate_exchange="amq.fanout"))
    result = client.ask(c.QueueQuery("q"), s.QueueQueryResult)
    assert result.alternate_exchange == "amq.fanout"
    for body in (b"1", b"2"):
        client.publish("q", body)
    client.call(c.QueueDelete("q", if_unused=if_unused))
    assert bodies(kit.client(), "heir") == [b"1", b"2"]


def test_a_ring_with_priorities_drops_the_lowest(kit: Kit, client: Client) -> None:
    arguments = {"qpid.priorities": 10, "qpid.policy_type": "ring", "qpid.max_count": 3}
    client.call(c.QueueDeclare("q", arguments=arguments))
    for priority in (4, 1, 9, 0, 5, 9):
        client.publish("q", b"%d" % priority, priority=priority)
    assert bodies(kit.client()) == [b"9", b"9", b"5"]


def test_a_rejected_message_goes_to_the_alternate_exchange_as_it_is(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("heir"))
    client.call(c.ExchangeBind("heir", "amq.fanout", "k"))
    client.call(c.QueueDeclare("q", alternate_exchange="amq.fanout"))
    client.publish("q", b"1", message=s.MessageProperties(application_headers={"h": 1}))
    client.subscribe("q")
    ((number, _),) = client.taken()
    client.call(c.MessageReject(((number, number),)))
    content = kit.client().get("heir")
    assert content is not None
    assert content.decode_properties().headers == {"h": 1}
