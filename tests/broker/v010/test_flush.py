"""message.flush completes when the queue has nothing more for the subscription: not while it can only say "later"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harebell.broker.queues import classic
from harebell.protocol.v010 import MessageProperties, commands as c
from tests.broker.v010.kit import ALL, Client, Kit

COUNT = 40
GROUPS: dict[str, Any] = {"arguments": {"x-message-group": "g"}}


def enrich(kit: Kit) -> None:
    """Let the queue move its messages into a backlog, in many steps."""
    queue = kit.node.vhosts["/"].queues["q"]
    assert isinstance(queue, classic.ClassicQueue)
    queue.enrich()


def hold(kit: Kit) -> None:
    """Let messages come back to the queue for some steps."""
    queue = kit.node.vhosts["/"].queues["q"]
    queue.hold()

    def returning() -> Any:
        for _ in range(5):
            yield
        queue.release()

    kit.node.batch.slices.run(returning())


def nothing(kit: Kit) -> None:
    pass


LATER: dict[str, Callable[[Kit], None]] = {"enriching": enrich, "on hold": hold, "ready": nothing}
HOW: dict[str, dict[str, Any]] = {
    "all": {},
    "browsing": {"acquire_mode": 1},
    "selector": {"arguments": {"x-selector": "colour = 'red'"}},
    "browsing, selector": {"acquire_mode": 1, "arguments": {"x-selector": "colour = 'red'"}},
}


@pytest.mark.pure
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("flags", [{}, {"durable": True}, GROUPS], ids=["transient", "durable", "grouped"])
def test_a_flush_waits_until_the_queue_can_say(
    kit: Kit, client: Client, monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], later: str, how: str
) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    client.call(c.QueueDeclare("q", **flags))
    message = MessageProperties(application_headers={"colour": "red"})
    for number in range(COUNT):
        client.publish("q", b"%d" % number, message=message, sync=number == COUNT - 1, delivery_mode=2)
    kit.stopwatch.step = 1.0  # each step is a slice
    flush = c.MessageFlush("t", sync=True)
    subscribe = c.MessageSubscribe("q", "t", **HOW[how])
    flows = (c.MessageFlow("t", 1, ALL), c.MessageFlow("t", 0, 5))
    for command in (subscribe, c.MessageSetFlowMode("t", 0), *flows, flush):
        number = client.state.sending.send(command, 100)
        client.peer.engine.send_command(0, command)
    LATER[later](kit)
    client.peer.pump()  # all commands together, while the queue is like that
    client.wait(number)
    assert len(client.bodies()) == 5
    assert kit.node.vhosts["/"].queues["q"].message_count == (COUNT if "browsing" in how else COUNT - 5)


@pytest.mark.parametrize("end", ["delete", "detach"])
def test_a_flush_ends_with_its_queue_or_session(kit: Kit, client: Client, end: str) -> None:
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    queue = kit.node.vhosts["/"].queues["q"]
    queue.hold()
    kit.stopwatch.step = 1.0  # each step is a slice
    client.call(c.MessageSubscribe("q", "t"))
    client.call(c.MessageFlow("t", 1, ALL))
    client.peer.engine.send_command(0, c.MessageFlow("t", 0, 5))
    client.peer.engine.send_command(0, c.MessageFlush("t"))
    client.peer.connection.receive_data(client.peer.engine.data_to_send())
    assert not kit.node.batch.slices.idle
    if end == "delete":
        kit.node.batch.slices.run(kit.node.vhosts["/"].deleting((queue,)))
    else:
        client.peer.connection.lost()
        client.peer.lost = True
        kit.run_sync()
        queue.release()
    kit.run_syncs()
    assert kit.node.batch.slices.idle
