"""What the attempts at one partition of a write have noted in the broker: which row has which number in the session.

Before rows are sent, a record with their fingerprints is published into a queue of the query's and the partition's own,
in the same session, and is on disk. So an attempt that comes later, on whatever machine and in whatever order it gets
its rows, gives each row the number that it had, and the broker drops those that it has.

A record belongs to a batch. Those of earlier batches are removed when a later one begins: Spark has logged them then.
Those of a later batch tell an attempt at an earlier one that its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from harebell.errors import InvalidArgument
from harebell.spark.sink.fingerprints import SIZE

if TYPE_CHECKING:
    from harebell.protocol.v091 import Table

__all__ = ["Memory", "Place", "Record"]

NAME: Final = "harebell.spark"  # how the names of queues and sessions begin
FIELDS: Final = ("batch", "own", "first")


@dataclass(frozen=True, slots=True)
class Place:
    """One partition of one batch of a query, or of a batch write, which has one batch."""

    query: str
    batch: int
    partition: int

    @property
    def ledger(self) -> str:
        """The queue of the records."""
        return f"{NAME}.{self.query}.{self.partition}"

    @property
    def session(self) -> str:
        """The session that publishes the rows."""
        return f"{NAME}/{self.query}/{self.batch}/{self.partition}"

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch} of query {self.query}"


@dataclass(frozen=True, slots=True)
class Record:
    """Rows that are sent next, or none: then the attempt has no more.

    own           the number of the record itself in the session
    first         the number of the first row; the others have those that follow
    serials       the places of the rows among all rows, for generated ids
    fingerprints  of all rows
    replaces      numbers of rows that the broker has rejected, and that are sent again as these
    """

    batch: int
    own: int
    first: int
    serials: Sequence[int]
    fingerprints: bytes
    replaces: Sequence[int] = field(default=())

    def __len__(self) -> int:
        return len(self.fingerprints) // SIZE

    @property
    def headers(self) -> Table:
        """What of it stands in the headers of its message; the fingerprints are the body."""
        headers: Table = {"batch": self.batch, "own": self.own, "first": self.first}
        if isinstance(self.serials, range):
            headers["serial"] = self.serials.start
        else:
            headers["serials"] = list(self.serials)
        if self.replaces:
            headers["replaces"] = list(self.replaces)
        return headers

    @classmethod
    def read(cls, headers: Table, body: bytes) -> Record:
        """The record in a message. Raises InvalidArgument for a message that is none."""
        batch, own, first = (headers.get(name) for name in FIELDS)
        serial, serials, replaces = (headers.get(name) for name in ("serial", "serials", "replaces"))
        rows, rest = divmod(len(body), SIZE)
        if isinstance(serial, int):
            places: Sequence[int] = range(serial, serial + rows)
        else:
            places = _numbers(serials)
        if (
            not (isinstance(batch, int) and isinstance(own, int) and isinstance(first, int))
            or rest
            or len(places) != rows
        ):
            raise InvalidArgument("its queue has a message that is no record of this sink: take it out")
        return cls(batch, own, first, places, body, _numbers(replaces))


def _numbers(value: object) -> list[int]:
    return [int(number) for number in value if isinstance(number, int)] if isinstance(value, list) else []


class Memory:
    """The rows that earlier attempts at this batch have given numbers, to be recognised, each once.

    numbers    of the rows that were not recognised yet and that the broker does not have, ascending
    next       one more than the highest number of a row or record; `serial`: one more than the highest serial
    """

    def __init__(
        self,
        records: Iterable[Record],
        are_complete: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
        rejected: Iterable[int] = (),
    ) -> None:
        """`are_complete` says which of some numbers the broker has; `rejected` are those that it has refused."""
        records = list(records)
        numbers = [np.arange(record.first, record.first + len(record), dtype=np.int64) for record in records]
        serials = [np.array(record.serials, np.int64) for record in records]
        self.next = max((max(record.own + 1, record.first + len(record)) for record in records), default=0)
        self.serial = max((max(record.serials) + 1 for record in records if record.serials), default=0)
        prints = b"".join([record.fingerprints for record in records])
        everything = np.concatenate([*numbers, np.empty(0, np.int64)])
        every_serial = np.concatenate([*serials, np.empty(0, np.int64)])
        every_print = np.frombuffer(prints, dtype="<u8")
        # A later record wins over an earlier one that gave a number to another row, which was never sent.
        _, last = np.unique(everything[::-1], return_index=True)
        keep = len(everything) - 1 - last
        replaced = {number for record in records for number in record.replaces}
        if replaced:
            keep = keep[~np.isin(everything[keep], np.fromiter(replaced, np.int64))]
        order = np.argsort(every_print[keep], kind="stable")
        self._prints = every_print[keep][order]
        self._numbers = everything[keep][order]
        self._serials = every_serial[keep][order]
        self._complete = are_complete(self._numbers)
        self._recognised = np.zeros(len(order), bool)
        self._rejected = np.isin(self._numbers, np.fromiter(rejected, np.int64))
        self.numbers = np.sort(self._numbers[~self._complete & ~self._rejected])

    def __len__(self) -> int:
        """How many rows there are that were not recognised yet."""
        return int(len(self._recognised) - self._recognised.sum())

    def recognise(self, prints: bytes) -> list[int]:
        """For each row its place here, or -1; equal rows are told apart by their order."""
        wanted = np.frombuffer(prints, dtype="<u8")
        if not len(self):
            return [-1] * len(wanted)
        places = np.searchsorted(self._prints, wanted)
        found, recognised, all_prints = [], self._recognised, self._prints
        for place, fingerprint in zip(places.tolist(), wanted.tolist(), strict=True):
            while place < len(all_prints) and all_prints[place] == fingerprint and recognised[place]:
                place += 1
            if place < len(all_prints) and all_prints[place] == fingerprint:
                recognised[place] = True
                found.append(place)
            else:
                found.append(-1)
        return found

    def is_complete(self, place: int) -> bool:
        """Whether the broker has that row."""
        return bool(self._complete[place])

    def is_rejected(self, place: int) -> bool:
        """Whether the broker has rejected that row, so that it is to be sent again under another number."""
        return bool(self._rejected[place])

    def print_of(self, place: int) -> bytes:
        """The fingerprint of that row."""
        return self._prints[place : place + 1].tobytes()

    def number(self, place: int) -> int:
        """The number of that row in the session."""
        return int(self._numbers[place])

    def serial_of(self, place: int) -> int:
        """The place of that row among all rows."""
        return int(self._serials[place])
