"""The profiles' topologies, and that their counted traffic adds up to the message."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from harebell.errors import InvalidArgument
from harebell.routing import emit_definitions
from harebell.spark.jobs.simulate.profiles import PROFILES, profile
from harebell.spark.jobs.simulate.simulation import simulate, topology_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_table() -> None:
    rows = [(each.name, each.servers, each.users, each.queues, each.rate) for each in PROFILES.values()]
    assert rows == [
        ("developer", 1, 1, 10, 1),
        ("production", 2, 100, 50, 10),
        ("departmental", 4, 500, 100, 100),
        ("regional", 16, 2_000, 500, 1_000),
        ("global", 64, 10_000, 1_000, 10_000),
        ("market-data", 200, 5_000, 5_000, 100_000),
    ]
    assert PROFILES["market-data"].flows[0].keys == 10_000  # the table's topics
    for each in PROFILES.values():
        assert sum(flow.share for flow in each.flows) == pytest.approx(1)


@pytest.mark.parametrize("name", PROFILES)
def test_a_topology_is_whole(name: str) -> None:
    chosen = profile(name)
    made = topology_of(json.dumps(emit_definitions(chosen.definitions())))
    assert made.remarks == ()
    assert len(made.queues) == chosen.queues
    bound = {binding.destination.name for binding in made.router.bindings() if binding.source}
    assert len(bound) == sum(flow.queues for flow in chosen.flows if flow.exchange)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no profile 'big'; there are: developer, production"):
        profile("big")
    for scale in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidArgument, match="scale"):
            profile("global").scaled(scale)


@pytest.mark.spark
def test_traffic_adds_up_to_the_message(spark: SparkSession) -> None:
    chosen = profile("developer").scaled(13.7)
    with pytest.raises(InvalidArgument, match="whole number of windows"):
        chosen.traffic(spark, 100, 60)
    frame = chosen.traffic(spark, 5400, 300)
    rows = frame.collect()
    assert sum(row["messages"] for row in rows) == chosen.messages(5400) == 73_980
    assert len({(row["exchange"], row["routing_key"], row["timestamp"]) for row in rows}) == len(rows)
    by_window: dict[datetime, int] = {}
    for row in rows:
        by_window[row["timestamp"]] = by_window.get(row["timestamp"], 0) + row["messages"]
    counts = [by_window[at] for at in sorted(by_window)]
    assert len(counts) == 18
    assert max(counts) == pytest.approx(1.5 * 73_980 / 18, rel=0.02)
    assert counts[0] == pytest.approx(0.5 * 73_980 / 18, rel=0.05)
    shares = {flow.exchange: flow.share for flow in chosen.flows}
    for exchange, share in shares.items():
        sent = sum(row["messages"] for row in rows if row["exchange"] == exchange)
        assert abs(sent - share * 73_980) <= len(counts)
    result = simulate(frame, topology_of(json.dumps(emit_definitions(chosen.definitions()))), window=300)
    assert (result.messages, result.published) == (73_980, tuple(counts))
    assert result.refused == {}
    assert {key.routing_key.split(".")[1] for key in result.unroutable_keys} == {"misc"}
