"""A session whose client has too much to complete gets no more, and goes on when it has completed some.

In each flow mode, of every kind of queue, and for each subscription that was stopped.
"""

from __future__ import annotations

from typing import Any

import pytest

from harebell.broker.v010 import session
from harebell.protocol.v010 import commands as c
from tests.broker.v010.kit import ALL, Client, Kit

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of the queue, and of the subscription
    "transient": ({}, {}),
    "durable": ({"durable": True}, {}),
    "limited": ({"arguments": {"x-max-length": 1000}}, {}),
    "grouped": ({"arguments": {"x-message-group": "g"}}, {}),
    "browsed": ({}, {"acquire_mode": 1}),
    "selected": ({}, {"arguments": {"x-selector": "TRUE"}}),
    "stream": (
        {"durable": True, "arguments": {"x-queue-type": "stream"}},
        {"arguments": {"x-stream-offset": "first"}},
    ),
}
LIMITS = {"MOST_UNCOMPLETED": 3, "MOST_BYTES": 500_000}  # messages, or bytes of some of them
COUNT = 20


@pytest.fixture(params=LIMITS)
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(session, request.param, LIMITS[request.param])
    return str(request.param)


def fill(kit: Kit, queue: str, flags: dict[str, Any], count: int = COUNT) -> None:
    other = kit.peer().session(b"fills %d" % len(kit.peers))
    other.call(c.QueueDeclare(queue, **flags))
    for number in range(count):
        other.publish(queue, b"%d" % number * 50_000, sync=number == count - 1, delivery_mode=2)


def subscribe(client: Client, tag: str, mode: int, how: dict[str, Any]) -> None:
    client.call(c.MessageSubscribe(tag, tag, accept_mode=1, **how))
    client.call(c.MessageSetFlowMode(tag, mode))
    client.call(c.MessageFlow(tag, 0, ALL))
    client.call(c.MessageFlow(tag, 1, ALL))


def rounds(client: Client) -> int:
    """Complete what came, and wait for more, until nothing comes. Returns how many messages came."""
    count = 0
    while taken := client.taken():
        count += len(taken)
        client.finish(*(number for number, _ in taken))
    return count


@pytest.mark.pure
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_goes_on(kit: Kit, client: Client, kind: str, mode: int) -> None:
    flags, how = KINDS[kind]
    fill(kit, "q", flags)
    client.completes = False
    subscribe(client, "q", mode, how)
    assert 0 < len(client.messages) < COUNT
    assert rounds(client) == COUNT
    fill(kit, "q", flags, 1)
    assert len(client.taken()) == 1


@pytest.mark.pure
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_so_do_the_others_of_its_session(kit: Kit, client: Client, kind: str, mode: int) -> None:
    """They get their messages, whoever used the room up."""
    fill(kit, "first", {})
    client.completes = False
    subscribe(client, "first", mode, {})
    flags, how = KINDS[kind]
    for tag in "abc":
        fill(kit, tag, flags)
        subscribe(client, tag, mode, how)
    client.call(c.MessageCancel("b"))
    assert rounds(client) == 3 * COUNT


@pytest.mark.pure
@pytest.mark.usefixtures("limit")
def test_one_that_is_completed_makes_room_for_one(kit: Kit, client: Client) -> None:
    fill(kit, "q", {})
    client.completes = False
    subscribe(client, "q", 0, {})
    held, count = client.taken(), 0
    while held:
        count += 1
        client.finish(held.pop()[0])
        held += client.taken()
    assert count == COUNT


@pytest.mark.pure
@pytest.mark.usefixtures("limit")
def test_a_queue_that_wakes_finds_the_session_full_again(kit: Kit, client: Client) -> None:
    fill(kit, "q", {})
    client.completes = False
    subscribe(client, "q", 0, {})
    before = len(client.messages)
    fill(kit, "q", {}, 1)
    assert len(client.messages) == before
    assert rounds(client) == COUNT + 1
