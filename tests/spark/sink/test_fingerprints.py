"""Rows are told apart by all of their columns, or by their message_id alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from harebell.spark.sink.fingerprints import SIZE, fingerprints


def of(**columns: list[Any]) -> list[bytes]:
    """The fingerprints of rows with these columns."""
    arrays = [
        pa.array(values, pa.map_(pa.string(), pa.string())) if name == "headers" else pa.array(values)
        for name, values in columns.items()
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    bodies = next(values for name, values in columns.items() if name in ("body", "value"))
    found = fingerprints(list(columns), batch, bodies)
    return [found[at : at + SIZE] for at in range(0, len(found), SIZE)]


def test_a_row_is_the_same_in_every_batch() -> None:
    assert of(body=[b"a", b"b"])[1:] == of(body=[b"b"])
    assert of(value=[b"a"]) == of(body=[b"a"])
    assert of(body=[]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"body": [b"a"]}, {"body": [b"b"]}),
        ({"body": [b""], "routing_key": ["ab"]}, {"body": [b"b"], "routing_key": ["a"]}),
        ({"body": [b"c"], "type": ["a"], "app_id": ["b"]}, {"body": [b"c"], "type": ["ab"], "app_id": [""]}),
        ({"body": [b"a"], "priority": [1]}, {"body": [b"a"], "priority": [2]}),
        ({"body": [b"a"], "priority": [None]}, {"body": [b"a"], "priority": [0]}),
        ({"body": [b"a"], "headers": [[("k", "1")]]}, {"body": [b"a"], "headers": [[("k", "2")]]}),
        ({"body": [b"a"], "message_id": ["1"]}, {"body": [b"a"], "message_id": ["2"]}),
        ({"body": [b"a"], "message_id": ["1"]}, {"body": [b"a"], "message_id": [None]}),
    ],
)
def test_different_rows(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> None:
    assert of(**one) != of(**other)


def test_an_id_is_all_that_counts() -> None:
    assert of(body=[b"a"], message_id=["1"], priority=[1]) == of(body=[b"b"], message_id=["1"], priority=[2])
    assert of(body=[b"a", b"a"], message_id=["1", None])[1:] == of(body=[b"a"])


def test_a_row_that_was_read_again_is_the_same() -> None:
    assert of(body=[b"a"], offset=[1], redelivered=[True]) == of(body=[b"a"], offset=[1], redelivered=[False])
    assert of(body=[b"a"], offset=[1]) != of(body=[b"a"], offset=[2])
