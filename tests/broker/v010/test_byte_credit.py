"""A message that costs more than a subscription's credit in bytes holds it up only while it is the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harebell.protocol.v010 import MessageProperties, commands as c
from harebell.protocol.v091 import methods as m
from tests.broker.v010.kit import ALL, Client, Kit

LONG, SHORT = b"l" * 1000, b"s"
RED = MessageProperties(application_headers={"colour": "red", "g": "a"})
OF_ANOTHER_GROUP = MessageProperties(application_headers={"colour": "red", "g": "b"})


def get(kit: Kit) -> None:
    kit.client().send(1, m.BasicGet("q", no_ack=True))


def subscribe(kit: Kit) -> None:
    other = kit.peer().session(b"other")
    other.subscribe("q", messages=1)
    assert other.bodies() == [LONG]


def acquire(kit: Kit) -> None:
    other = kit.peer().session(b"browses")
    other.subscribe("q", acquire_mode=1)
    (number, *_) = (number for number, content in other.taken() if content.body == LONG)
    other.call(c.MessageAcquire(((number, number),)))


def purge(kit: Kit) -> None:
    kit.client().send(1, m.QueuePurge("q"))


def expire(kit: Kit) -> None:
    kit.pass_time(10_000)


def evict(kit: Kit) -> None:
    queue = kit.node.vhosts["/"].queues["q"]
    evicts = getattr(queue, "evict")  # noqa: B009  of a classic queue
    evicts()
    kit.node.batch.end()


KINDS: dict[str, dict[str, Any]] = {
    "transient": {},
    "durable": {"durable": True},
    "limited": {"arguments": {"x-max-length": 3}},
    "grouped": {"arguments": {"x-message-group": "g"}},
    "priorities": {"arguments": {"x-max-priority": 3}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
}
WAYS: dict[str, Callable[[Kit], None]] = {
    "get": get, "another subscription": subscribe, "acquire": acquire, "purge": purge, "expiry": expire,
    "moved away": evict,
}  # fmt: skip


def hungry(client: Client, kind: str, how: dict[str, Any], **long: Any) -> None:
    """A subscription with credit for short messages, at a queue whose first one is long."""
    client.call(c.QueueDeclare("q", **KINDS[kind]))
    client.publish("q", LONG, message=RED, delivery_mode=2, **long)
    client.subscribe("q", size=300, **how)
    assert client.bodies() == []


@pytest.mark.parametrize("how", [{}, {"arguments": {"x-selector": "colour = 'red'"}}], ids=["all", "selector"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [True, False], ids=["waiting", "later"])
def test_what_is_behind_comes(
    kit: Kit, client: Client, kind: str, way: str, how: dict[str, Any], *, first: bool
) -> None:
    """Whichever way the long message leaves: what waits behind it comes then, and what is published later."""
    hungry(client, kind, how, ttl=5000 if way == "expiry" else None)
    if first and way != "purge":
        client.publish("q", SHORT, message=OF_ANOTHER_GROUP)
        assert client.bodies() == []
    WAYS[way](kit)
    if first and way != "purge":
        assert client.bodies() == [SHORT]
    client.publish("q", SHORT, message=OF_ANOTHER_GROUP)
    assert client.bodies() == [SHORT]


@pytest.mark.parametrize("overflow", ["drop-head", "drop-lowest-priority"])
def test_one_that_is_dropped(client: Client, overflow: str) -> None:
    arguments = {"x-max-length": 2, "x-overflow": overflow, "x-max-priority": 3}
    client.call(c.QueueDeclare("q", arguments=arguments))
    client.publish("q", LONG)
    client.subscribe("q", size=300)
    for _ in range(2):
        client.publish("q", SHORT)
    assert client.bodies() == [SHORT, SHORT]


def test_one_that_comes_before(kit: Kit, client: Client) -> None:
    hungry(client, "priorities", {})
    client.publish("q", SHORT, priority=2)
    assert client.bodies() == [SHORT]
    client.call(c.MessageFlow("t", 1, 10_000))
    assert client.bodies() == [LONG]


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_returns_before(kit: Kit, client: Client, kind: str) -> None:
    client.call(c.QueueDeclare("q", **KINDS[kind]))
    client.publish("q", SHORT)
    other = kit.peer().session(b"other")
    other.subscribe("q", messages=1)
    ((number, _),) = other.taken()
    client.publish("q", LONG)
    client.subscribe("q", size=300)
    assert client.bodies() == []
    other.call(c.MessageStop("t"))
    other.call(c.MessageRelease(((number, number),)))
    assert client.bodies() == [SHORT]


@pytest.mark.parametrize("kind", KINDS)
def test_several_that_starve(kit: Kit, client: Client, kind: str) -> None:
    """They do not keep each other awake, and all get their share when the long message has left."""
    hungry(client, kind, {})
    others = [kit.peer().session(b"other %d" % number) for number in range(3)]
    for other in others:
        other.subscribe("q", size=300)
    for queue in kit.node.vhosts["/"].queues.values():
        assert not queue.scheduled
    get(kit)
    for _ in range(8):
        client.publish("q", SHORT)
    assert sum(len(each.bodies()) for each in (client, *others)) == 8


def test_who_has_gone_is_not_remembered(kit: Kit, client: Client) -> None:
    hungry(client, "transient", {})
    queue = kit.node.vhosts["/"].queues["q"]
    assert len(queue.starving) == 1
    client.call(c.MessageCancel("t"))
    assert not queue.starving


@pytest.mark.parametrize("kind", KINDS)
def test_a_flush_finds_what_comes_before(client: Client, kind: str) -> None:
    hungry(client, kind, {})
    client.send(c.MessageFlow("t", 1, ALL))
    client.call(c.MessageFlush("t"))
    assert client.bodies() == [LONG]
