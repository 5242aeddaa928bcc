"""A fair share for lower priorities, against a model of passes."""

from __future__ import annotations

from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.message import Address, Held, Message
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.fairshare import FairBacklog
from harebell.broker.queues.contents.last_value import LastValueBacklog
from harebell.broker.queues.contents.ordering import backlog_for
from harebell.protocol.v091 import Content
from harebell.routing.settings import QueueSettings
from tests.broker.kit import Client

TOP = 3


def held(position: int, priority: int) -> Held:
    return Held(Message(Address("", "q"), Content(1, b"", b"", 1)), position, 0, priority)


class FairMachine(RuleBasedStateMachine):
    """Each pass takes from the highest level that has a message and a share left; without one a new pass begins."""

    shares = (2, 0, 1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.backlog = FairBacklog(TOP, self.shares)
        self.inside: list[Held] = []
        self.out: list[Held] = []
        self.taken = [0] * (TOP + 1)
        self.position = 0

    def next(self) -> Held | None:
        levels = {each.priority for each in self.inside}
        left = [level for level in levels if not self.shares[level] or self.taken[level] < self.shares[level]]
        if levels and not left:
            self.taken = [0] * (TOP + 1)
            left = list(levels)
        return min((each for each in self.inside if each.priority == max(left)), default=None) if left else None

    @rule(priority=st.integers(0, TOP))
    def push(self, priority: int) -> None:
        self.inside.append(held(self.position, priority))
        self.backlog.push(self.inside[-1])
        self.position += 1

    @rule(many=st.integers(0, 4))
    def pop(self, many: int) -> None:
        expected = []
        for _ in range(many or 1):
            if (one := self.next()) is not None:
                self.inside.remove(one)
                self.taken[one.priority] += 1
                expected.append(one)
        found = self.backlog.pop_many(many, 100) if many else [self.backlog.pop()]
        assert [each for each in found if each is not None] == expected
        self.out += expected

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        back = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.backlog.put_back(back)
        self.inside.append(back)

    @invariant()
    def the_same(self) -> None:
        assert self.backlog.first() is self.next()
        assert self.backlog.count == len(self.inside)


TestFairMachine = FairMachine.TestCase


@given(priorities=st.lists(st.integers(0, TOP), max_size=30), share=st.integers(1, 4))
def test_no_level_has_more_than_its_share_in_a_row_while_another_waits(priorities: list[int], share: int) -> None:
    backlog = FairBacklog(TOP, [share] * (TOP + 1))
    for position, priority in enumerate(priorities):
        backlog.push(held(position, priority))
    row, last = 0, -1
    while (one := backlog.pop()) is not None:
        row = row + 1 if one.priority == last else 1
        last = one.priority
        assert row <= share or all(not level.first() for level in backlog.levels[:last])
    assert backlog.count == 0


def test_the_backlog_that_settings_ask_for() -> None:
    assert type(backlog_for(QueueSettings())) is Backlog
    assert backlog_for(QueueSettings(max_priority=4)).top == 4
    assert type(backlog_for(QueueSettings(max_priority=1, fairshare=(1, 1)))) is FairBacklog
    assert type(backlog_for(QueueSettings(last_value_key="k"))) is LastValueBacklog


def test_a_queue(client: Client) -> None:
    client.declare(x_max_priority=2, x_fairshare=[0, 1, 2])
    for priority in (0, 1, 2) * 3:
        client.publish("q", b"%d" % priority, priority=priority)
    bodies = [content.body for _ in range(9) if (content := client.get()) is not None]
    assert b"".join(bodies) == b"221000211"
