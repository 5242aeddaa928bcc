"""Counting Arrow batches: every sum is what routing message by message gives. No Spark."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from harebell.errors import AccessRefused, NotFound
from harebell.routing import cc_bcc, parse_definitions
from harebell.routing.topology import Topology, exchange_types, topology
from harebell.routing.trace import Tracer
from harebell.spark.jobs.simulate import batch_walk, counting, key_routing, patterns, totals
from harebell.spark.jobs.simulate.counting import RESULT, Counting, needed
from tests.fixtures.profiles import scaled
from tests.routing.topologies import definitions, messages

Row = dict[str, Any]
FACTS = ("exchange", "routing_key", "headers", "message_id")


def first(count: int) -> int:
    return 0


def made(file: dict[str, Any]) -> Topology:
    return topology(parse_definitions(file), types=exchange_types(first))


def table(rows: list[Row], facts: tuple[str, ...]) -> pa.Table:
    fields = [pa.field(name, pa.string()) for name in facts]
    numbers = [pa.field(name, pa.int64()) for name in ("at", "messages", "bytes")]
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields, *numbers]))


def counted(rows: list[Row], *topologies: Topology, facts: tuple[str, ...] = FACTS, name: str = "") -> Counter[Any]:
    """The sums of a task as (kind, side, at, name, key) -> (messages, bytes), each line added up."""
    task = Counting(name or uuid.uuid4().hex, [each.router for each in topologies], facts)
    messages: Counter[Any] = Counter()
    for batch in task(table(rows, facts).to_batches(max_chunksize=2)):
        assert batch.schema == RESULT
        for row in batch.to_pylist():
            at = (row["kind"], row["side"], row["at"], row["name"], row["key"])
            messages[at, "messages"] += row["messages"]
            messages[at, "bytes"] += row["bytes"]
    return +messages


def expected(rows: list[Row], *topologies: Topology) -> Counter[Any]:
    """The same, one message after the other."""
    sums: Counter[Any] = Counter()

    def add(row: Row, kind: str, side: int, at: int | None, name: str, key: str | None = None) -> None:
        sums[(kind, side, at, name, key), "messages"] += row["messages"]
        sums[(kind, side, at, name, key), "bytes"] += row["bytes"]

    for row in rows:
        headers = json.loads(row["headers"] or "{}")
        reached: list[set[str]] = []
        add(row, "exchange", 0, row["at"], row["exchange"])
        for side, each in enumerate(topologies):
            try:
                trace = Tracer(each.router).trace(
                    row["exchange"], [row["routing_key"], *cc_bcc(headers)], headers, {"message_id": row["message_id"]}
                )
            except (NotFound, AccessRefused) as error:
                add(row, "refused", side, None, error.detail)
                reached.append(set())
                continue
            reached.append(set(trace.queues))
            for queue in trace.queues:
                add(row, "queue", side, row["at"], queue)
            for number in trace.bindings:
                add(row, "binding", side, None, str(number))
            if not trace.queues:
                add(row, "unroutable", side, None, row["exchange"], row["routing_key"])
        if len(reached) == 2 and reached[0] != reached[1]:
            kind = "moved" if all(reached) else "lost" if reached[0] else "gained"
            add(row, kind, 1, None, row["exchange"], row["routing_key"])
    return +sums


rows_of = st.lists(
    st.builds(
        lambda message, at, count, size: {
            "exchange": message[0], "routing_key": message[1], "message_id": message[3],
            "headers": json.dumps(message[2]) if message[2] else None,
            "at": at, "messages": count, "bytes": count * size,
        },
        messages(), st.sampled_from((None, 3, 4)), st.integers(1, 5), st.integers(0, 9),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=scaled(80))
@given(definitions(), rows_of)
def test_the_sums_are_those_of_message_by_message(file: dict[str, Any], rows: list[Row]) -> None:
    one = made(file)
    assert counted(rows, one) == expected(rows, one)


@settings(max_examples=scaled(80))
@given(definitions(), definitions(), rows_of)
def test_and_of_two_topologies(file: dict[str, Any], other: dict[str, Any], rows: list[Row]) -> None:
    before, after = made(file), made(other)
    assert counted(rows, before, after) == expected(rows, before, after)


@settings(max_examples=scaled(60))
@given(definitions(), definitions(), rows_of)
def test_and_of_batches_that_are_cut_to_pieces(file: dict[str, Any], other: dict[str, Any], rows: list[Row]) -> None:
    before, after = made(file), made(other)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (patterns, "MAX_PAIRS", 3), (batch_walk, "MAX_PAIRS", 3), (key_routing, "BATCH_KEYS", 3),
            (totals, "MERGED_ROWS", 4),
            (totals, "SPREAD_ROWS", 2), (counting, "BUFFER_ROWS", 4),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        assert counted(rows, before, after) == expected(rows, before, after)


def test_sums_beyond_what_a_float_holds_are_exact() -> None:
    huge = 2**60 + 1
    rows = [row("b.1", huge, 1), row("b.2", 1, 1), row("b.1", 1, 1)]
    sums = counted(rows, simple(), facts=("exchange", "routing_key"))
    assert sums[("queue", 0, 0, "b", None), "messages"] == sums[("binding", 0, None, "1", None), "bytes"] == huge + 2


def simple(**exchange: object) -> Topology:
    return made(
        {
            "exchanges": [{"vhost": "/", "name": "x", "type": "topic", **exchange}],
            "queues": [{"vhost": "/", "name": name} for name in ("a", "b")],
            "bindings": [
                {"vhost": "/", "source": "x", "destination": name, "destination_type": "queue", "routing_key": key}
                for name, key in (("a", "#"), ("b", "b.*"))
            ],
        }
    )


def row(key: str, count: int = 1, size: int = 10, **others: object) -> Row:
    return {"exchange": "x", "routing_key": key, "at": 0, "messages": count, "bytes": count * size, **others}


def test_what_a_worker_remembers_is_bounded_and_no_result_hangs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "REMEMBERED", 3)
    monkeypatch.setattr(counting, "BUFFER_ROWS", 4)
    monkeypatch.setattr(totals, "SPREAD_ROWS", 2)
    rows = [row(f"b.{number % 7}", number + 1) for number in range(30)]
    sums = counted(rows, simple(), facts=("exchange", "routing_key"))
    total = sum(each["messages"] for each in rows)
    assert sums[("queue", 0, 0, "a", None), "messages"] == sums[("queue", 0, 0, "b", None), "messages"] == total
    assert sums[("queue", 0, 0, "b", None), "bytes"] == 10 * total


def test_the_next_task_of_a_job_goes_on_with_what_the_last_one_found() -> None:
    one = simple()
    first_time = counted([row("b.1")], one, facts=("exchange", "routing_key"), name="job")
    worker = counting._workers["job"]
    assert counted([row("b.1")], one, facts=("exchange", "routing_key"), name="job") == first_time
    assert counting._workers == {"job": worker}
    counted([row("b.1")], one, facts=("exchange", "routing_key"), name="another")
    assert list(counting._workers) == ["another"]


def test_no_rows_give_no_sums() -> None:
    assert not counted([], simple())


def test_a_copy_header_that_is_no_array_is_refused() -> None:
    sums = counted([row("b.1", headers='{"CC":"a"}', message_id=None)], simple())
    assert sums[("refused", 0, None, 'invalid message: {unacceptable_type_in_header,"CC",longstr}', None), "messages"]
    assert not [at for at, _ in sums if at[0] == "queue"]


def test_chance_gets_its_share_and_no_message_is_lost() -> None:
    file = {
        "exchanges": [{"vhost": "/", "name": "x", "type": "x-random"}],
        "queues": [{"vhost": "/", "name": name} for name in ("a", "b")],
        "bindings": [
            {"vhost": "/", "source": "x", "destination": name, "destination_type": "queue"} for name in ("a", "b")
        ],
    }
    turn = Turns()
    router = topology(parse_definitions(file), types=exchange_types(turn))
    sums = counted([row("k", 1_000_003, 7), row("l", 3)], router, facts=("exchange", "routing_key"))
    halves = [sums[("queue", 0, 0, name, None), "messages"] for name in ("a", "b")]
    assert sum(halves) == 1_000_006
    assert abs(halves[0] - halves[1]) < 2_100  # a row of a million is drawn a thousand times
    assert sum(sums[("queue", 0, 0, name, None), "bytes"] for name in ("a", "b")) == 7 * 1_000_003 + 30
    assert sums[("binding", 0, None, "0", None), "messages"] == halves[0]


class Turns:
    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, count: int) -> int:
        self.taken += 1
        return self.taken % count


def test_the_columns_that_decide() -> None:
    def columns(type: str, **arguments: object) -> tuple[str, ...]:
        return needed([simple().router, simple(type=type, arguments=arguments).router])

    assert columns("direct") == ()
    assert columns("headers") == ("headers",)
    assert columns("x-delayed-message", **{"x-delayed-type": "topic"}) == ("headers",)


def test_hashed_properties_are_among_them() -> None:
    file = {
        "exchanges": [
            {"vhost": "/", "name": name, "type": "x-consistent-hash", "arguments": {"hash-property": what}}
            for name, what in (("x", "message_id"), ("y", "timestamp"), ("z", "correlation_id"))
        ],
        "queues": [{"vhost": "/", "name": "a"}],
        "bindings": [
            {"vhost": "/", "source": name, "destination": "a", "destination_type": "queue", "routing_key": "1"}
            for name in ("x", "y")
        ],
    }
    assert needed([made(file).router]) == ("message_id", "timestamp")
