"""Recognises messages that a segment of the spool holds and that the broker delivers again.

It does so after a crash between link and ack, when a connection is lost, and when a broker was killed before its
memory of acknowledgements was on disk (RabbitMQ's classic queues). Such messages come with redelivered=true. One that
is equal to a row of a segment is dropped, as often as segments hold it, when that segment is not marked as
acknowledged, or was marked less than `window` seconds ago.

Nothing is kept per message for this: a redelivered message is looked up in the files, by its message_id or its body
first, which Arrow compares for whole segments at a time, and by all of its columns then.

Known limit: two messages identical in every column, one of them redelivered for another reason, cannot be told apart.
A message_id of its own for each message removes the limit.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from harebell.client.servers import BrokerIdentity
from harebell.protocol.v091.splice import DELIVERY_COUNTS
from harebell.spark.headers import TYPES
from harebell.spark.queues.segments import mark_acked, read_segment
from harebell.spark.queues.spool import Spool
from harebell.spark.schema import PROPERTY_COLUMNS, TIMESTAMP_NUMBER

__all__ = ["KnownMessages", "identities"]

_COLUMNS: Final = ("exchange", "routing_key", *PROPERTY_COLUMNS, TIMESTAMP_NUMBER, "body")

Identity = tuple[object, ...]


def identities(batch: pa.RecordBatch) -> list[Identity]:
    """For each row what is the same for every delivery of one message: exchange, key, properties, body."""
    columns = []
    for name in _COLUMNS:
        if name == TIMESTAMP_NUMBER and name not in batch.schema.names:
            continue  # a file of an older version
        column = batch.column(name)
        if name == "timestamp":
            column = column.cast(pa.int64())
        values = column.to_pylist()
        columns.append([_lasting(text) for text in values] if name == "headers" else values)
    return list(zip(*columns, strict=True))


def _lasting(headers: str | None) -> str | None:
    """The headers without those of a delivery, as a text that is the same for the same headers."""
    if headers is None:
        return None
    table = _without_delivery(json.loads(headers))
    types = table.pop(TYPES, None)
    if isinstance(types, dict) and (types := _without_delivery(types)):
        table[TYPES] = types
    return json.dumps(table, sort_keys=True) if table else None


def _without_delivery(table: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in table.items() if name not in DELIVERY_COUNTS}


class KnownMessages:
    """What the segments of a queue hold that this broker may still give back; one for each drain.

    `spool` is the queue's, `window` the seconds for which a marked segment is searched.
    """

    def __init__(self, spool: Spool, window: float, broker: BrokerIdentity) -> None:
        self._spool = spool
        self._window = window
        self._broker = broker
        self._dropped: Counter[tuple[Path, Identity]] = Counter()
        self._back: Counter[Path] = Counter()  # how many messages of an unmarked segment have come back
        self._returned: list[Path] = []

    def without_known(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without those of its redelivered rows that a segment holds. Raises SpoolError for a damaged one."""
        again = batch.column("redelivered")
        if not pc.any(again).as_py():
            return batch
        numbers = pc.indices_nonzero(again)
        redelivered = batch.take(numbers)
        copies = self._copies(redelivered)
        keep = [True] * batch.num_rows
        for number, identity in zip(numbers.to_pylist(), identities(redelivered), strict=True):
            if self._drop(identity, copies.get(identity, ())):
                keep[number] = False
        return batch if all(keep) else batch.filter(pa.array(keep))

    def mark_returned(self) -> None:
        """Marks segments all of whose messages came back and were dropped; the broker must have taken those acks."""
        for path in self._returned:
            mark_acked(path)
        self._returned.clear()

    def _drop(self, identity: Identity, copies: tuple[tuple[Path, int, int | None], ...]) -> bool:
        """Whether one more copy is in a segment; counts it off. `copies`: segment, copies there, rows if unmarked."""
        for path, held, rows in copies:
            if self._dropped[path, identity] < held:
                self._dropped[path, identity] += 1
                self._back[path] += 1
                if self._back[path] == rows:
                    self._returned.append(path)
                return True
        return False

    def _copies(self, redelivered: pa.RecordBatch) -> dict[Identity, tuple[tuple[Path, int, int | None], ...]]:
        """Where messages equal to these are: segments that are not marked come first."""
        wanted = set(identities(redelivered))
        column = "body" if redelivered.column("message_id").null_count else "message_id"
        values = redelivered.column(column).unique()
        found: dict[Identity, list[tuple[Path, int, int | None]]] = {}
        for path, marked, segment in self._segments():
            near = segment.filter(pc.is_in(segment.column(column), value_set=values))
            if near.num_rows:
                for identity, held in Counter(identities(near)).items():
                    if identity in wanted:
                        found.setdefault(identity, []).append((path, held, None if marked else segment.num_rows))
        return {identity: tuple(sorted(places, key=_marked)) for identity, places in found.items()}

    def _segments(self) -> Iterator[tuple[Path, bool, pa.RecordBatch]]:
        """The segments that matter, and whether each is marked as acknowledged."""
        for path in self._spool.segments(self._broker):
            try:
                acked: float | None = path.with_suffix(".acked").stat().st_mtime
            except FileNotFoundError:
                acked = None
            if acked is None or time.time() - acked <= self._window:
                try:
                    segment = read_segment(path)
                except FileNotFoundError:  # pruned meanwhile
                    continue
                yield path, acked is not None, segment


def _marked(place: tuple[Path, int, int | None]) -> bool:
    return place[2] is None
