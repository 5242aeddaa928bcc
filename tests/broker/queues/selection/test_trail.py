"""Trails: readers get each message once, in order, whatever leaves and is swept meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell.broker.message import Address, Held, Message
from harebell.broker.queues.contents.backlog import Level
from harebell.broker.queues.selection import trail as trails
from harebell.broker.queues.selection.trail import Trail
from harebell.protocol.v091 import Content

MESSAGE = Message(Address("", "q"), Content(1, b"", b"", 0))  # no message is looked into
STEPS = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 7)),
    st.tuples(st.just("lose"), st.integers(0, 99)),
    st.tuples(st.just("sweep"), st.integers(1, 3)),
    st.tuples(st.just("read"), st.integers(0, 2)),
)


@given(st.integers(0, 12), st.integers(0, 12), st.lists(STEPS, max_size=40), st.sampled_from((1, 2, 5)))
def test_readers(before: int, swept: int, steps: list[tuple[str, int]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trails, "BLOCK", block)
        level, held = Level(), list[Held]()

        def push(count: int) -> None:
            for _ in range(count):
                held.append(Held(MESSAGE, 2 * len(held)))  # other levels have the positions between
                level.line.append(held[-1])

        push(before)
        for _ in range(min(swept, before)):
            level.line.swept.append(level.line.ready.popleft())
        trail, places, seen = Trail(level), [0, 0, 0], [list[Held](), list[Held](), list[Held]()]

        def read(reader: int) -> None:
            found, places[reader] = trail.read(places[reader])
            seen[reader] += found

        for what, number in steps:
            if what == "push":
                push(number)
                assert trail.read_new()
                assert not trail.read_new()
            elif what == "lose" and held:
                held[number % len(held)].gone = True
            elif what == "sweep":
                trail.sweep(number)
            elif what == "read":
                read(number)
        assert trail.end == (held[-1].position + 1 if held else 0)
        for reader in range(3):
            while places[reader] < trail.end:
                read(reader)
            positions = [each.position for each in seen[reader]]
            assert positions == sorted(set(positions))
            missed = [each for each in held if each not in seen[reader]]
            assert not [each for each in missed if not each.gone]
        for each in held:
            each.gone = True
        for _ in range(2):  # the rest of a round, and a whole one
            trail.sweep(2 * len(held) + 5)
        assert trail.size == 0
        assert trail.read(0)[0] == []


def test_what_came_back_is_no_part_of_it() -> None:
    level = Level()
    level.returned.push(Held(MESSAGE, 3))
    trail = Trail(level)
    assert (trail.end, trail.size, trail.read(0)) == (0, 0, ([], 0))
    assert [each.position for each in trail.returned(0, 9)] == [3]
    assert trail.returned(4, 9) == []
