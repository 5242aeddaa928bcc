"""Records in the broker and back, and what they make of the rows of another attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harebell.errors import InvalidArgument
from harebell.spark.sink.ledger import Memory, Place, Record

PLACE = Place("query", 5, 2)


def prints(*rows: int) -> bytes:
    return b"".join(row.to_bytes(8, "little") for row in rows)


def record(own: int, first: int, serial: int, *rows: int, replaces: Sequence[int] = ()) -> Record:
    return Record(5, own, first, range(serial, serial + len(rows)), prints(*rows), replaces)


def memory(*records: Record, complete: Sequence[int] = (), rejected: Sequence[int] = ()) -> Memory:
    def are_complete(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.isin(numbers, np.array(complete, np.int64))

    return Memory(records, are_complete, rejected)


def test_names() -> None:
    assert PLACE.ledger == "harebell.spark.query.2"
    assert PLACE.session == "harebell.spark/query/5/2"
    assert str(PLACE) == "partition 2 of batch 5 of query query"


@pytest.mark.parametrize("serials", [range(10, 13), [10, 7, 99]])
@pytest.mark.parametrize("replaces", [[], [1, 2]])
def test_a_record_comes_back(serials: Sequence[int], replaces: list[int]) -> None:
    one = Record(5, 7, 9, serials, prints(1, 2, 3), replaces)
    assert len(one) == 3
    back = Record.read(one.headers, one.fingerprints)
    assert (back.batch, back.own, back.first, list(back.serials)) == (5, 7, 9, list(serials))
    assert (back.fingerprints, list(back.replaces)) == (one.fingerprints, replaces)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        ({"batch": 1, "own": 2, "first": 3}, prints(1)),
        ({"batch": 1, "own": 2, "first": 3, "serial": 0}, b"1234567"),
        ({"batch": 1, "own": 2, "first": 3, "serials": [1, 2]}, prints(1)),
        ({"batch": "1", "own": 2, "first": 3, "serial": 0}, prints(1)),
    ],
)
def test_what_is_no_record(headers: dict[str, Any], body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="no record of this sink"):
        Record.read(headers, body)


def test_nothing_is_remembered_of_nothing() -> None:
    empty = memory()
    assert (len(empty), empty.next, empty.serial) == (0, 0, 0)
    assert empty.recognise(prints(1, 2)) == [-1, -1]
    assert empty.numbers.tolist() == []


def test_rows_are_recognised_once_in_any_order() -> None:
    found = memory(record(0, 2, 0, 11, 12, 11), record(1, 6, 3, 13), complete=[2, 6])
    assert (len(found), found.next, found.serial) == (4, 7, 4)
    assert found.numbers.tolist() == [3, 4]
    places = found.recognise(prints(13, 99, 11, 12, 11, 11))
    assert [place < 0 for place in places] == [False, True, False, False, False, True]
    numbers = [found.number(place) for place in places if place >= 0]
    assert sorted(numbers) == [2, 3, 4, 6]
    assert numbers[0] == 6
    assert [found.serial_of(place) for place in places if place >= 0] == [3, *[number - 2 for number in numbers[1:]]]
    assert [found.is_complete(place) for place in places if place >= 0] == [number in (2, 6) for number in numbers]
    assert found.print_of(places[0]) == prints(13)
    assert len(found) == 0
    assert found.recognise(prints(11)) == [-1]


def test_a_later_record_wins() -> None:
    """An attempt had announced rows under numbers that it never sent; the next one used these for others."""
    found = memory(record(0, 1, 0, 11, 12), record(2, 2, 2, 13))
    assert found.recognise(prints(12)) == [-1]
    assert [found.number(place) for place in found.recognise(prints(11, 13))] == [1, 2]


def test_what_was_rejected_is_sent_again_under_another_number() -> None:
    found = memory(record(0, 1, 0, 11, 12), complete=[1, 2], rejected=[2])
    places = found.recognise(prints(11, 12))
    assert [found.is_rejected(place) for place in places] == [False, True]
    assert found.numbers.tolist() == []
    replaced = memory(record(0, 1, 0, 11, 12), record(3, 4, 1, 12, replaces=[2]), complete=[1, 2])
    assert len(replaced) == 2
    assert replaced.numbers.tolist() == [4]
