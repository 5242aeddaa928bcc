"""Merges the sums of many tasks: each task packs its sums, Spark sends each part to one task, which adds them up.

Rules:

- A sum's part follows from its name and key. So what belongs together meets in one task, which looks at one part after
  the other: it holds one part's keys at a time, not all there are.
- The sums travel as Arrow in binary cells, some 30 a task. As rows of their own they cost the JVM 10 us each, and there
  may be one for every distinct key.
- Of sums by key only the heaviest are listed, with their number. Of equals the first by name and key is heavier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harebell.spark.jobs.simulate.totals import RESULT, Numbers, Pile, summed

__all__ = ["MERGED_DDL", "PACKED_DDL", "Merging", "Packing", "heaviest"]

PARTS: Final = 31
PACKED_ROWS: Final = 65_536  # in one cell: a few megabytes

PACKED: Final = pa.schema([pa.field("part", pa.int32()), pa.field("packed", pa.binary())])
PACKED_DDL: Final = "part int, packed binary"
MERGED: Final = pa.schema([*RESULT, pa.field("keys", pa.int64())])
"""As RESULT. A row with `keys` sums up its kind and side: how many keys there are, and their sums."""
MERGED_DDL: Final = (
    "kind string, side int, at bigint, name string, key string, messages bigint, bytes bigint, keys bigint"
)

_BY: Final = ("kind", "side", "at", "name", "key")
_Count = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Packing:
    """A task's counting, which returns its sums packed."""

    def __init__(self, count: _Count) -> None:
        self._count = count

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = pa.Table.from_batches(self._count(messages), RESULT)
        part = (_hashes(sums.column("name")) + _hashes(sums.column("key"))) % PARTS
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        sums = sums.take(pa.array(order)).combine_chunks()
        start = 0
        for number, end in enumerate(ends.tolist()):
            batches = sums.slice(start, end - start).to_batches(max_chunksize=PACKED_ROWS)
            cells = [batch.serialize().to_pybytes() for batch in batches]
            if cells:
                columns = [pa.array([number] * len(cells), pa.int32()), pa.array(cells, pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, schema=PACKED)
            start = end


def _hashes(column: pa.ChunkedArray) -> Numbers:
    """A number for each text, the same in every process; 0 for none."""
    texts = pc.fill_null(column.combine_chunks(), "").cast(pa.large_binary())
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(len(texts), np.int64)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8)[: ends[-1]].astype(np.int64)
    place = np.arange(len(letters)) - np.repeat(ends[:-1], np.diff(ends))
    weighed = np.concatenate([[0], np.cumsum(letters * (2 * place + 1))])
    return np.asarray(weighed[ends[1:]] - weighed[ends[:-1]])


class Merging:
    """Adds up what Packing made, of parts that come one after the other; of keys the `top` heaviest are listed."""

    def __init__(self, top: int) -> None:
        self._top = top

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        heavy: dict[tuple[str, int], pa.Table] = {}
        whole: dict[tuple[str, int], list[int]] = {}
        for sums in _parts(batches):
            keyed = pc.is_valid(sums.column("key"))
            yield from _merged(sums.filter(pc.invert(keyed)))
            sums = sums.filter(keyed)
            for group in summed(sums, ["kind", "side"]).to_pylist():
                its = group["kind"], group["side"]
                chosen = pc.and_(pc.equal(sums.column("kind"), its[0]), pc.equal(sums.column("side"), its[1]))
                keys = sums.filter(chosen)
                sizes = keys.num_rows, group["messages"], group["bytes"]
                whole[its] = [one + other for one, other in zip(whole.get(its, (0, 0, 0)), sizes, strict=True)]
                known = [heavy[its]] if its in heavy else []
                heavy[its] = self._heaviest(pa.concat_tables([*known, keys], promote_options="default"))
        for table in heavy.values():
            yield from _merged(table)
        for (kind, side), (count, messages, size) in whole.items():
            row = {"kind": kind, "side": side, "messages": messages, "bytes": size, "keys": count}
            yield pa.RecordBatch.from_pylist([row], MERGED)

    def _heaviest(self, keys: pa.Table) -> pa.Table:
        if keys.num_rows > self._top:  # sorting texts is dear: only those that may be among them
            messages = keys.column("messages")
            least = pc.sort_indices(messages, sort_keys=[("", "descending")])[: self._top]
            keys = keys.filter(pc.greater_equal(messages, pc.min(messages.take(least))))
        order = [("messages", "descending"), ("name", "ascending"), ("key", "ascending")]
        return keys.take(pc.sort_indices(keys, sort_keys=order)[: self._top])


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The sums of one part after the other."""
    current: int | None = None
    pile = Pile(*_BY)
    for batch in batches:
        for number, cell in zip(batch.column("part").to_pylist(), batch.column("packed"), strict=True):
            if number != current:
                if (whole := pile.whole()) is not None:
                    yield whole
                current, pile = number, Pile(*_BY)
            pile.add(pa.Table.from_batches([pa.ipc.read_record_batch(cell.as_buffer(), RESULT)]))
    if (whole := pile.whole()) is not None:
        yield whole


def _merged(sums: pa.Table) -> Iterator[pa.RecordBatch]:
    if sums.num_rows:
        columns = [sums.column(name) for name in RESULT.names]
        yield from pa.Table.from_arrays([*columns, pa.nulls(sums.num_rows, pa.int64())], schema=MERGED).to_batches()


def heaviest(rows: Sequence[Any], top: int) -> list[dict[str, Any]]:
    """The results of the merging tasks as one: sums, and of keys the `top` heaviest of each kind and side, with `keys`
    and `all`: how many keys there were, and messages of them together."""
    whole: dict[tuple[str, int], list[int]] = {}
    keys: dict[tuple[str, int], list[dict[str, Any]]] = {}
    results: list[dict[str, Any]] = []
    for row in rows:
        its = row["kind"], row["side"]
        if row["keys"] is not None:
            before = whole.get(its, [0, 0])
            whole[its] = [before[0] + row["keys"], before[1] + row["messages"]]
            continue
        made = {name: row[name] for name in RESULT.names}
        if row["key"] is None:
            results.append(made)
        else:
            keys.setdefault(its, []).append(made)
    for its, its_keys in keys.items():
        its_keys.sort(key=lambda row: (-row["messages"], row["name"], row["key"]))
        results += [{**row, "keys": whole[its][0], "all": whole[its][1]} for row in its_keys[:top]]
    return results
