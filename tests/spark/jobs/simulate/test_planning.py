"""A simulation with consumers, from sums written by hand: no Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harebell.errors import InvalidArgument
from harebell.routing.topology import Topology
from harebell.spark.jobs.simulate.capacity import Limits
from harebell.spark.jobs.simulate.planning import Consumers, plan
from harebell.spark.jobs.simulate.simulation import KeyLoad, Simulation, simulation_from, topology_of


def topology() -> Topology:
    queues: list[tuple[str, bool, dict[str, object]]] = [
        ("plain", True, {}),
        ("brief", False, {"x-max-length": 100, "x-message-ttl": 60_000}),
        ("small", True, {"x-max-length-bytes": 500}),
        ("safe", True, {"x-queue-type": "quorum"}),
        ("log", True, {"x-queue-type": "stream", "x-max-length-bytes": 1500, "x-max-age": "90s"}),
        ("idle", True, {}),
    ]
    return topology_of(
        json.dumps(
            {
                "queues": [
                    {"vhost": "/", "name": name, "durable": durable, "arguments": arguments}
                    for name, durable, arguments in queues
                ]
            }
        )
    )


def row(kind: str, name: str, at: int | None, messages: int, key: str | None = None, **others: Any) -> dict[str, Any]:
    return {
        "kind": kind, "side": 0, "at": at, "name": name, "key": key, "messages": messages, "bytes": messages * 10,
        "keys": 0, "all": 0, **others,
    }  # fmt: skip


def simulation(**changes: Any) -> Simulation:
    rows = [
        row("exchange", "", 10, 600),
        row("exchange", "", 12, 300),
        row("exchange", "x", 12, 5),
        *(row("queue", name, at, count) for name in ("plain", "brief", "small", "safe", "log")
          for at, count in ((10, 120), (12, 60))),
        row("unroutable", "x", None, 3, "k", keys=2, all=5),
        row("unroutable", "x", None, 2, "l", keys=2, all=5),
        row("refused", "no exchange", None, 7),
    ]  # fmt: skip
    return simulation_from(rows, topology(), **{"window": 60, **changes})


def test_sums_become_a_simulation() -> None:
    result = simulation()
    assert (result.start, result.seconds, result.published) == (600, 180, (600, 0, 305))
    assert (result.messages, result.copies, result.fan_out) == (905, 900, 900 / 905)
    assert (result.unroutable, result.unroutable_key_count) == (5, 2)
    assert result.unroutable_keys == (KeyLoad("x", "k", 3, 30), KeyLoad("x", "l", 2, 20))
    assert result.refused == {"no exchange": 7}
    assert result.exchanges == {"": 900, "x": 5}
    assert [queue.name for queue in result.queues] == ["brief", "log", "plain", "safe", "small", "idle"]
    assert result.queues[0].arrivals == (120, 0, 60)


def test_messages_without_a_time() -> None:
    rows = [row("exchange", "", None, 40), row("queue", "plain", None, 40)]
    result = simulation_from(rows, topology(), window=60)
    assert (result.undated, result.published, result.seconds) == (40, (), 0)
    assert plan(result, topology(), Consumers(), Limits()) is None
    timed = simulation_from(rows, topology(), window=60, duration=20)
    assert (timed.undated, timed.published, timed.window) == (0, (40,), 20)
    assert timed.queues[0].arrivals == (40,)


def test_some_messages_without_a_time() -> None:
    rows = [row("exchange", "", None, 40), row("exchange", "", 3, 2), row("queue", "plain", None, 40)]
    result = simulation_from(rows, topology(), window=60)
    assert (result.undated, result.messages, result.published) == (40, 42, (2,))
    assert (result.queues[0].messages, result.queues[0].arrivals) == (40, (0,))


def test_too_many_windows() -> None:
    rows = [row("exchange", "", 0, 1), row("exchange", "", 10**6, 1)]
    with pytest.raises(InvalidArgument, match="1,000,001 windows of 60 s are too many"):
        simulation_from(rows, topology(), window=60)


def test_what_waits_within_the_queues_own_limits() -> None:
    planned = plan(simulation(), topology(), Consumers({"plain": 1.5}), Limits())
    assert planned is not None
    its = {each.name: each for each in planned.queues}
    assert its["plain"].backlog.depth == (30.0, 0.0, 0.0)
    assert its["safe"].backlog.depth == (120.0, 120.0, 180.0)
    # a limit of a hundred; and after a minute all of the first window's are too old
    assert (its["brief"].backlog.depth, its["brief"].backlog.dropped, its["brief"].backlog.expired) == (
        (100.0, 0.0, 60.0), 20.0, 100.0
    )  # fmt: skip
    assert its["small"].backlog.peak == 50.0
    assert its["log"].stored == 60 * 10  # the last 90 s: a whole window, and half of an empty one
    assert its["plain"].peak_rate == 2.0
    assert planned.depth == (30 + 120 + 100 + 50 + 120, 120 + 50 + 120, 180 + 60 + 50 + 180)


def test_the_load_of_the_busiest_window() -> None:
    planned = plan(simulation(), topology(), Consumers({}, keep_up=2), Limits(), connections=1000)
    assert planned is not None
    # a second: 10 published; 3 queues get 2 each, and 2 replicated ones 2 each on three nodes
    assert planned.cluster.cores == pytest.approx((10 * 0.5 + (6 + 3 * 4) * 19) / 1e6)
    assert planned.cluster.needs["replicas"] == 3
    brief = next(each for each in planned.queues if each.name == "brief")
    assert planned.cluster.memory_bytes == 1000 * 97_907 + 6 * 13_713 + brief.backlog.peak * 4_744
    assert brief.backlog.rate == 2.0


def test_without_consumers_nothing_waits() -> None:
    planned = plan(simulation(), topology(), Consumers(), Limits())
    assert planned is not None
    assert set(planned.depth) == {0.0}


def test_keep_up_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="keep up"):
        Consumers(keep_up=-1)
