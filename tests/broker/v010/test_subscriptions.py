"""How the subscriptions of a session end when their queue is deleted: by whom, and what they waited for."""

from __future__ import annotations

from itertools import product

import pytest

from harebell.broker.v010 import subscriptions
from harebell.protocol.v010 import Command, commands as c
from harebell.protocol.v010.domains import FlowMode
from tests.broker.v010.kit import ALL, Client, Kit

WAITING: dict[str, tuple[Command, ...]] = {
    "window mode, with credit": (c.MessageFlow("t", 0, 1), c.MessageFlow("t", 1, ALL)),
    "window mode, without credit": (),
    "credit mode, with credit": (
        c.MessageSetFlowMode("t", FlowMode.CREDIT), c.MessageFlow("t", 0, 1), c.MessageFlow("t", 1, ALL)
    ),
}  # fmt: skip
SILENT: dict[str, tuple[Command, ...]] = {
    "no credit": (c.MessageSetFlowMode("t", FlowMode.CREDIT),),
    "no bytes": (c.MessageSetFlowMode("t", FlowMode.CREDIT), c.MessageFlow("t", 0, ALL)),
    "no messages": (c.MessageSetFlowMode("t", FlowMode.CREDIT), c.MessageFlow("t", 1, ALL)),
    "stopped": (
        c.MessageSetFlowMode("t", FlowMode.CREDIT), c.MessageFlow("t", 0, 1), c.MessageFlow("t", 1, ALL),
        c.MessageStop("t"),
    ),
    "flushed": (
        c.MessageSetFlowMode("t", FlowMode.CREDIT), c.MessageFlow("t", 0, 1), c.MessageFlow("t", 1, ALL),
        c.MessageFlush("t"),
    ),
}  # fmt: skip
ENDS: dict[str, tuple[tuple[Command, ...], int]] = {
    "cancelled": ((c.MessageCancel("t"),), 0),
    "stopped, cancelled": ((c.MessageStop("t"), c.MessageCancel("t")), 0),
    "cancelled twice": ((c.MessageCancel("t"), c.MessageCancel("t")), 404),
    "asks for messages": ((c.MessageFlow("t", 0, 1),), 408),
    "asks for what is there": ((c.MessageFlush("t"),), 408),
    "changes its mode": ((c.MessageSetFlowMode("t", FlowMode.WINDOW),), 408),
    "begins again, and is cancelled": (
        (c.QueueDeclare("q"), c.MessageSubscribe("q", "t", 0, 0), c.MessageStop("t"), c.MessageCancel("t")), 0
    ),
}  # fmt: skip


def code(client: Client) -> int:
    return 0 if client.exception is None else client.exception.error_code


def subscribe(kit: Kit, client: Client, before: tuple[Command, ...], browses: bool) -> Client:
    """A queue with a subscription of the client's. Returns somebody else."""
    other = kit.peer().session(b"other")
    other.call(c.QueueDeclare("q"))
    client.subscribe("q", messages=None, size=None, acquire_mode=int(browses))
    for command in before:
        client.call(command)
    return other


@pytest.mark.parametrize(("state", "browses"), [*product(WAITING, (False, True))])
def test_a_session_that_waits_for_messages_ends(kit: Kit, client: Client, state: str, browses: bool) -> None:
    other = subscribe(kit, client, WAITING[state], browses)
    other.call(c.QueueDelete("q"))
    kit.settle()
    assert (code(client), code(other)) == (408, 0)


@pytest.mark.parametrize(("state", "end", "browses"), [*product(SILENT, ENDS, (False, True))])
def test_a_session_that_asks_for_nothing_is_told_when_it_does(
    kit: Kit, client: Client, state: str, end: str, browses: bool
) -> None:
    other = subscribe(kit, client, SILENT[state], browses)
    other.call(c.QueueDelete("q"))
    kit.settle()
    assert (code(client), code(other)) == (0, 0)
    commands, expected = ENDS[end]
    for command in commands:
        client.call(command)
    assert code(client) == expected


@pytest.mark.repeats
@pytest.mark.parametrize(("state", "end", "browses"), [*product({**WAITING, **SILENT}, ENDS, (False, True))])
def test_a_session_that_deletes_the_queue_itself(kit: Kit, client: Client, state: str, end: str, browses: bool) -> None:
    subscribe(kit, client, {**WAITING, **SILENT}[state], browses)
    client.call(c.QueueDelete("q"))
    assert code(client) == 0
    commands, expected = ENDS[end]
    for command in commands:
        client.call(command)
    assert code(client) == expected


def test_as_many_are_remembered(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_GONE", 2)
    for name in "abc":
        client.call(c.QueueDeclare(name))
        client.subscribe(name, name)
        client.call(c.QueueDelete(name))
    for name in "cb":
        client.call(c.MessageCancel(name))
    assert code(client) == 0
    client.call(c.MessageCancel("a"))
    assert code(client) == 404


@pytest.mark.parametrize("durable", [False, True])
def test_what_a_session_holds_of_a_deleted_queue_goes_to_the_alternate_exchange(
    kit: Kit, client: Client, durable: bool
) -> None:
    other = kit.peer().session(b"other")
    other.call(c.QueueDeclare("heir"))
    other.call(c.ExchangeBind("heir", "amq.fanout", ""))
    other.call(c.QueueDeclare("q", alternate_exchange="amq.fanout", durable=durable))
    for body in (b"0", b"1", b"2"):
        other.publish("q", body, delivery_mode=2)
    client.call(c.MessageSubscribe("q", "t", 0, 0))
    client.call(c.MessageSetFlowMode("t", FlowMode.CREDIT))
    client.call(c.MessageFlow("t", 1, ALL))
    client.call(c.MessageFlow("t", 0, 2))
    held = [number for number, _ in client.taken()]
    assert len(held) == 2
    other.call(c.QueueDelete("q"))
    kit.settle()
    other.subscribe("heir")
    assert sorted(other.bodies()) == [b"0", b"1", b"2"]
    client.call(c.MessageAccept(((held[0], held[-1]),)))
    assert code(client) == 0
