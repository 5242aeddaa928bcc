"""The log of an Iceberg archive: the same data files, committed through the package `pyiceberg`.

    _archive/iceberg.json    which catalog has the table, and under which name
    _archive/catalog.db      the catalog, where none is named: SQLite
    metadata/                Iceberg's own: metadata files, manifest lists, manifests

Rules: no data file is written by pyiceberg; a batch's files are added in one commit that notes the writer and its
batch, which is what makes a batch that is committed twice count once. The note is in the snapshot's summary, for
readers, and in a property of the table, because snapshots may be expired. The data files lack the partition columns:
Iceberg's readers take those from the metadata. pyiceberg's own retry of a commit is off: it would not read the note.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

from harebell.errors import DataLoss, InvalidArgument, MissingDependency
from harebell.spark.jobs.archive.layout import (
    ICEBERG_NAME,
    ORPHAN_SECONDS,
    OWN,
    PARTITIONS,
    CatalogTable,
    DataFile,
    Format,
    Written,
    data_file,
    read_schema,
)
from harebell.spark.schema import arrow_schema
from harebell.synced_files import make_folder, replace_file

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table as IcebergTable, Transaction

__all__ = ["Iceberg", "check_installed", "named_catalog"]

OWN_TABLE: Final = ("harebell", "messages")  # in a catalog of the archive's own
ROWS: Final = "harebell.rows"
TOTAL: Final = "harebell.total"
WRITER: Final = "harebell.writer"
BATCH: Final = "harebell.batch"
ATTEMPTS: Final = 20  # of a commit that others were faster than
EPOCH: Final = date(1970, 1, 1).toordinal()
NOT_IN_A_ROOT: Final = "#?"  # a location is a URL to pyiceberg
PROPERTIES: Final = {
    "format-version": "2",
    # Every commit writes a metadata file, which names all snapshots.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
NO_RETRY: Final = ("commit.retry.num-retries", "0")


class Iceberg:
    """The table of an Iceberg archive. Raises MissingDependency when `pyiceberg` is not installed."""

    format: Format = "iceberg"

    def __init__(self, root: Path, name: CatalogTable | None = None) -> None:
        """`name` is for a table that is yet to be made; that of one which is there is noted in its folder."""
        check_installed()
        self.root = root
        self._location = f"file://{root}"
        self._name = named_catalog(root) if (root / OWN / ICEBERG_NAME).exists() else name

    @classmethod
    def make(cls, root: Path, name: CatalogTable | None = None) -> Self:
        """The archive in that folder, made where there is none; `name` is its table's in a catalog of pyiceberg's.

        Raises InvalidArgument when the catalog cannot be used, or has another table of that name.
        """
        made = cls(root, name)
        made.check()
        make_folder(root / OWN)
        noted = root / OWN / ICEBERG_NAME
        if not noted.exists():
            replace_file(noted, [json.dumps({"catalog_table": None if name is None else str(name)})])
        with made._told():
            made._create()
        with made._opened() as table:
            made._check_table(table)
        return made

    def check(self) -> None:
        """Raises what `make` would raise; makes nothing."""
        from pyiceberg.exceptions import NoSuchTableError

        if any(each in str(self.root) for each in NOT_IN_A_ROOT):
            raise InvalidArgument(f"an Iceberg table cannot be in {self.root}: a folder with '#' or '?' is no location")
        if self._name is None:
            return
        try:
            with self._told(), self._catalog() as catalog:
                table = catalog.load_table(self._identifier)
        except NoSuchTableError:
            return
        self._check_table(table)

    def files(self) -> list[DataFile]:
        with self._opened() as table:
            return sorted(self._record(file) for file in _files(table))

    def written(self, writer: str) -> Written | None:
        with self._opened() as table:
            return _written(table, writer)

    def expired(self, seconds: float) -> list[str]:
        from pyiceberg.manifest import ManifestEntryStatus

        before = (time.time() - seconds) * 1000
        found: set[str] = set()
        with self._opened() as table:
            for snapshot in table.metadata.snapshots:
                if snapshot.timestamp_ms > before:
                    continue
                for manifest in snapshot.manifests(table.io):
                    if manifest.added_snapshot_id != snapshot.snapshot_id or not manifest.deleted_files_count:
                        continue
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                        if entry.status == ManifestEntryStatus.DELETED:
                            found.add(self._record(entry.data_file).path)
            found -= {self._record(file).path for file in _files(table)}
        return sorted(found)

    def forget(self, seconds: float) -> None:
        """Expires snapshots, and deletes metadata that no snapshot names, after ORPHAN_SECONDS."""
        from pyiceberg.table.update.snapshot import ExpireSnapshots

        before = (time.time() - seconds) * 1000

        def change(table: IcebergTable, commit: Transaction) -> bool:
            heads = {head.snapshot_id for head in table.metadata.refs.values()}
            old = [
                each.snapshot_id
                for each in table.metadata.snapshots
                if each.timestamp_ms <= before and each.snapshot_id not in heads
            ]
            if old:
                with ExpireSnapshots(commit) as expiry:
                    expiry.by_ids(old)
            return bool(old)

        self._commit(change)
        named = set[str]()
        with self._opened() as table:
            for snapshot in table.metadata.snapshots:
                named.add(snapshot.manifest_list.rpartition("/")[2])
                named |= {each.manifest_path.rpartition("/")[2] for each in snapshot.manifests(table.io)}
        for file in (self.root / "metadata").glob("*.avro"):
            if file.name not in named and time.time() - file.stat().st_mtime > ORPHAN_SECONDS:
                file.unlink(missing_ok=True)

    def add(self, files: Sequence[DataFile], writer: str, batch: int) -> bool:
        rows = sum(file.rows for file in files)

        def change(table: IcebergTable, commit: Transaction) -> bool:
            before = _written(table, writer)
            if before is not None and before.batch >= batch:
                return False
            total = rows + (before.total if before else 0)
            note = {WRITER: writer, BATCH: str(batch), ROWS: str(rows), TOTAL: str(total)}
            commit.set_properties({f"{WRITER}.{writer}": f"{batch} {rows} {total}"})
            with commit.update_snapshot(note).merge_append() as snapshot:
                for file in files:
                    snapshot.append_data_file(self._added(table, file))
            return True

        return self._commit(change)

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        def change(table: IcebergTable, commit: Transaction) -> bool:
            there = {self._record(file).path: file for file in _files(table)}
            gone = {file.path for file in old} - there.keys()
            if gone:
                raise DataLoss(f"{min(gone)} was exchanged or removed meanwhile; nothing was changed here")
            with commit.update_snapshot().overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(there[file.path])
                for file in new:
                    snapshot.append_data_file(self._added(table, file))
            return True

        self._commit(change)

    def _commit(self, change: Callable[[IcebergTable, Transaction], bool]) -> bool:
        """Commits what `change` puts into the transaction; again on the new state when others were faster."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        for attempt in range(ATTEMPTS):
            with self._opened() as table:
                table.metadata.properties.update([NO_RETRY])  # of this object; nothing of it is stored
                commit = table.transaction()
                if not change(table, commit):
                    return False
                try:
                    commit.commit_transaction()
                except (CommitFailedException, ValidationException):
                    if attempt == ATTEMPTS - 1:
                        raise
                    continue
                return True
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _opened(self) -> Iterator[IcebergTable]:
        """The table as it is now."""
        from pyiceberg.exceptions import NoSuchTableError

        with self._catalog() as catalog:
            try:
                table = catalog.load_table(self._identifier)
            except NoSuchTableError:
                raise InvalidArgument(
                    f"the archive {self.root} is the Iceberg table {self._title}, and its catalog has no such table"
                ) from None
            yield table

    @property
    def _identifier(self) -> tuple[str, ...]:
        return OWN_TABLE if self._name is None else self._name.identifier

    @property
    def _title(self) -> str:
        return ".".join(OWN_TABLE) if self._name is None else str(self._name)

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.sql import SqlCatalog

        from harebell.spark.jobs.archive.iceberg_files import FILE_IO

        catalog: Catalog
        if self._name is None:
            uri = f"sqlite:///{quote(str(self.root / OWN / 'catalog.db'))}"
            catalog = SqlCatalog("harebell", uri=uri, warehouse=self._location, **{"py-io-impl": FILE_IO})
        else:
            catalog = load_catalog(self._name.catalog, **{"py-io-impl": FILE_IO})
        try:
            yield catalog
        finally:
            catalog.close()

    def _create(self) -> None:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        schema = arrow_schema(read_schema())
        with self._catalog() as catalog:
            try:
                catalog.load_table(self._identifier)
                return
            except NoSuchTableError:
                catalog.create_namespace_if_not_exists(self._identifier[:-1])
            with (
                suppress(TableAlreadyExistsError),  # made by another process, just now
                catalog.create_table_transaction(
                    self._identifier, schema, self._location, properties=PROPERTIES
                ) as making,
            ):
                with making.update_spec() as partitions:
                    for name in PARTITIONS:
                        partitions.add_identity(name)
                mapping = making.table_metadata.schema().name_mapping.model_dump_json()
                making.set_properties({"schema.name-mapping.default": mapping})

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raises InvalidArgument for what a catalog cannot do; NoSuchTableError passes.

        Errors differ from catalog to catalog: no configuration, a server that is away, a wrong login.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            yield
        except NoSuchTableError:
            raise
        except Exception as error:
            line = str(error).strip().partition("\n")[0] or type(error).__name__
            raise InvalidArgument(f"the catalog of the Iceberg table {self._title} cannot be used: {line}") from error

    def _check_table(self, table: IcebergTable) -> None:
        """Raises InvalidArgument when it is another table than an archive makes, or another archive's."""
        if table.location() != self._location:
            raise InvalidArgument(f"the Iceberg table {self._title} is in {table.location()}, not in {self._location}")
        there = [(field.name, str(field.field_type)) for field in table.schema().fields]
        wanted = [(field.name, _TYPES[field.dataType.typeName()]) for field in read_schema().fields]
        for name, kind in wanted:
            if (name, kind) not in there:
                found = dict(there).get(name)
                raise InvalidArgument(
                    f"the Iceberg table {self._title} has another schema than an archive: its column {name} is "
                    f"{found or 'missing'}, and must be {kind}"
                )
        if partitions := [name for name, _ in there if name not in dict(wanted)]:
            raise InvalidArgument(
                f"the Iceberg table {self._title} has another schema than an archive: there is no column "
                f"{partitions[0]} in one"
            )
        names = [field.name for field in table.spec().fields if str(field.transform) == "identity"]
        if tuple(names) != PARTITIONS or len(table.spec().fields) != len(PARTITIONS):
            raise InvalidArgument(
                f"the Iceberg table {self._title} is not partitioned as an archive is, by {', '.join(PARTITIONS)}"
            )

    def _record(self, file: IcebergFile) -> DataFile:
        begin = f"{self._location}/"
        if not file.file_path.startswith(begin):
            raise InvalidArgument(
                f"the Iceberg table {self._title} has a file that is not the archive's: {file.file_path}"
            )
        return data_file(file.file_path.removeprefix(begin), file.record_count, file.file_size_in_bytes)

    def _added(self, table: IcebergTable, file: DataFile) -> IcebergFile:
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile as IcebergFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        schema = table.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(self.root / file.path),
            compute_statistics_plan(schema, table.properties),
            parquet_path_to_id_mapping(schema),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(date.fromisoformat(file.day).toordinal() - EPOCH, file.key, file.queue),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


_TYPES: Final = {
    "string": "string", "long": "long", "integer": "int", "boolean": "boolean", "binary": "binary", "date": "date",
    "timestamp": "timestamptz",
}  # fmt: skip
"""The Iceberg type of each of Spark's types that an archive's columns have."""


def _files(table: IcebergTable) -> Iterator[IcebergFile]:
    """The data files of the table's current snapshot."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _written(table: IcebergTable, writer: str) -> Written | None:
    note = table.properties.get(f"{WRITER}.{writer}")
    return None if note is None else Written(*map(int, note.split()))


def named_catalog(root: Path) -> CatalogTable | None:
    """The table's name in a catalog of pyiceberg's configuration; None where the archive has its own catalog."""
    name = json.loads((root / OWN / ICEBERG_NAME).read_text())["catalog_table"]
    return None if name is None else CatalogTable.of(name)


def check_installed() -> None:
    """Raises MissingDependency when the package `pyiceberg` is not installed."""
    try:
        import pyiceberg.catalog.sql  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "an Iceberg archive needs the package pyiceberg: pip install 'harebell[iceberg]'"
        ) from error
