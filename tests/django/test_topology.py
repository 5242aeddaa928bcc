"""The ladder of delays: whatever the delay, a message waits that long, by a model of topic exchanges."""

from __future__ import annotations

from hypothesis import given, strategies as st

from harebell.django import topology
from harebell.django.topology import MAX_DELAY, RUNGS, Names, route

NAMES = Names("p")


def climbed(key: str) -> int:
    """The seconds that a message with this key waits on its way down the ladder."""
    seconds = 0
    for number in reversed(range(RUNGS)):
        waits, passes = topology._patterns(number)
        found = [matches(waits, key), matches(passes, key)]
        assert sorted(found) == [False, True], (number, key)  # exactly one way
        seconds += 2**number if found[0] else 0
    return seconds


def matches(pattern: str, key: str) -> bool:
    words, keys = pattern.split("."), key.split(".")
    fixed = words[:-1]
    return len(keys) >= len(fixed) and all(one in ("*", other) for one, other in zip(fixed, keys, strict=False))


@given(st.floats(min_value=0.001, max_value=MAX_DELAY))
def test_a_delay_is_at_least_what_was_asked(delay: float) -> None:
    exchange, key, headers = route(NAMES, "RabbitMQ", "a.queue", delay)
    assert exchange == NAMES.rung(RUNGS - 1)
    assert headers == {}
    assert delay <= climbed(key) < delay + 1
    assert key.endswith(".a/queue")


def test_no_delay_and_the_longest() -> None:
    assert route(NAMES, "RabbitMQ", "q", 0) == (NAMES.exchange, "q", {})
    assert climbed(route(NAMES, "RabbitMQ", "q", 1e12)[1]) == MAX_DELAY
    assert route(NAMES, "Harebell", "q", 1.2345) == (NAMES.delayed, "q", {"x-delay": 1235})
