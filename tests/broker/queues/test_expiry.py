"""Expired messages leave in shares: whoever looks at the queue meets none of them, and nobody waits for all of them."""

from __future__ import annotations

import pytest

from harebell.broker.message import Held
from harebell.broker.queues.browse import BROWSE
from harebell.broker.queues.classic import ClassicQueue
from harebell.protocol.v091 import Table, methods as m
from harebell.routing import Reason
from tests.broker.kit import Client, NodeKit, cut_finely

TTL = 1000
QUEUES: dict[str, Table] = {
    "plain": {},
    "priorities": {"x-max-priority": 3},
    "groups": {"x-message-group": "group"},
}
LOOKS: dict[str, tuple[m.Method, ...]] = {
    "get": (m.BasicGet("q", no_ack=True),),
    "consume": (m.BasicConsume("q", consumer_tag="c", no_ack=True),),
    "browse": (m.BasicConsume("q", consumer_tag="c", arguments={BROWSE: True}),),
}


@pytest.fixture
def expired(kit: NodeKit, client: Client, request: pytest.FixtureRequest) -> NodeKit:
    """Nine expired messages in queue "q", whose timer is late, and one that has not expired."""
    client.call(m.QueueDeclare("q", arguments=request.param), m.QueueDeclareOk)
    for number in range(9):
        client.publish("q", b"old", headers={"group": str(number)}, expiration=str(TTL))
    client.publish("q", b"new")
    kit.clock.now += TTL
    return kit


@pytest.mark.parametrize("expired", QUEUES.values(), ids=QUEUES, indirect=True)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_look_drops_the_expired_in_slices(
    expired: NodeKit, client: Client, look: tuple[m.Method, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = expired.node.vhosts["/"].queues["q"]
    cut_finely(monkeypatch)
    expired.stopwatch.step = 1.0
    for method in look:
        client.send(1, method)
    assert queue.message_count > 1, "the rest has to wait for its turn"
    expired.node.batch.slices.finish()
    client.receive()
    bodies = [getattr(event, "body", None) for _, event in client.events]
    assert bodies[-1] == b"new"
    assert b"old" not in bodies


@pytest.mark.parametrize("expired", QUEUES.values(), ids=QUEUES, indirect=True)
def test_a_queue_that_goes_while_a_get_waits(expired: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    other = expired.client()
    cut_finely(monkeypatch)
    expired.stopwatch.step = 1.0
    client.send(1, m.BasicGet("q", no_ack=True))
    other.send(1, m.QueueDelete("q"))
    expired.node.batch.slices.finish()
    client.receive()
    (refusal,) = client.take(m.ChannelClose)
    assert refusal.reply_code == 404


def test_the_timer_is_set_again_after_an_error(kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.call(m.QueueDeclare("q", arguments={"x-message-ttl": TTL}), m.QueueDeclareOk)
    queue = kit.node.vhosts["/"].queues["q"]
    assert isinstance(queue, ClassicQueue)
    assert queue.expiry is not None
    for body in (b"1", b"2"):
        client.publish("q", body)
    drop, errors = queue.drop, [ValueError("a bug")]

    def failing(held: Held, reason: Reason) -> None:
        if errors:
            raise errors.pop()
        drop(held, reason)

    monkeypatch.setattr(queue.expiry, "_drop", failing)
    with pytest.raises(ValueError):
        kit.pass_time(TTL)
    assert queue.message_count == 1
    kit.pass_time(1)
    assert queue.message_count == 0
