"""What waits, when it is gone, and how many nodes: arithmetic, with numbers that one can check by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harebell.errors import InvalidArgument
from harebell.spark.jobs.simulate.capacity import Limits, Load, backlog, cluster, consumer_rate, parse_consumers


def test_lindley() -> None:
    waits = backlog([100, 300, 0, 50], seconds=10, rate=15)
    assert waits.depth == (0.0, 150.0, 0.0, 0.0)
    assert (waits.peak, waits.peak_window) == (150.0, 1)
    assert waits.drain_seconds == 0.0
    assert waits.utilisation == 450 / 600


def test_what_is_left_is_drained_afterwards_or_never() -> None:
    assert backlog([100], 10, 5).drain_seconds == 10.0
    waits = backlog([100, 20], 10, 0)
    assert (waits.depth, waits.drain_seconds, waits.utilisation) == ((100.0, 120.0), None, None)
    assert backlog([0, 0], 10, 0).drain_seconds == 0.0
    assert backlog([], 10, 1).depth == ()


def test_a_length_limit_drops_the_rest() -> None:
    waits = backlog([100, 0, 100], 10, 2, max_length=50)
    assert (waits.depth, waits.dropped) == ((50.0, 30.0, 50.0), 30.0 + 60.0)


def test_no_more_waits_than_came_within_the_time_to_live() -> None:
    waits = backlog([100, 100, 0], 10, 0, ttl=5)
    assert (waits.depth, waits.expired) == ((50.0, 50.0, 0.0), 200.0)
    assert backlog([100, 100], 10, 0, ttl=20).expired == 0.0
    assert backlog([100, 100, 100], 10, 0, ttl=15).depth == (100.0, 150.0, 150.0)


@given(st.lists(st.integers(0, 1000), max_size=30), st.floats(0, 50), st.none() | st.integers(0, 500),
       st.none() | st.floats(0.1, 100))  # fmt: skip
def test_nothing_is_lost_in_the_sums(arrivals: list[int], rate: float, length: int | None, ttl: float | None) -> None:
    waits = backlog(arrivals, 10, rate, max_length=length, ttl=ttl)
    left = waits.depth[-1] if waits.depth else 0.0
    consumed = sum(arrivals) - left - waits.dropped - waits.expired
    assert -1e-6 <= consumed <= rate * 10 * len(arrivals) + 1e-6
    assert all(depth >= 0 and (length is None or depth <= length) for depth in waits.depth)


def test_consumers_by_name_then_by_pattern() -> None:
    rates = parse_consumers({"mail.*": 5, "mail.urgent": {"consumers": 4, "rate": 2.5}, "*": 1})
    assert [consumer_rate(name, rates) for name in ("mail.urgent", "mail.slow", "x")] == [10.0, 5.0, 1.0]
    assert consumer_rate("x", {"y": 1.0}) is None


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "consumers are an object"),
        ({"q": "5"}, "consumers of 'q': expected messages a second"),
        ({"q": True}, "consumers of 'q': expected"),
        ({"q": -1}, "consumers of 'q': expected"),
        ({"q": {"rate": 1}}, "consumers of 'q': an object has the keys"),
        ({"q": {"rate": 1, "consumers": None}}, "consumers of 'q': expected"),
    ],
)
def test_consumers_are_checked(document: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_consumers(document)


def load(**changes: Any) -> Load:
    nothing: dict[str, Any] = {
        "published": 0.0, "copies": 0.0, "replicated_copies": 0.0, "waiting": 0.0, "disk_bytes": 0.0,
        "replicated_bytes": 0.0, "connections": 0, "queues": 0,
    }  # fmt: skip
    return Load(**{**nothing, **changes})


def test_the_processor_decides() -> None:
    # 100,000 a second, five copies each: 0.05 + 9.5 cores, of 1.4 a node
    its = cluster(load(published=100_000, copies=500_000), Limits())
    assert (its.nodes, its.decided_by) == (7, "processor")
    assert its.cores == pytest.approx(9.55)
    assert its.needs == {"processor": 7, "memory": 1}


def test_the_memory_decides() -> None:
    its = cluster(load(connections=10_000, queues=1_000, waiting=1_000_000), Limits())
    assert its.memory_bytes == 10_000 * 97_907 + 1_000 * 13_713 + 1_000_000 * 4_744
    assert (its.nodes, its.decided_by) == (4, "memory")


def test_replicas_cost_and_ask_for_nodes() -> None:
    its = cluster(load(replicated_copies=1_000, replicated_bytes=2**30, disk_bytes=2**30), Limits(disk_gib=1))
    assert its.needs == {"processor": 1, "memory": 1, "disk": 4, "replicas": 3}
    assert (its.nodes, its.decided_by, its.disk_bytes) == (4, "disk", 2**32)
    assert its.cores == pytest.approx(3 * 0.019)


def test_a_queue_that_no_number_of_nodes_carries() -> None:
    its = cluster(load(copies=60_000, busiest_queues=(("hot", 60_000.0), ("cold", 1.0))), Limits())
    assert its.too_busy == (("hot", 60_000.0),)


@pytest.mark.parametrize("changes", [{"cores": 0}, {"utilisation": 1.5}, {"watermark": -1}, {"replicas": 0}])
def test_limits_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        Limits(**changes)
