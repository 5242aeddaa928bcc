"""Writes rows into an archive's data files, by day, key and queue, in tasks.

Rules: a file's name is new and never used again, so an attempt that fails leaves a file that no log names and nothing
else; `compact` deletes those a day later. Data are on disk (fsync) before the log names them: what was drained from a
queue is nowhere else. The day is that of `timestamp` (UTC), else that of the archive's own clock.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive.layout import DataFile, data_file, folder_name, folder_of, key_prefix, stored_arrow
from harebell.synced_files import make_folder, sync_folder

__all__ = ["Cutter", "FileWriter", "write_rows"]

COMPRESSION: Final = "zstd"
BUFFER_BYTES: Final = 64 << 20  # rows of a task in memory before the largest partition goes to its file
MOST_FOLDERS: Final = 1000  # of one task and batch: more means that the key has too many first words
MOST_PREFIXES: Final = 100_000  # routing keys whose prefix is remembered
ROW_BITS: Final = 33  # of archived_row: the row; above them the task's number

Partition = tuple[str, str, str]


class FileWriter:
    """One data file that is being written. `close` gives its record once it is on disk."""

    def __init__(self, root: Path, folder: str) -> None:
        self._root = root
        self._path = f"{folder}/{uuid.uuid4().hex}.parquet"
        make_folder(root / folder)
        self._file = (root / self._path).open("wb")
        try:
            self._writer = pq.ParquetWriter(self._file, stored_arrow(), compression=COMPRESSION)
        except BaseException:
            self._abandon()
            raise
        self._rows = 0

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        self._writer.write(rows)
        self._rows += rows.num_rows

    def close(self) -> DataFile:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_folder((self._root / self._path).parent)
        return data_file(self._path, self._rows, size)

    def discard(self) -> None:
        """Gives up: the file is deleted."""
        with contextlib.suppress(OSError, pa.ArrowException):  # it writes an end, and the disk may be full
            self._writer.close()
        self._abandon()

    def _abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        (self._root / self._path).unlink(missing_ok=True)


class Cutter:
    """Cuts a task's rows into data files, one for each partition, rows in their order.

    `words` of the routing key name a partition. Raises InvalidArgument past MOST_FOLDERS partitions.
    """

    def __init__(self, root: Path, words: int, task: int, now: datetime) -> None:
        self._root, self._words, self._now = root, words, now
        self._row = task << ROW_BITS
        self._today = now.date().isoformat()
        self._prefixes: dict[str, str] = {}
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._sizes: dict[Partition, int] = {}
        self._files: dict[Partition, FileWriter] = {}
        self._done: list[DataFile] = []
        self._held = 0  # bytes of waiting rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows of the source."""
        count = batch.num_rows
        stored = pa.RecordBatch.from_arrays(
            [
                *batch.columns,
                pa.repeat(pa.scalar(self._now, pa.timestamp("us", tz="UTC")), count),
                pa.array(range(self._row, self._row + count), pa.int64()),
            ],
            schema=stored_arrow(),
        )
        self._row += count
        groups: dict[Partition, list[int]] = {}
        for row, partition in enumerate(self._partitions(batch)):
            rows = groups.get(partition)
            if rows is None:
                groups[partition] = [row]
            else:
                rows.append(row)
        for partition, rows in groups.items():
            self._keep(partition, stored if len(rows) == count else stored.take(pa.array(rows)))

    def close(self) -> list[DataFile]:
        """Every file, complete and on disk."""
        for partition in list(self._waiting):
            self._write(partition)
            self._finish(partition)  # at once, so that few files are open at a time
        for partition in list(self._files):
            self._finish(partition)
        return self._done

    def _finish(self, partition: Partition) -> None:
        self._done.append(self._files[partition].close())
        del self._files[partition]  # not before: `discard` deletes a file whose end cannot be written

    def discard(self) -> None:
        """Gives up: every file is deleted."""
        for file in self._files.values():
            file.discard()
        for done in self._done:
            (self._root / done.path).unlink(missing_ok=True)

    def _partitions(self, batch: pa.RecordBatch) -> Iterator[Partition]:
        days = pc.fill_null(pc.strftime(batch.column("timestamp"), "%Y-%m-%d"), self._today)
        keys = batch.column("routing_key").dictionary_encode()
        queues = batch.column("queue").dictionary_encode()
        prefixes = [self._prefix(key) for key in keys.dictionary.to_pylist()]
        names = [folder_name(name) for name in queues.dictionary.to_pylist()]
        for day, key, queue in zip(days.to_pylist(), keys.indices.to_pylist(), queues.indices.to_pylist(), strict=True):
            yield day, prefixes[key], names[queue]

    def _prefix(self, key: str) -> str:
        found = self._prefixes.get(key)
        if found is None:
            if len(self._prefixes) >= MOST_PREFIXES:
                self._prefixes.clear()
            found = self._prefixes[key] = key_prefix(key, self._words)
        return found

    def _keep(self, partition: Partition, rows: pa.RecordBatch) -> None:
        if partition not in self._sizes and len(self._sizes) >= MOST_FOLDERS:
            raise InvalidArgument(
                f"a batch has rows for more than {MOST_FOLDERS} folders: routing keys (or timestamps) differ too much; "
                "fewer words of the key name a folder with --key-words, 0 for none"
            )
        self._waiting.setdefault(partition, []).append(rows)
        self._sizes[partition] = self._sizes.get(partition, 0) + rows.nbytes
        self._held += rows.nbytes
        while self._held > BUFFER_BYTES:
            self._write(max(self._waiting, key=lambda each: self._sizes[each]))

    def _write(self, partition: Partition) -> None:
        rows = pa.Table.from_batches(self._waiting.pop(partition))
        file = self._files.get(partition)
        if file is None:
            file = self._files[partition] = FileWriter(self._root, folder_of(*partition))
        file.write(rows)
        self._held -= self._sizes[partition]
        self._sizes[partition] = 0


def write_rows(root: Path, words: int, task: int, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """The data files that hold these rows; on an error, none is left."""
    cutter = Cutter(root, words, task, datetime.fromtimestamp(time.time(), UTC))
    try:
        for batch in batches:
            if batch.num_rows:
                cutter.add(batch)
        return cutter.close()
    except BaseException:
        cutter.discard()
        raise
