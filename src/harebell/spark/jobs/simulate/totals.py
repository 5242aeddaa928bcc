"""Sums of counted messages: the table in which workers hand them on, and how rows are added up.

Rules: sums are of whole numbers and exact, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["RESULT", "Pile", "added", "encoded", "grouped", "result_rows", "slices", "summed"]

RESULT: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("side", pa.int32(), nullable=False),
        pa.field("at", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("key", pa.string()),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
"""Kinds of sums: `exchange` (published, by exchange and window), `queue` (copies, by queue and window), `binding`
(hits, by number), `unroutable` (by exchange and key), `refused` (by reason); and of two topologies, by exchange and
key: `lost` (reached a queue, reaches none), `gained` (the reverse), `moved` (reaches others). `side` is the topology's.
"""

SPREAD_ROWS: Final = 1_000_000  # copies processed at once, when the sums of messages become sums of queues

MERGED_ROWS: Final = 1_000_000  # of sums that wait to be added up

Numbers = Any  # an array of int64: numpy's own type would have to name its shape
_EXACT: Final = 2**53  # below it a float has every whole number


def summed(table: pa.Table, by: list[str]) -> pa.Table:
    """The sums of messages and bytes for each combination of these columns that is there; null is a value.

    By numpy: the group_by of a table costs 0.3 s to load, in every worker, and no less for each row.
    """
    place, first = grouped(table, by)
    groups = table.select(by).take(pa.array(first))
    for name in ("messages", "bytes"):
        groups = groups.append_column(name, pa.array(_sums(place, table.column(name).to_numpy(), len(first))))
    return groups


def grouped(table: pa.Table, by: list[str]) -> tuple[Numbers, Numbers]:
    """The number of each row's combination of these columns, and the first row of every combination."""
    rows = table.num_rows
    codes, size = np.zeros(rows, np.int64), 1
    for name in by:
        values, numbers = encoded(table.column(name))
        if size * max(1, len(values)) >= 2**62:
            distinct, codes = np.unique(codes, return_inverse=True)
            size = len(distinct)
        codes = codes * len(values) + numbers
        size *= len(values)
    distinct, place = _ranked(codes, size)
    first = np.empty(len(distinct), np.int64)
    first[place[::-1]] = np.arange(rows - 1, -1, -1)
    return place, first


def _ranked(codes: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """The distinct codes (of 0 to size - 1), sorted, and each one's place among them."""
    if size > 4 * len(codes) + 4096:
        distinct, place = np.unique(codes, return_inverse=True)
        return distinct, place
    there = np.zeros(size, bool)
    there[codes] = True
    distinct = np.flatnonzero(there)
    number = np.empty(size, np.int64)
    number[distinct] = np.arange(len(distinct))
    return distinct, number[codes]


class Pile:
    """Tables of sums by the same columns, added up whenever they have grown."""

    def __init__(self, *by: str) -> None:
        self._by = list(by)
        self._tables: list[pa.Table] = []
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._rows += table.num_rows
        if self._rows > MERGED_ROWS:
            self._tables = [self.whole()]
            self._rows = -self._tables[0].num_rows  # next time when twice as many are there

    def whole(self) -> pa.Table | None:
        return summed(pa.concat_tables(self._tables, promote_options="default"), self._by) if self._tables else None


def added(codes: Numbers, size: int, *values: Numbers) -> tuple[Numbers, ...]:
    """The distinct codes (of 0 to size - 1), sorted, and for each the sum of its values, of every array of values."""
    distinct, place = _ranked(codes, size)
    return (distinct, *(_sums(place, each, len(distinct)) for each in values))


def _sums(codes: Numbers, values: Numbers, size: int) -> Numbers:
    if np.abs(values).sum(dtype=np.float64) < _EXACT / 2:
        return np.bincount(codes, values, size).astype(np.int64)
    sums = np.zeros(size, np.int64)
    np.add.at(sums, codes, values)
    return sums


def encoded(column: pa.ChunkedArray) -> tuple[pa.Array, Numbers]:
    """The distinct values, and the number of each row's; null is a value."""
    encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def slices(lengths: Any) -> Iterator[slice]:
    """The rows in pieces that become SPREAD_ROWS rows each, or little more."""
    ends = np.cumsum(lengths)
    start, done = 0, 0
    while start < len(lengths) or start == 0:
        stop = max(int(np.searchsorted(ends, done + SPREAD_ROWS, "right")), start + 1)
        stop = min(stop, len(lengths))
        yield slice(start, stop)
        if stop >= len(lengths):
            return
        start, done = stop, int(ends[stop - 1])


def result_rows(
    kind: str, side: int, sums: pa.Table, name: str, key: str | None = None, at: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The sums as rows of RESULT; `name`, `key` and `at` are the columns that become these."""
    count = sums.num_rows
    if not count:
        return
    columns = [
        pa.repeat(pa.scalar(kind, pa.string()), count),
        pa.repeat(pa.scalar(side, pa.int32()), count),
        sums.column(at) if at else pa.nulls(count, pa.int64()),
        sums.column(name).cast(pa.string()),
        sums.column(key) if key else pa.nulls(count, pa.string()),
        sums.column("messages"),
        sums.column("bytes"),
    ]
    yield from pa.Table.from_arrays(columns, schema=RESULT).to_batches()
