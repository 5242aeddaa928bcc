"""The layout of an archive: its columns, its data files and folders, and the table that says which files count.

    <archive>/archive_day=2026-01-05/archive_key=orders/archive_queue=shop.log/<name>.parquet
    <archive>/_archive/          the archive's own: log (or _delta_log beside it), checkpoints, spool, replays

Rules: a data file counts when the table's log names it, and only then, so that files are added and exchanged by one
commit, whole or not at all. The three partition columns are derived (for folders and for skipping files) and made of
letters, digits, '.', '_' and '-' only; the true queue and key are in the rows. There are three tables, Harebell's own
log (`manifest`), Delta (`delta`) and Iceberg (`iceberg`); `table` opens each. Nothing here needs Spark to run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self
from urllib.parse import quote

from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from harebell.errors import InvalidArgument
from harebell.spark.schema import arrow_schema, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CatalogTable", "DataFile", "Format", "Table", "Written", "read_schema", "stored_schema"]

Format = Literal["parquet", "delta", "iceberg"]

OWN: Final = "_archive"
ICEBERG_NAME: Final = "iceberg.json"  # in OWN: the name of an Iceberg archive's table
ORPHAN_SECONDS: Final = 24 * 3600.0  # after which a file that the log does not name is no running batch's
PARTITIONS: Final = ("archive_day", "archive_key", "archive_queue")
NO_NAME: Final = "-"  # the folder of an empty routing key
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # a folder that Spark and Delta read as null
LONGEST_NAME: Final = 80
LONGEST_FILE_NAME: Final = 200  # a queue's name has up to 255 bytes, quoted three times as many; a file's has 255
_NOT_IN_A_FOLDER: Final = re.compile(r"[^A-Za-z0-9._-]")
_CATALOG_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The name of an Iceberg table as Spark SQL writes it: catalog.namespace.table.

    A namespace may have several parts. The catalog is one of pyiceberg's own configuration. `identifier` is the name in
    it: namespace and table.
    """

    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises InvalidArgument when the text is no such name."""
        catalog, *identifier = text.split(".")
        if len(identifier) < 2 or not all(map(_CATALOG_NAME.fullmatch, (catalog, *identifier))):
            raise InvalidArgument(
                f"catalog_table is {text!r}; it takes catalog.namespace.table, of letters, digits, '_' and '-'"
            )
        return cls(catalog, tuple(identifier))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.identifier))


@dataclass(frozen=True, slots=True, order=True)
class DataFile:
    """One Parquet file of an archive. `path` is relative to the archive, `size` in bytes."""

    path: str
    day: str
    key: str
    queue: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Written:
    """The commits of one writer (a query's checkpoint): its last batch, and the totals of all its batches."""

    batch: int
    rows: int
    total: int


class Table(Protocol):
    """The log of an archive. Every method reads it anew: others may have written."""

    @property
    def root(self) -> Path: ...
    @property
    def format(self) -> Format: ...

    def files(self) -> list[DataFile]:
        """The data files that count, by path."""
        ...

    def written(self, writer: str) -> Written | None:
        """The commits of that writer; None without any."""
        ...

    def add(self, files: Sequence[DataFile], writer: str, batch: int) -> bool:
        """Commits a batch's files; False, and nothing done, when this or a later batch of the writer is there."""
        ...

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Exchanges files for others with the same rows, in one commit. Raises DataLoss when one is not there."""
        ...

    def expired(self, seconds: float) -> list[str]:
        """The paths that were exchanged longer ago than that, and may be deleted."""
        ...

    def forget(self, seconds: float) -> None:
        """Drops what the log keeps of its states from longer ago than that; `expired` does not name their files then.

        Not the last state, and nothing that exactly-once writing needs.
        """
        ...


def stored_schema() -> StructType:
    """The columns inside a data file: all of the source, and when and in which order the archive got the row."""
    return StructType(
        [*row_schema().fields, StructField("archived_at", TimestampType()), StructField("archived_row", LongType())]
    )


def read_schema() -> StructType:
    """The columns of an archive that is read: those stored, and the partitions' own."""
    kinds = (DateType(), StringType(), StringType())
    return StructType(
        [*stored_schema().fields, *(StructField(name, kind) for name, kind in zip(PARTITIONS, kinds, strict=True))]
    )


def stored_arrow() -> pa.Schema:
    """`stored_schema` as Arrow has it."""
    return arrow_schema(stored_schema())


def folder_name(name: str) -> str:
    """A queue's or a key's name as a part of a path; different names may give the same."""
    if name == HIVE_NULL:
        return HIVE_NULL.strip("_")
    return _NOT_IN_A_FOLDER.sub("_", name)[:LONGEST_NAME] or NO_NAME


def key_prefix(key: str, words: int) -> str:
    """The first `words` words of a routing key, as a part of a path; "-" when `words` is 0."""
    return folder_name(".".join(key.split(".")[:words]))


def folder_of(day: str, key: str, queue: str) -> str:
    """The partition's folder, relative to the archive."""
    return "/".join(f"{name}={value}" for name, value in zip(PARTITIONS, (day, key, queue), strict=True))


def queue_folder(vhost: str, queue: str) -> str:
    """Where the archive keeps what it knows of one queue; different queues never have the same."""
    name = quote(queue, safe="").replace(".", "%2E")
    if len(name) > LONGEST_FILE_NAME:
        name = f"{name[:160]}-{blake2b(queue.encode(), digest_size=8).hexdigest()}"
    return f"{quote(vhost, safe='').replace('.', '%2E')}/{name}"


def data_file(path: str, rows: int, size: int) -> DataFile:
    """The record of a file, its partition taken from its path."""
    parts = [part.partition("=")[2] for part in path.split("/")[:-1]]
    day, key, queue = parts
    date.fromisoformat(day)
    return DataFile(path, day, key, queue, rows, size)
