"""A commit that was answered is on the disk whole: publications, acknowledgements, rejections, their dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harebell.protocol.v091 import Properties, Table, methods as m
from tests.broker.disk_node import DiskNode
from tests.broker.kit import Client

LETTERS: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
QUEUES: dict[str, Table] = {
    "plain": {},
    "levels": {"x-max-priority": 3},
    "grouped": {"x-message-group": "g"},
    "quorum": {"x-queue-type": "quorum"},
    "dying": LETTERS,
    "safe": LETTERS | {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
    "late": {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000, "x-queue-type": "quorum"},
    "dead": {},
    "stream": {"x-queue-type": "stream"},
}
SETTLED = [name for name in QUEUES if name not in ("dead", "stream")]


@contextmanager
def running() -> Iterator[DiskNode]:
    node = DiskNode()
    for name, arguments in QUEUES.items():
        node.client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
    yield node
    node.close()


@pytest.fixture
def node() -> Iterator[DiskNode]:
    with running() as node:
        yield node


def publish(client: Client, queue: str, body: bytes) -> None:
    properties = Properties(delivery_mode=2, headers={"g": body.decode()})
    client.engine.send_content(1, m.BasicPublish("", queue), properties, body)


def take_in_transaction(node: DiskNode, queue: str = "plain", *, messages: int = 1, taken: int = 1) -> None:
    """Begin a transaction on the client's channel, which holds the first `taken` of the messages 1, 2, ..."""
    client = node.client
    for number in range(1, messages + 1):
        publish(client, queue, b"%d" % number)
    client.pump()
    node.commit.run()
    client.call(m.TxSelect(), m.TxSelectOk)
    for _ in range(taken):
        assert client.get(queue, no_ack=False) is not None
    client.events.clear()


# What the transaction does with the deliveries 1, 2 and 3 of a queue that has 1, 2, 3 and 4; what is left there;
# and which of them have dead letters, in the queues that have an exchange for those.
CASES: dict[str, tuple[list[m.Method], list[int], list[int]]] = {
    "ack": ([m.BasicAck(2)], [1, 3, 4], []),
    "ack all": ([m.BasicAck(3, multiple=True)], [4], []),
    "ack everything": ([m.BasicAck(0, multiple=True)], [4], []),
    "reject": ([m.BasicReject(1, requeue=False)], [2, 3, 4], [1]),
    "nack all": ([m.BasicNack(3, multiple=True, requeue=False)], [4], [1, 2, 3]),
    "requeue": ([m.BasicNack(2, multiple=True, requeue=True)], [1, 2, 3, 4], []),
    "mixed": ([m.BasicAck(1), m.BasicReject(3, requeue=False), m.BasicNack(2, requeue=True)], [2, 4], [3]),
}


@pytest.mark.repeats
@pytest.mark.parametrize("power", [None, 1, 2])
@pytest.mark.parametrize("publications", [[], ["plain"], ["dead", "stream"]], ids=["none", "one", "two"])
@pytest.mark.parametrize("case", CASES)
def test_what_was_answered_was_taken(case: str, publications: list[str], power: int | None) -> None:
    settlements, left, died = CASES[case]
    for source in SETTLED:
        with running() as node:
            client = node.client
            take_in_transaction(node, source, messages=4, taken=3)
            for queue in publications:
                publish(client, queue, b"new")
            for settlement in settlements:
                client.engine.send_method(1, settlement)
            client.send(1, m.TxCommit())
            syncs = 0
            while not client.take(m.TxCommitOk):
                assert node.commit._dirty, "commit-ok is due, and nothing more will be synced"
                assert node.commit.run()
                syncs += 1
                client.receive()
            assert syncs >= 1, "it was answered before anything was on the disk"
            node.restart(None if power is None else power * 100 + len(source))
            found = node.contents(QUEUES)
            new = {queue: [b"new"] * (queue in publications) for queue in QUEUES}
            assert sorted(found[source]) == [b"%d" % number for number in left] + new[source], source
            letters = [b"%d" % number for number in died if "x-dead-letter-exchange" in QUEUES[source]]
            assert sorted(found["dead"]) == letters + new["dead"], source


def test_a_commit_of_nothing_stored_is_answered_at_once(node: DiskNode) -> None:
    client = node.client
    client.call(m.QueueDeclare("t"), m.QueueDeclareOk)
    client.publish("t", b"1")
    client.call(m.TxSelect(), m.TxSelectOk)
    assert client.get("t", no_ack=False) is not None
    client.events.clear()
    client.send(1, m.BasicAck(1))
    client.call(m.TxCommit(), m.TxCommitOk)
    client.call(m.TxCommit(), m.TxCommitOk)


def test_a_commit_whose_queue_is_deleted_is_answered(node: DiskNode) -> None:
    client, other = node.client, Client(node.node)
    take_in_transaction(node)
    client.engine.send_method(1, m.BasicAck(1))
    publish(client, "dead", b"2")
    client.send(1, m.TxCommit())
    other.call(m.QueueDelete("plain"), m.QueueDeleteOk)
    while node.commit._dirty:
        node.commit.run()
    client.receive()
    assert client.take(m.TxCommitOk) == [m.TxCommitOk()]


def test_a_channel_that_closes_while_its_commit_waits(node: DiskNode) -> None:
    client = node.client
    take_in_transaction(node)
    client.send(1, m.BasicAck(1))
    client.send(1, m.TxCommit())
    client.call(m.ChannelClose(200, ""), m.ChannelCloseOk)
    while node.commit._dirty:
        node.commit.run()
    client.receive()
    assert client.events == []
    node.restart(None)
    assert node.contents(["plain"])["plain"] == []


def test_a_method_ahead_of_the_answer_is_refused(node: DiskNode) -> None:
    client = node.client
    publish(client, "plain", b"1")
    client.send(1, m.BasicGet("plain"))
    client.call(m.TxSelect(), m.TxSelectOk)
    client.send(1, m.BasicAck(1))
    client.engine.send_method(1, m.TxCommit())
    client.send(1, m.QueueDeclare("plain", passive=True))
    (close,) = client.take(m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (
        504,
        "CHANNEL_ERROR - unexpected command while processing 'tx.commit'",
    )
