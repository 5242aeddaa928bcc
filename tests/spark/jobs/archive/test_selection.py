"""Which rows of an archive are chosen: exact rows for every filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive import read
from harebell.spark.jobs.archive.selection import Selection, chosen, header_matcher, key_matcher
from tests.spark.jobs.filling import DAY, archive_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [("a.*", [True, False, False, True]), ("#", [True, True, True, True]), ("*", [False, True, False, False])],
)
def test_keys_match_as_in_a_topic_exchange(pattern: str, matched: list[bool]) -> None:
    assert key_matcher(pattern)(pa.array(["a.b", "a", "a.b.c", "a.b"])).to_pylist() == matched


def test_headers_match_as_text() -> None:
    texts = pa.array(['{"a":1,"b":"x"}', '{"a":1}', None, '{"a":"1","b":"x"}', '{"a":true}', '{"b":null}'])
    assert header_matcher((("a", "1"), ("b", "x")))(texts).to_pylist() == [True, False, False, True, False, False]
    assert header_matcher((("a", "true"),))(texts).to_pylist() == [False, False, False, False, True, False]


def test_a_selection_in_json() -> None:
    whole = Selection(DAY, datetime(2026, 1, 6), ("q", "r"), "a.#", (("h", "v"),), "priority > 1", 5)
    assert Selection.from_json(whole.to_json()) == Selection(
        DAY, datetime(2026, 1, 6, tzinfo=UTC), ("q", "r"), "a.#", (("h", "v"),), "priority > 1", 5
    )
    assert Selection.from_json(Selection().to_json()) == Selection()
    with pytest.raises(InvalidArgument, match="limit is 0"):
        Selection(limit=0)
    ahead, behind = timezone(10 * HOUR), timezone(-10 * HOUR)
    with pytest.raises(InvalidArgument, match=r"since is 0001-01-01 .*, which is before the year 1"):
        Selection(since=datetime(1, 1, 1, tzinfo=ahead))
    with pytest.raises(InvalidArgument, match=r"until is 9999-12-31 .*, which is before the year 1 or after 9999"):
        Selection(until=datetime(9999, 12, 31, 23, tzinfo=behind))


@pytest.mark.spark
def test_every_filter(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"body": b"0", "timestamp": DAY - HOUR, "routing_key": "a.b", "headers": '{"tenant":"x"}', "priority": 1},
        {"body": b"1", "timestamp": DAY, "routing_key": "a.c", "headers": '{"tenant":"y"}', "priority": 5},
        {"body": b"2", "timestamp": DAY + 24 * HOUR, "routing_key": "b", "queue": "r/s"},
        {"body": b"3", "routing_key": "a.b.c"},
    ]
    archive = archive_of(tmp_path / "archive", rows, at=DAY + HOUR)
    frame = read(spark, archive.root)

    def bodies(selection: Selection) -> list[int]:
        return sorted(int(row.body) for row in chosen(frame, selection).select("body").collect())

    expected = [
        (Selection(), [0, 1, 2, 3]),
        (Selection(since=DAY), [1, 2, 3]),
        (Selection(until=DAY), [0]),
        (Selection(since=DAY.replace(tzinfo=None), until=(DAY + HOUR).replace(tzinfo=None)), [1]),
        (Selection(since=DAY.astimezone(timezone(5 * HOUR)) + HOUR), [2, 3]),
        (Selection(queues=("r/s", "none")), [2]),
        (Selection(key="a.*"), [0, 1]),
        (Selection(headers=(("tenant", "y"),)), [1]),
        (Selection(where="priority > 1 OR routing_key = 'b'"), [1, 2]),
        (Selection(since=DAY, key="a.#", where="priority IS NULL"), [3]),
    ]
    assert [(selection, bodies(selection)) for selection, _ in expected] == expected
    with pytest.raises(InvalidArgument, match=r"condition .*nothere"):
        chosen(frame, Selection(where="nothere = 1"))
    with pytest.raises(InvalidArgument, match=r"condition .*: Syntax error at or near"):
        chosen(frame, Selection(where="priority >"))


@pytest.mark.spark
def test_queues_whose_folders_could_mean_something_else(spark: SparkSession, tmp_path: Path) -> None:
    names = [
        "__HIVE_DEFAULT_PARTITION__",
        "HIVE_DEFAULT_PARTITION",
        "null",
        "1",
        "2026-01-05",
        "a/b",
        "a=b",
        "-",
        "%2F",
    ]
    frame = read(spark, archive_of(tmp_path / "archive", [{"queue": name} for name in names]).root)
    for name in names:
        found = chosen(frame, Selection(queues=(name,))).select("queue").collect()
        assert [row.queue for row in found] == [name]
