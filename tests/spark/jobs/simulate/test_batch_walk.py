"""Keys walked through exchanges together: each reaches what the tracer says of it alone. No Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from harebell.routing import parse_definitions
from harebell.routing.topology import topology
from harebell.routing.trace import Tracer
from harebell.spark.jobs.simulate import batch_walk as walking
from harebell.spark.jobs.simulate.batch_walk import Walker
from harebell.spark.jobs.simulate.patterns import TooMany
from tests.fixtures.profiles import scaled
from tests.routing.topologies import EXCHANGES, KEYS, QUEUES, definitions


@settings(max_examples=scaled(60))
@given(definitions(), st.lists(st.sampled_from((*KEYS, "b.b", "a..b")), min_size=1, max_size=9, unique=True))
def test_every_key_reaches_what_it_reaches_alone(file: dict[str, Any], keys: list[str]) -> None:
    tracer = Tracer(topology(parse_definitions(file)).router)
    numbers = {"a queue of another topology": 0}
    walker = Walker(tracer, numbers)
    names = list(numbers)
    kinds = {each["name"]: (each["type"], each["internal"]) for each in file["exchanges"]}
    for name in ("", "amq.direct", *EXCHANGES):
        if not walker.takes(name):
            assert name in kinds
            continue
        assert kinds.get(name, ("direct", False)) in [(kind, False) for kind in ("direct", "fanout", "topic")]
        reached = walker.walk(name, pa.array(keys, pa.string()))
        expected = [tracer.trace(name, [key]) for key in keys]
        bindings = sorted(zip(reached.binding_keys.tolist(), reached.bindings.tolist(), strict=True))
        assert bindings == sorted((at, number) for at, each in enumerate(expected) for number in each.bindings)
        queues = sorted((at, names[number]) for at, number in zip(reached.queue_keys, reached.queues, strict=True))
        assert queues == sorted((at, queue) for at, each in enumerate(expected) for queue in each.queues)


def walker(**exchange: object) -> Walker:
    file = {
        "exchanges": [{"vhost": "/", "name": "x", **exchange}],
        "queues": [{"vhost": "/", "name": name} for name in QUEUES],
        "bindings": [
            {"vhost": "/", "source": "x", "destination": name, "destination_type": "queue", "routing_key": "k"}
            for name in QUEUES
        ],
    }
    return Walker(Tracer(topology(parse_definitions(file)).router), {})


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_more_than_can_be_held_is_refused_but_for_one_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "MAX_PAIRS", 2)
    one = walker(type=kind)
    with pytest.raises(TooMany):
        one.walk("x", pa.array(["k", "l"]))
    assert one.walk("x", pa.array(["k"])).queues.tolist() == [0, 1, 2]


def test_what_it_leaves_to_others() -> None:
    assert not walker(type="headers").takes("x")
    assert not walker(type="x-modulus-hash").takes("x")
    assert not walker(type="topic").takes("nowhere")
    assert not walker(type="topic", internal=True).takes("x")
    assert not walker(type="topic", arguments={"alternate-exchange": "amq.headers"}).takes("x")
    assert walker(type="topic", arguments={"alternate-exchange": "nowhere"}).takes("x")
