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


def bodies(client: Client091) -> list[bytes]:
    found = []
    while (message := client.get()) is not None:
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
