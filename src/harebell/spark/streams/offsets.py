"""Offset arithmetic for stream queues: the contents of a checkpoint, the range of the next batch, its partitions.

A message number is what the broker calls x-stream-offset. A checkpoint entry is {"queue": {"next": n, "base": b}}:
`next` is the first number not read yet, `base` the first number of the batch that ended there; `lost`, where it is
there, counts what was gone before it was read. Both numbers are UNKNOWN where reading begins with whatever message
comes next and its number is not known. `id` or `mark` tell the stream from another one of the same name (`Identity`).

A batch is planned from its own end offset alone, [base, next) of every queue, so one that is planned again after a
crash is the same batch, even the first one, whose start (`latest`) is not in the checkpoint.

Pure functions over plain values; no Spark, no sockets. Spark compares offsets as JSON text: keys are sorted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from harebell.spark.shares import water_fill

__all__ = ["UNKNOWN", "Identity", "Offsets", "Range", "advance", "batch_ranges", "initial", "split"]

Offsets = dict[str, dict[str, Any]]

UNKNOWN: Final = -1
"""In place of the number of the next message of a stream that retention has emptied."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a stream queue from another one that was declared under its name later.

    id    its name for life, which Harebell says
    mark  (second, number): the stream's first message that was stored in that second since 1970 or later has at least
          that number. A stream that was declared after that second has its first message there
    """

    id: str | None = None
    mark: tuple[int, int] | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Identity:
        """The identity in a checkpoint's entry."""
        mark = entry.get("mark")
        return cls(entry.get("id"), None if mark is None else (mark[0], mark[1]))

    def entry(self) -> dict[str, Any]:
        """Its part of a checkpoint's entry."""
        told: dict[str, Any] = {} if self.id is None else {"id": self.id}
        return told if self.mark is None else {**told, "mark": list(self.mark)}


ANY: Final = Identity()
"""Whatever stream has the name."""


@dataclass(frozen=True, slots=True)
class Range:
    """The messages start <= number < end of one stream queue; of the one stream that `identity` tells."""

    queue: str
    start: int
    end: int
    identity: Identity = ANY


def initial(numbers: Mapping[str, int]) -> Offsets:
    """The offset before the first batch: nothing read, reading starts at these numbers."""
    return {queue: {"base": numbers[queue], "next": numbers[queue]} for queue in sorted(numbers)}


def advance(start: Offsets, tails: Mapping[str, int], limit: int | None, now: Offsets | None = None) -> Offsets:
    """The end of the next batch: `start` moved towards `tails`, by at most `limit` messages over all queues.

    `tails` are the first numbers that do not exist yet. `now`, where it is given, is `start` with queues that have come
    since and with places that had to be given up; the batch begins there. Returns `start` itself when nothing is new.
    """
    places = start if now is None else now
    available = {queue: max(0, tails[queue] - entry["next"]) for queue, entry in places.items() if queue in tails}
    if not any(available.values()) and places == start:
        return start
    taken = available if limit is None else water_fill(available, limit)
    return {
        queue: {**places[queue], "base": places[queue]["next"], "next": places[queue]["next"] + taken.get(queue, 0)}
        for queue in sorted(places)
    }


def batch_ranges(end: Offsets) -> list[Range]:
    """The ranges of the batch that ends at `end`, queues by name; queues with nothing new are left out."""
    return [
        Range(queue, end[queue]["base"], end[queue]["next"], Identity.of(end[queue]))
        for queue in sorted(end)
        if end[queue]["next"] > end[queue]["base"]
    ]


def split(ranges: list[Range], partitions: int, least: int) -> list[Range]:
    """The ranges cut into about `partitions` pieces of at least `least` messages, sizes differing by at most one.

    Every range gives at least one piece, so there may be more pieces than asked for; short ranges give fewer.
    """
    total = sum(r.end - r.start for r in ranges)
    pieces = []
    for whole in ranges:
        size = whole.end - whole.start
        share = -(-partitions * size // total)
        count = max(1, min(share, size // least))
        cuts = [whole.start + size * i // count for i in range(count + 1)]
        pieces += [replace(whole, start=a, end=b) for a, b in pairwise(cuts) if b > a]
    return pieces
