"""Queue decorators: what they are told, and when; limits, deduplication and counts of drops are some."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harebell.broker import Broker
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.decorators import QueueDecorator, Verdict
from harebell.broker.queues.deduplication import Duplicates
from harebell.broker.queues.drops import Drops
from harebell.broker.queues.length_limit import LengthLimit
from harebell.broker.v091.consumer import Consumer
from harebell.protocol.v091 import methods as m
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit


class Diary(QueueDecorator):
    """Writes down what it is told."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.entries: list[str] = []

    def take(self) -> list[str]:
        entries, self.entries = self.entries, []
        return entries

    def started(self) -> None:
        self.entries.append("started")

    def deleted(self) -> None:
        self.entries.append(f"deleted with {self.queue.message_count} ready")

    def settings_changed(self) -> None:
        self.entries.append(f"max_length {self.queue.settings.max_length}")

    def consumers_changed(self) -> None:
        active = self.queue.consumers.active
        assert active is None or isinstance(active, Consumer)
        self.entries.append(f"{len(self.queue.consumers)} consumers, active {active and active.tag}")

    def consumer_state_changed(self) -> None:
        self.entries.append(f"{self.queue.message_count} ready")

    def dropped(self, message: Message, reason: str) -> None:
        self.entries.append(f"{message.content.body.decode()} {reason}")


class Censor(Diary):
    """Refuses b"no", discards b"never"."""

    per_message = True

    def judge(self, message: Message) -> Verdict:
        return {b"no": Verdict.REFUSE, b"never": Verdict.DISCARD}.get(message.content.body, Verdict.ADMIT)

    def accepted(self, message: Message) -> None:
        self.entries.append(f"accepted {message.content.body.decode()}")

    def enqueued(self) -> None:
        self.entries.append("enqueued")


def kinds(kit: NodeKit, queue: str = "q") -> list[type[QueueDecorator]]:
    return [type(decorator) for decorator in kit.node.vhosts["/"].queues[queue].decorators]


def diary(kit: NodeKit, queue: str = "q") -> Diary:
    found = kit.node.vhosts["/"].queues[queue].decorators[-1]
    assert isinstance(found, Diary)
    return found


def test_a_plain_queue_has_none(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.publish("q")
    queue = kit.node.vhosts["/"].queues["q"]
    assert isinstance(queue, ClassicQueue)
    assert (queue.decorators, queue.judges, queue.backlog) == ((), (), None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x_max_length": 1}, [LengthLimit, Drops]),
        ({"x_max_length_bytes": 1}, [LengthLimit, Drops]),
        ({"x_message_deduplication": True}, [Duplicates, Drops]),
        ({"x_message_deduplication": True, "x_max_length": 1}, [Duplicates, LengthLimit, Drops]),
        ({"x_message_ttl": 1}, [Drops]),
        ({"x_dead_letter_exchange": ""}, [Drops]),
        ({"x_queue_type": "stream"}, []),
    ],
)
def test_settings_ask_for_decorators(
    kit: NodeKit, client: Client, arguments: dict[str, Any], expected: list[type[QueueDecorator]]
) -> None:
    client.declare(**arguments)
    assert kinds(kit) == expected


def test_a_policy_may_bring_a_limit_to_a_queue_at_work(kit: NodeKit, client: Client) -> None:
    client.declare()
    for body in (b"1", b"2", b"3"):
        client.publish("q", body)
    policies = kit.node.vhosts["/"].policies
    policies.set(Policy("/", "short", "q", {"max-length": 1}))
    assert kinds(kit) == [LengthLimit, Drops]
    assert client.count() == 1
    policies.clear("short")
    client.publish("q", b"4")
    assert client.count() == 2
    policies.set(Policy("/", "short", "q", {"max-length": 1}))
    assert kinds(kit) == [LengthLimit, Drops]
    assert (client.count(), client.get().body) == (1, b"4")  # type: ignore[union-attr]


def test_the_life_of_a_queue(kit: NodeKit, client: Client) -> None:
    kit.node.add_decorator(Diary)
    client.declare(x_single_active_consumer=True)
    told = diary(kit)
    assert told.take() == ["started"]
    client.publish("q", b"1")
    assert told.take() == ["1 ready"]
    client.send(1, m.BasicConsume("q", "a", no_ack=True))
    assert told.take() == ["1 consumers, active a", "0 ready"]
    client.send(1, m.BasicConsume("q", "b"))
    assert told.take() == ["2 consumers, active a", "0 ready"]
    client.send(1, m.BasicCancel("a"))
    assert told.take() == ["1 consumers, active b", "0 ready"]
    kit.node.vhosts["/"].policies.set(Policy("/", "short", "q", {"max-length": 7}))
    assert told.take() == ["max_length 7", "0 ready"]
    client.send(1, m.BasicCancel("b"))
    client.publish("q", b"2")
    assert told.take() == ["0 consumers, active None", "0 ready", "1 ready"]
    client.send(1, m.QueueDelete("q"))
    assert told.take() == ["deleted with 0 ready"]
    client.send(1, m.ChannelClose())
    assert told.take() == []


def test_queues_that_are_there_are_decorated_too(kit: NodeKit, client: Client) -> None:
    client.declare()
    client.declare("s", x_queue_type="stream")
    kit.node.add_decorator(Diary)
    assert diary(kit).take() == ["started"]
    assert diary(kit, "s").take() == ["started"]
    kit.node.add_decorator(lambda queue: None)
    assert kinds(kit) == [Diary]


def test_what_a_queue_drops_is_told(kit: NodeKit, client: Client) -> None:
    kit.node.add_decorator(Diary)
    client.declare(x_max_length=2, x_dead_letter_exchange="")
    told = diary(kit)
    for body in (b"1", b"2", b"3"):
        client.publish("q", body, expiration="10" if body == b"3" else None)
    client.send(1, m.BasicGet("q"))
    client.send(1, m.BasicReject(1, requeue=False))
    kit.pass_time(10)
    assert [entry for entry in told.take() if entry[0].isdigit() and "ready" not in entry] == [
        "1 maxlen", "2 rejected", "3 expired",
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [{}, {"x_queue_type": "stream"}])
def test_one_with_a_say_about_messages(tmp_path: Path, arguments: dict[str, Any]) -> None:
    kit = NodeKit(tmp_path / "data", sync=False)
    client = kit.client()
    kit.node.add_decorator(Censor)
    client.declare(**arguments)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    told = diary(kit)
    told.take()
    for body in (b"yes", b"no", b"never"):
        client.publish("q", body)
    assert [entry for entry in told.take() if "ready" not in entry] == [
        "accepted yes", "enqueued", "no refused", "never discarded",
    ]  # fmt: skip
    assert [each.delivery_tag for each in client.take(m.BasicAck)] == [1, 3]
    assert [each.delivery_tag for each in client.take(m.BasicNack)] == [2]
    assert client.count() == 1
    kit.stop()


def test_a_broker_takes_factories_before_and_after_its_start() -> None:
    async def main() -> None:
        broker = Broker(port=None)
        broker.add_decorator(Diary)
        async with broker:
            broker.add_decorator(Censor)
            assert broker.node.decorators[-2:] == [Diary, Censor]

    asyncio.run(main())
