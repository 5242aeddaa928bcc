"""Sums packed in many tasks and merged in others are the sums of all. No Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from harebell.spark.jobs.simulate import merging
from harebell.spark.jobs.simulate.merging import MERGED, PACKED, Merging, Packing, heaviest
from harebell.spark.jobs.simulate.totals import MERGED_ROWS, RESULT

Row = dict[str, Any]


def row(kind: str, name: str, key: str | None, messages: int, at: int | None = None, side: int = 0) -> Row:
    return {"kind": kind, "side": side, "at": at, "name": name, "key": key, "messages": messages, "bytes": 3 * messages}


def packed(rows: list[Row]) -> list[pa.RecordBatch]:
    """What a task sends whose counting gave these rows."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert list(batches) == []
        yield from pa.Table.from_pylist(rows, RESULT).to_batches(max_chunksize=7)

    made = list(Packing(count)([]))
    assert all(batch.schema == PACKED for batch in made)
    return made


def merged(tasks: list[list[Row]], top: int, reducers: int = 2) -> list[Row]:
    """Every part goes to one of the reducers, sorted."""
    sent = pa.Table.from_batches([batch for rows in tasks for batch in packed(rows)], PACKED).sort_by("part")
    parts = sent.column("part").to_pylist()
    told: list[Row] = []
    for number in range(reducers):
        mine = sent.filter(pa.array([part % reducers == number for part in parts], pa.bool_()))
        for batch in Merging(top)(mine.to_batches(max_chunksize=2)):
            assert batch.schema == MERGED
            told += batch.to_pylist()
    return heaviest(told, top)


@pytest.mark.parametrize("merged_rows", [5, MERGED_ROWS])
def test_everything_arrives_added_up(monkeypatch: pytest.MonkeyPatch, merged_rows: int) -> None:
    monkeypatch.setattr("harebell.spark.jobs.simulate.totals.MERGED_ROWS", merged_rows)
    monkeypatch.setattr(merging, "PACKED_ROWS", 3)
    chance = random.Random(1)
    tasks = [
        [
            *(row("queue", f"q{chance.randrange(9)}", None, 1, at) for at in (None, 3, 4) for _ in range(20)),
            *(row("unroutable", "x", f"k.{chance.randrange(60)}", 1, side=chance.randrange(2)) for _ in range(90)),
            row("lost", "", "", 7, side=1),
        ]
        for _ in range(4)
    ]  # fmt: skip
    expected: Counter[tuple[Any, ...]] = Counter()
    by = itemgetter("kind", "side", "at", "name", "key")
    for each in (each for rows in tasks for each in rows):
        expected[by(each)] += each["messages"]
    found = merged(tasks, 1000)
    assert {by(each): each["messages"] for each in found} == expected
    assert len(found) == len(expected)
    assert all(each["bytes"] == 3 * each["messages"] for each in found)
    for side in (0, 1):
        keys = [each for each in found if each["kind"] == "unroutable" and each["side"] == side]
        assert {(each["keys"], each["all"]) for each in keys} == {(len(keys), sum(each["messages"] for each in keys))}


def test_of_keys_only_the_heaviest_are_told_and_of_equals_the_first() -> None:
    keys = [row("unroutable", "x", f"k{number}", 1 + number // 10) for number in range(40)]
    found = merged([keys[::2], keys[1::2], keys[35:]], 7)
    assert [(each["key"], each["messages"]) for each in found] == [
        ("k35", 8), ("k36", 8), ("k37", 8), ("k38", 8), ("k39", 8), ("k30", 4), ("k31", 4),
    ]  # fmt: skip
    assert {(each["keys"], each["all"]) for each in found} == {(40, 100 + 20)}


def test_equals_at_the_edge_of_a_part_are_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PARTS", 1)
    found = merged([[row("moved", "x", f"k{number:02}", 5, side=1) for number in reversed(range(30))]], 3)
    assert [each["key"] for each in found] == ["k00", "k01", "k02"]


def test_no_sums_are_none() -> None:
    assert merged([[], []], 20) == []


def test_a_text_has_the_same_part_whatever_is_around_it() -> None:
    texts = ["", "a", "ab", "ba", "a.b", "ä" * 80, None]
    whole = merging._hashes(pa.chunked_array([pa.array(texts, pa.string())])).tolist()
    for number, text in enumerate(texts):
        assert merging._hashes(pa.chunked_array([pa.array(["x", text]).slice(1)])).tolist() == [whole[number]]
    assert len(set(whole)) == len(texts) - 1  # none and the empty text are alike
