"""The class tx: transfers and acceptances take effect at the commit, or never."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell.protocol.v010 import Command, commands as c, controls as k, structs as s
from tests.broker.v010.kit import Client, Kit

DURABLE = pytest.mark.parametrize("durable", [False, True])


def count(client: Client, queue: str) -> int:
    return client.ask(c.QueueQuery(queue), s.QueueQueryResult).message_count


@pytest.fixture
def ready(client: Client, durable: bool) -> Client:
    for name in ("in", "out"):
        client.call(c.QueueDeclare(name, durable=durable))
    client.publish("in", b"1", delivery_mode=2)
    client.publish("in", b"2", delivery_mode=2)
    client.call(c.TxSelect())
    client.subscribe("in")
    return client


@DURABLE
def test_commit(ready: Client, kit: Kit) -> None:
    (one, _), (two, _) = ready.taken()
    ready.publish("out", b"result", delivery_mode=2, accept_mode=0)
    ready.call(c.MessageAccept(((one, one),)))
    assert count(ready, "out") == 0
    session = ready.peer.connection.channels[0]
    assert (session.transactional, session.uncommitted) == (True, 1)
    assert ready.call(c.TxCommit()) in ready.complete
    assert count(ready, "out") == 1
    ready.peer.lose()
    other = kit.peer().session(b"other")
    other.subscribe("in")
    assert [content.body for _, content in other.taken()] == [b"2"]
    assert two > one


@DURABLE
def test_a_delivery_that_was_accepted_can_be_released_before_the_commit(ready: Client, kit: Kit) -> None:
    """Qpid's clients do so before they roll back."""
    (one, _), (two, _) = ready.taken()
    ready.call(c.MessageAccept(((one, two),)))
    ready.call(c.MessageRelease(((one, one),)))
    assert ready.bodies() == [b"1"]
    ready.call(c.TxCommit())
    ready.peer.lose()
    other = kit.peer().session(b"other")
    other.subscribe("in")
    assert other.bodies() == [b"1"]


@DURABLE
def test_rollback_leaves_messages_acquired(ready: Client, kit: Kit) -> None:
    (one, _), (two, _) = ready.taken()
    ready.publish("out", b"result", delivery_mode=2)
    ready.call(c.MessageAccept(((one, two),)))
    ready.call(c.TxRollback())
    assert count(ready, "out") == 0
    assert [channel.unacked_count for channel in ready.peer.connection.channels.values()] == [2]
    ready.call(c.MessageAccept(((one, one),)))
    ready.call(c.TxCommit())
    ready.call(c.MessageRelease(((two, two),)))
    assert ready.bodies() == [b"2"]


MANY = 3000


@pytest.mark.parametrize("end", ["rollback", "lost", "lost in a rollback"])
def test_many_acceptances_are_taken_back_in_steps(end: str, kit: Kit) -> None:
    """Others have their turn meanwhile, and none is lost."""
    peer = kit.peer()
    client = peer.session(b"s")
    client.call(c.QueueDeclare("many"))
    for _ in range(MANY):
        client.publish("many", b"x")
    client.call(c.TxSelect())
    client.subscribe("many")
    numbers = [number for number, _ in client.taken()]
    assert len(numbers) == MANY
    client.call(c.MessageAccept(tuple((number, number) for number in numbers[::2])))
    session = peer.connection.channels[0]
    assert (session.unacked_count, session.transactions.settled) == (MANY // 2, MANY // 2)
    if end == "rollback":
        client.call(c.TxRollback())
        assert (session.unacked_count, session.transactions.settled) == (MANY, 0)
        client.call(c.MessageRelease(((numbers[0], numbers[-1]),)))  # they are delivered again
    steps = session.transactions.rolling_back()
    if end == "lost in a rollback":
        next(steps)
        assert 0 < session.transactions.settled < MANY // 2
    peer.lose()
    kit.settle()
    assert list(steps) == []
    other = kit.peer().session(b"other")
    assert count(other, "many") == MANY


@DURABLE
def test_a_lost_session_rolls_back(ready: Client, kit: Kit) -> None:
    ((one, _), _) = ready.taken()
    ready.publish("out", b"result")
    ready.call(c.MessageAccept(((one, one),)))
    ready.peer.lose()
    other = kit.peer().session(b"other")
    assert (count(other, "in"), count(other, "out")) == (2, 0)


@pytest.mark.parametrize(
    ("rule", "commands", "code"),
    [
        ("exactly-once", (c.TxSelect(), c.TxSelect()), 409),
        ("select-required", (c.TxCommit(),), 409),
        ("select-required", (c.TxRollback(),), 409),
    ],
)
def test_refusals(client: Client, rule: str, commands: tuple[Command, ...], code: int) -> None:
    client.call(c.QueueDeclare("q"))
    for command in commands:
        client.call(command)
    assert client.exception is not None, rule
    assert client.exception.error_code == code


@pytest.mark.parametrize("first", [True, False])
def test_deliveries_without_acceptance_belong_to_no_transaction(client: Client, first: bool) -> None:
    """Rule explicit-accepts rules them out; Qpid's clients use them."""
    client.call(c.QueueDeclare("q"))
    if first:
        client.call(c.TxSelect())
    client.subscribe("q", accept_mode=1)
    if not first:
        client.call(c.TxSelect())
    client.publish("q", b"1")
    client.call(c.TxCommit())
    assert client.bodies() == [b"1"]
    client.call(c.TxRollback())
    assert count(client, "q") == 0


def test_a_queue_that_refuses_fails_the_commit(client: Client) -> None:
    client.call(c.QueueDeclare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}))
    client.call(c.TxSelect())
    client.publish("q")
    client.publish("q")
    client.call(c.TxCommit())
    assert client.exception is not None
    assert client.exception.error_code == 406


def test_queues_that_were_deleted_since(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    client.call(c.QueueDeclare("r"))
    client.call(c.TxSelect())
    client.publish("q", b"m")
    client.publish("r", b"m")
    for name in ("q", "r"):
        client.call(c.QueueDelete(name))
    client.call(c.QueueDeclare("q"))
    client.call(c.TxCommit())
    assert client.exception is None
    assert count(client, "q") == 1


def test_unroutable_transfers_are_rejected_at_once(client: Client) -> None:
    client.call(c.TxSelect())
    number = client.publish("nowhere", accept_mode=0)
    assert number in client.rejected


def test_a_commit_is_complete_when_the_disk_has_both(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=True)
    client = kit.peer().session()
    client.call(c.QueueDeclare("q", durable=True))
    client.publish("q", b"in", delivery_mode=2)
    client.call(c.TxSelect())
    client.subscribe("q")
    ((number, _),) = client.taken()
    client.publish("q", b"out", delivery_mode=2)
    client.call(c.MessageAccept(((number, number),)))
    commit = client.send(c.TxCommit(sync=True))
    assert commit not in client.complete
    client.wait(commit)
    assert client.bodies() == [b"out"]
    kit.stop()


@pytest.mark.parametrize("select", [c.TxSelect, c.DtxSelect])
def test_a_program_that_takes_the_session_over_begins_without_transactions(kit: Kit, select: type[Command]) -> None:
    """Another one had it and was killed: the new one has none of its state."""
    first = kit.peer().session(b"taken")
    first.peer.control(0, k.SessionRequestTimeout(60))
    first.call(c.QueueDeclare("t"))
    first.call(select())
    first.peer.lose()
    second = kit.peer().session(b"taken", force=True)
    second.publish("t", b"at once")
    assert count(second, "t") == 1
    second.call(select())
    assert second.exception is None
