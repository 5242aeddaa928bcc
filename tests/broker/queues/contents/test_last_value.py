"""Last-value queues against a model: what waits, by key, and what consumers hold."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.protocol.v091 import Content, methods as m
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

PERSISTENT: dict[str, Any] = {"delivery_mode": 2}


def put(client: Client, body: str, key: object = None) -> None:
    client.publish("q", body.encode(), headers=None if key is None else {"k": key}, **PERSISTENT)


def left(client: Client) -> list[str]:
    found = []
    while (content := client.get()) is not None:
        found.append(content.body.decode())
    return found


def test_the_last_value_of_each_key_waits_where_it_came(client: Client) -> None:
    client.declare(x_last_value_key="k")
    for body, key in (("a1", "a"), ("b1", "b"), ("free", None), ("a2", "a"), ("1", 1), ("one", "1"), ("free", None)):
        put(client, body, key)
    assert client.count() == 6
    assert left(client) == ["b1", "free", "a2", "1", "one", "free"]


def test_browsing_shows_each_new_value(client: Client) -> None:
    client.declare(x_last_value_key="k")
    put(client, "a1", "a")
    client.send(1, m.BasicConsume("q", "t", no_ack=True, arguments={"x-browse": True}))
    put(client, "a2", "a")
    put(client, "b1", "b")
    assert [body for _, _, body in client.deliveries()] == [b"a1", b"a2", b"b1"]
    assert client.count() == 2


def test_with_a_limit_and_priorities(client: Client) -> None:
    client.declare(x_last_value_key="k", x_max_length=2, x_max_priority=1)
    for number, priority in enumerate((0, 1, 0, 1)):
        client.publish("q", b"%d" % number, headers={"k": number // 2}, priority=priority)
    assert left(client) == ["1", "3"]


def test_the_keys_of_messages_that_have_left_are_forgotten(kit: NodeKit, client: Client) -> None:
    client.declare(x_last_value_key="k")
    for number in range(1000):
        put(client, "x", number)
        client.get()
    backlog: Any = kit.node.vhosts["/"].queues["q"]
    assert len(backlog.backlog._latest) < 100
    client.call(m.QueuePurge("q"), m.QueuePurgeOk)
    assert not backlog.backlog._latest


class LastValueMachine(RuleBasedStateMachine):
    """The model: (key, body) in order of what waits, and what the client holds, by delivery tag."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kits = [NodeKit(Path(self.folder.name), sync=False)]
        self.client = self.kits[0].client()
        self.client.declare(x_last_value_key="k")
        self.waiting: list[tuple[str, int]] = []
        self.held: dict[int, tuple[str, int]] = {}
        self.number = 0

    @rule(key=st.sampled_from("abc"))
    def publish(self, key: str) -> None:
        self.number += 1
        put(self.client, str(self.number), key)
        self.waiting = [each for each in self.waiting if each[0] != key] + [(key, self.number)]

    @rule()
    def get(self) -> None:
        self.client.send(1, m.BasicGet("q"))
        _, event = self.client.events.pop()
        if not self.waiting:
            assert isinstance(event, m.BasicGetEmpty)
            return
        assert isinstance(event, Content)
        method = event.decode_method()
        assert isinstance(method, m.BasicGetOk)
        first = self.waiting.pop(0)
        assert int(event.body) == first[1]
        self.held[method.delivery_tag] = first

    @precondition(lambda self: self.held)
    @rule(data=st.data(), back=st.booleans())
    def settle(self, data: st.DataObject, back: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.held)))
        key, number = self.held.pop(tag)
        if not back:
            self.client.send(1, m.BasicAck(tag))
            return
        self.client.send(1, m.BasicNack(tag, requeue=True))
        self._return([(key, number)])

    @precondition(lambda self: self.held)
    @rule(lost=st.booleans())
    def all_come_back(self, lost: bool) -> None:
        if lost:
            self.client.connection.lost()
            self.client = self.kits[-1].client()
        else:
            self.client.send(1, m.BasicNack(0, multiple=True, requeue=True))
        self._return(list(self.held.values()))
        self.held.clear()

    def _return(self, messages: list[tuple[str, int]]) -> None:
        """Newest first: what is older than another one of its key is gone."""
        for key, number in sorted(messages, key=lambda each: -each[1]):
            newest = max((other for name, other in self.waiting if name == key), default=0)
            if newest < number:
                others = [each for each in self.waiting if each[0] != key]
                self.waiting = sorted([*others, (key, number)], key=lambda each: each[1])

    @rule()
    def restart(self) -> None:
        kit = self.kits[-1]
        kit.node.batch.commit.stop()
        kit.node.catalog.close()
        self.kits.append(NodeKit(Path(self.folder.name), sync=False))
        self.client = self.kits[-1].client()
        newest: dict[str, int] = {}
        for key, number in [*self.waiting, *self.held.values()]:
            newest[key] = max(newest.get(key, 0), number)
        self.waiting = sorted(newest.items(), key=lambda each: each[1])
        self.held.clear()

    @invariant()
    def the_same(self) -> None:
        assert self.client.count() == len(self.waiting)

    def teardown(self) -> None:
        assert left(self.client) == [str(number) for _, number in self.waiting]
        for kit in self.kits:
            kit.stop()
        self.folder.cleanup()


TestLastValueMachine = LastValueMachine.TestCase
TestLastValueMachine.settings = settings(max_examples=scaled(15), stateful_step_count=25)


def test_the_newest_of_those_that_come_back_stays(client: Client) -> None:
    client.declare(x_last_value_key="k")
    for body in ("a1", "a2"):
        put(client, body, "a")
        client.get(no_ack=False)
    client.send(1, m.BasicNack(1, requeue=True))
    client.send(1, m.BasicNack(2, requeue=True))
    assert client.count() == 1
    put(client, "a3", "a")
    assert left(client) == ["a3"]


@pytest.mark.parametrize("arguments", [{"x-last-value-key": "other"}, {"x-last-value-key": None}])
def test_it_is_set_when_the_queue_is_declared(client: Client, kit: NodeKit, arguments: dict[str, Any]) -> None:
    from harebell.errors import PreconditionFailed

    client.declare(x_last_value_key="k")
    with pytest.raises(PreconditionFailed, match="it is set when the queue is declared"):
        kit.node.vhosts["/"].change_queue("q", arguments)
