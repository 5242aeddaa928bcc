"""A queue whose messages move into a backlog in steps: meanwhile it gives what a queue gives that has one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from harebell.broker.message import Address, Message
from harebell.broker.queues import classic
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.store.queue_log import journal
from harebell.protocol.v091 import Content, Properties, methods as m
from harebell.protocol.v091.content import encode_content
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit

COUNT = 12
STEPS = ("publish", "expire", "get", "return", "reject", "turn", "purge", "count", "browse")


def turn(kit: NodeKit) -> None:
    if not kit.node.batch.slices.idle:
        kit.node.batch.slices._turn()


def queue_of(kit: NodeKit) -> ClassicQueue:
    queue = kit.node.vhosts["/"].queues["q"]
    assert isinstance(queue, ClassicQueue)
    return queue


def filled(kit: NodeKit, durable: bool) -> Client:
    client = kit.client()
    client.call(m.QueueDeclare("q", durable=durable), m.QueueDeclareOk)
    for number in range(COUNT):
        client.publish("q", b"%d" % number, delivery_mode=1 + durable)
    client.get("q", no_ack=False)
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))
    return client


def play(kit: NodeKit, script: list[str], durable: bool, step: float) -> list[object]:
    """What a client gets that fills a queue, gives it a message that expires, and goes on with the script."""
    client, seen = filled(kit, durable), list[object]()
    kit.stopwatch.step = step
    for number, act in enumerate(("expire", *script)):
        match act:
            case "publish":
                client.publish("q", b"%d later" % number, delivery_mode=1 + durable)
            case "expire":
                client.publish("q", b"%d expires" % number, expiration="500", delivery_mode=1 + durable)
            case "get":
                got = client.get("q")
                seen.append(got and got.body)
            case "return" | "reject":
                got = client.get("q", no_ack=False)
                seen.append(got and got.body)
                client.send(1, m.BasicNack(0, multiple=True, requeue=act == "return"))
            case "turn":
                turn(kit)
            case "purge":
                seen.append(kit.node.vhosts["/"].queues["q"].purge())
            case "count":
                seen.append(client.count("q"))
            case "browse":
                queue_of(kit).finish_enriching()
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    assert queue_of(kit).contents is queue_of(kit).backlog
    seen.append(client.count("q"))
    kit.pass_time(2000)
    while (left := client.get("q")) is not None:
        seen.append(left.body)
    return seen


@pytest.mark.repeats
@example(script=["purge", "expire", "return"], durable=False)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.booleans())
def test_a_queue_that_moves_into_a_backlog(script: list[str], durable: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(classic, "MOVED", 1)
        outcomes = []
        for step in (0.0, 1.0):
            kit = NodeKit(Path(folder, str(step)))
            outcomes.append(play(kit, script, durable, step))
            kit.stop()
    assert outcomes[0] == outcomes[1]


@pytest.mark.pure
def test_others_have_their_turns_while_messages_move(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    client = filled(kit, durable=False)
    kit.stopwatch.step = 1.0
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "q", {"message-ttl": 60_000}))
    queue = queue_of(kit)
    assert queue.backlog is None
    for left in range(COUNT - 2):
        client.publish("q", b"new")
        assert client.count("q") == COUNT + left + 1
        turn(kit)
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    assert queue.backlog is not None
    kit.pass_time(60_000)
    assert client.count("q") == COUNT, "the new ones expire, the old ones came without a time to live"


def policy(kit: NodeKit) -> None:
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "q", {"message-ttl": 60_000}))


def at_once(client: Client, queue: ClassicQueue) -> None:
    frames = encode_content(1, Properties(delivery_mode=2), b"new", 4096)
    queue.publish_all([Message(Address("", "q"), Content(1, b"", frames, 3)) for _ in range(5)])


WAYS: dict[str, Callable[[Client, ClassicQueue], None]] = {
    "one": lambda client, queue: client.publish("q", b"new", delivery_mode=2),
    "one that expires sooner": lambda client, queue: client.publish("q", b"new", delivery_mode=2, expiration="50000"),
    "several at once": at_once,
}


@pytest.mark.pure
@pytest.mark.parametrize("page", [4, 1000], ids=["on disk", "in memory"])
@pytest.mark.parametrize("way", WAYS)
def test_what_comes_meanwhile_expires_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, page: int
) -> None:
    """Those that were there when the queue got its time to live stay, as without a restart."""
    monkeypatch.setattr(classic, "MOVED", 1)
    monkeypatch.setattr(journal, "PAGE_MESSAGES", page)
    kit = NodeKit(tmp_path)
    client = filled(kit, durable=True)
    kit.stopwatch.step = 1.0
    policy(kit)
    queue = queue_of(kit)
    for _ in range(3):
        WAYS[way](client, queue)
        turn(kit)
    assert queue.is_enriching
    came = queue.message_count - COUNT
    kit.stop()
    again = NodeKit(tmp_path)
    client = again.client()
    assert client.count("q") == COUNT + came
    again.pass_time(60_000)
    assert client.count("q") == COUNT
    again.stop()


@pytest.mark.pure
def test_the_first_message_that_expires_does_so_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    kit = NodeKit(tmp_path)
    client = filled(kit, durable=True)
    kit.stopwatch.step = 1.0
    client.publish("q", b"expires", delivery_mode=2, expiration="1000")
    assert queue_of(kit).is_enriching
    kit.stop()
    again = NodeKit(tmp_path)
    client = again.client()
    again.pass_time(1000)
    assert client.count("q") == COUNT
    again.stop()


@pytest.mark.parametrize("durable", [False, True])
def test_a_queue_that_is_deleted_meanwhile(kit: NodeKit, monkeypatch: pytest.MonkeyPatch, *, durable: bool) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    client = filled(kit, durable)
    kit.stopwatch.step = 1.0
    client.publish("q", b"", expiration="1000")
    client.send(1, m.QueueDelete("q"))
    kit.node.batch.slices.finish()
    client.receive()
    assert [ok.message_count for ok in client.take(m.QueueDeleteOk)] == [COUNT + 1]
    kit.stopwatch.step = 0.0
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    assert client.count("q") == 0


def test_a_limit_that_is_new_drops_in_steps(kit: NodeKit) -> None:
    client = kit.client()
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    for number in range(400):
        client.publish("q", b"%d" % number)
    kit.stopwatch.step = 1.0
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "q", {"max-length": 3}))
    seen = []
    while not kit.node.batch.slices.idle:
        seen.append(client.count("q"))
        turn(kit)
    kit.stopwatch.step = 0.0
    assert len(set(seen)) > 3, "it takes more slices"
    assert [message.body for _ in range(3) if (message := client.get("q")) is not None] == [b"397", b"398", b"399"]
    assert client.count("q") == 0
