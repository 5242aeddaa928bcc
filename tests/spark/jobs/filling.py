"""Archives without a broker and without Spark: rows as the source gives them, written by the archive's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from harebell.spark.jobs.archive.files import Cutter, write_rows
from harebell.spark.jobs.archive.layout import DataFile, Table
from harebell.spark.jobs.archive.manifest import Manifest
from harebell.spark.schema import arrow_schema, row_schema

DAY = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rows of the source; what a row does not say is a short message of queue q."""
    filled = [{"queue": "q", "exchange": "x", "routing_key": "a.b", "body": b"body", **row} for row in rows]
    return pa.RecordBatch.from_pylist(filled, schema=arrow_schema(row_schema()))


def data(table: Table, rows: int, key: str = "a") -> DataFile:
    """A data file with so many rows, which no log names yet."""
    [file] = write_rows(table.root, 1, 0, [batch([{"routing_key": key, "timestamp": DAY}] * rows)])
    return file


def archive_of(root: Path, *batches: Sequence[dict[str, Any]], at: datetime = DAY) -> Manifest:
    """An archive of these rows, each batch a commit that came at `at`."""
    table = Manifest.make(root)
    for number, rows in enumerate(batches):
        cutter = Cutter(root, 1, number, at)
        cutter.add(batch(rows))
        table.add(cutter.close(), "w", number)
    return table
