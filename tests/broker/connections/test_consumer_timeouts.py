"""The overdue deliveries of a channel, as a plain table of times finds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from harebell.broker.connections import consumer_timeouts
from harebell.broker.connections.consumer_timeouts import ConsumerTimeouts
from harebell.broker.v091.unacked import Unacked

DEFAULT = 50
SHORT = 20

actions = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.sampled_from([None, SHORT])),
        st.tuples(st.just("settle"), st.integers(0, 30)),
        st.tuples(st.just("lease"), st.integers(0, 30)),
        st.tuples(st.just("look"), st.integers(1, 30)),
    ),
    max_size=60,
)


def look(timeouts: ConsumerTimeouts, *arguments: int) -> dict[int, int]:
    steps = timeouts.overdue(*arguments)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return cast("dict[int, int]", end.value)


@pytest.mark.parametrize("step", [1, 512])
@given(actions)
def test_overdue(step: int, script: list[tuple[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_timeouts, "STEP", step)
        unacked = Unacked(cast(Any, None))
        timeouts, now, tag = ConsumerTimeouts(unacked), 0, 0
        seen: dict[int, int] = {}  # tag -> the time of the first look at it
        leases: dict[int, tuple[int, int]] = {}
        for action, value in script:
            if action == "deliver":
                tag += 1
                queue = SimpleNamespace(settings=SimpleNamespace(consumer_timeout=value))
                unacked.entries[tag] = cast(Any, (queue, None, tag, None))
            elif action == "settle":
                unacked.entries.pop(value, None)
            elif action == "lease":
                if value in unacked.entries:
                    timeouts.lease([value], now, DEFAULT)
                    leases[value] = now + DEFAULT, DEFAULT
            else:
                now += value
                expected = {}
                for each, entry in unacked.entries.items():
                    since = seen.setdefault(each, now)
                    timeout = entry[0].settings.consumer_timeout or DEFAULT
                    if each in leases:
                        end, timeout = leases[each]
                        late = end <= now
                    else:
                        late = now - since >= timeout
                    if late:
                        expected[each] = timeout
                assert look(timeouts, now, tag, DEFAULT, SHORT) == expected
