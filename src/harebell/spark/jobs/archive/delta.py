"""The log of a Delta archive: the same data files, committed through the package `deltalake`.

Rules: no file is written by deltalake; a batch's files are added in one Delta transaction that also notes the writer
and its batch (Delta's `txn` action), which is what makes a batch that is committed twice count once. The number of
rows is in the commit's own information, under "harebell.*".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from harebell.errors import DataLoss, InvalidArgument, MissingDependency
from harebell.spark.jobs.archive.layout import PARTITIONS, DataFile, Format, Written, data_file, read_schema
from harebell.spark.schema import arrow_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

__all__ = ["Delta"]

ROWS: Final = "harebell.rows"
TOTAL: Final = "harebell.total"
WRITER: Final = "harebell.writer"
BATCH: Final = "harebell.batch"
MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\")  # deltalake writes into this folder, and reads another one
RECENT: Final = 100  # commits that are searched first for a writer's last one


class Delta:
    """The table of a Delta archive. Raises MissingDependency when `deltalake` is not installed, InvalidArgument for
    a folder that it cannot use; makes nothing.
    """

    format: Format = "delta"

    def __init__(self, root: Path) -> None:
        _check_installed()
        if found := MISREAD.search(root.as_posix()):
            raise InvalidArgument(
                f"a Delta table cannot be in {root}: deltalake takes {found[0]!r} for another character; name a folder "
                "without it"
            )
        self.root = root

    @classmethod
    def make(cls, root: Path) -> Self:
        """The archive in that folder, made where there is none."""
        made = cls(root)
        from deltalake import DeltaTable, Schema

        root.mkdir(parents=True, exist_ok=True)
        schema = Schema.from_arrow(arrow_schema(read_schema()))
        DeltaTable.create(root, schema, mode="ignore", partition_by=list(PARTITIONS), name="messages")
        return made

    def files(self) -> list[DataFile]:
        actions = self._table().get_add_actions(flatten=True)
        columns = [actions.column(name).to_pylist() for name in ("path", "num_records", "size_bytes")]
        return sorted(data_file(path, rows, size) for path, rows, size in zip(*columns, strict=True))

    def written(self, writer: str) -> Written | None:
        return self._written(self._table(), writer)

    def expired(self, seconds: float) -> list[str]:
        hours = int(seconds // 3600)
        return sorted(self._table().vacuum(hours, dry_run=True, enforce_retention_duration=False))

    def forget(self, seconds: float) -> None:
        """Nothing: Delta's checkpoints drop the commits before them, after the table's retention."""

    def add(self, files: Sequence[DataFile], writer: str, batch: int) -> bool:
        from deltalake import CommitProperties, Transaction

        table = self._table()
        last = table.transaction_version(writer)
        if last is not None and last >= batch:
            return False
        before = self._written(table, writer)
        rows = sum(file.rows for file in files)
        properties = CommitProperties(
            custom_metadata={
                WRITER: writer,
                BATCH: str(batch),
                ROWS: str(rows),
                TOTAL: str(rows + (before.total if before else 0)),
            },
            app_transactions=[Transaction(writer, batch)],
        )
        table.create_write_transaction(
            [_added(file, new_rows=True) for file in files],
            "append",
            table.schema(),
            list(PARTITIONS),
            commit_properties=properties,
        )
        return True

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        from deltalake.transaction import RemoveAction

        table = self._table()
        gone = {file.path for file in old} - {file.path for file in self.files()}
        if gone:
            raise DataLoss(f"{min(gone)} was exchanged or removed meanwhile; nothing was changed here")
        now = _now()
        removed = [RemoveAction(file.path, False, now, file.size, _values(file)) for file in old]
        table.create_write_transaction(
            [*removed, *(_added(file, new_rows=False) for file in new)], "append", table.schema(), list(PARTITIONS)
        )

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.root)

    def _written(self, table: DeltaTable, writer: str) -> Written | None:
        if table.transaction_version(writer) is None:
            return None
        for limit in (RECENT, None):
            for commit in table.history(limit):  # newest first
                if commit.get(WRITER) == writer:
                    return Written(int(commit[BATCH]), int(commit[ROWS]), int(commit[TOTAL]))
        return None


def _added(file: DataFile, *, new_rows: bool) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, _values(file), _now(), new_rows, json.dumps({"numRecords": file.rows}))


def _values(file: DataFile) -> dict[str, str | None]:
    return dict(zip(PARTITIONS, (file.day, file.key, file.queue), strict=True))


def _now() -> int:
    return int(time.time() * 1000)


def _check_installed() -> None:
    """Raises MissingDependency when the package `deltalake` is not installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise MissingDependency("a Delta archive needs the package deltalake: pip install 'harebell[delta]'") from error
