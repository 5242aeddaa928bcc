"""A purge of every kind of queue, in one step and in the smallest ones: exactly what was ready is gone, on disk too."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell.protocol.v091 import Table, methods as m
from tests.broker.kit import Client, NodeKit, cut_finely

ARGUMENTS: dict[str, Table] = {
    "plain": {},
    "priorities": {"x-max-priority": 3},
    "expiring": {"x-message-ttl": 60_000},
    "limited": {"x-max-length": 100},
    "groups": {"x-message-group": "group"},
    "quorum": {"x-queue-type": "quorum"},
}


def fill(client: Client, arguments: Table) -> None:
    """Ten messages: one is taken and stays away, one is taken and returns."""
    client.call(m.QueueDeclare("q", durable=True, arguments=arguments), m.QueueDeclareOk)
    for number in range(10):
        client.publish("q", b"%d" % number, delivery_mode=2, priority=number % 4, headers={"group": str(number)})
    assert client.get(no_ack=False) is not None
    assert client.get(no_ack=False) is not None
    client.send(1, m.BasicReject(client_tag(client), requeue=True))


def client_tag(client: Client) -> int:
    return client.connection.channels[1].tag


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("fine", [False, True], ids=["at once", "in slices"])
def test_what_was_ready_is_gone(tmp_path: Path, arguments: Table, fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    fill(client, arguments)
    kit.run_syncs()
    if fine:
        cut_finely(monkeypatch)
        kit.stopwatch.step = 1.0
    client.send(1, m.QueuePurge("q"))
    kit.node.batch.slices.finish()
    client.receive()
    (purged,) = client.take(m.QueuePurgeOk)
    assert purged.message_count == 9
    kit.stopwatch.step = 0.0
    assert client.count() == 0
    client.publish("q", b"new", delivery_mode=2)
    kit.stop()
    again = NodeKit(tmp_path)
    taker, left = again.client(), set[bytes]()
    while (content := taker.get()) is not None:
        left.add(content.body)
    assert len(left) == 2  # the one that was away, and the new one
    assert b"new" in left
    again.stop()


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_deleted_queue_is_freed_in_steps(
    kit: NodeKit, client: Client, arguments: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, arguments)
    cut_finely(monkeypatch)
    kit.stopwatch.step = 1.0
    client.send(1, m.QueueDelete("q"))
    client.send(1, m.QueueDeclare("q", durable=True, arguments=arguments))
    kit.node.batch.slices.finish()
    client.receive()
    assert [answer.message_count for answer in client.take(m.QueueDeleteOk)] == [9]
    kit.stopwatch.step = 0.0
    assert client.count() == 0
