"""Archives as Iceberg tables: as other programs read them, in a named catalog, with other writers, and refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable

from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive import iceberg, iceberg_files
from harebell.spark.jobs.archive.compaction import rewrite
from harebell.spark.jobs.archive.iceberg import Iceberg
from harebell.spark.jobs.archive.layout import PARTITIONS, CatalogTable, Written, read_schema
from harebell.spark.jobs.archive.table import check_table, find_table, make_table
from harebell.spark.schema import arrow_schema
from tests.spark.jobs.filling import data

NAME = CatalogTable.of("lake.shop.messages")


@contextmanager
def opened(table: Iceberg) -> Iterator[IcebergTable]:
    catalog = SqlCatalog("harebell", uri=f"sqlite:///{table.root}/_archive/catalog.db")
    yield catalog.load_table("harebell.messages")
    catalog.close()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a catalog that pyiceberg's configuration calls `lake`."""
    uri = f"sqlite:///{tmp_path / 'lake.db'}"
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG.config", {"catalog": {"lake": {"type": "sql", "uri": uri}}})
    return uri


def test_an_iceberg_table_is_one_for_others_too(tmp_path: Path) -> None:
    table = Iceberg.make(tmp_path / "an archive")
    table.add([data(table, 2, "a"), data(table, 3, "b")], "w", 0)
    catalog = SqlCatalog("harebell", uri=f"sqlite:///{table.root}/_archive/catalog.db")
    read = catalog.load_table("harebell.messages")
    assert [field.name for field in read.spec().fields] == list(PARTITIONS)
    rows = read.scan().to_arrow()
    assert (rows.num_rows, rows.column_names) == (5, read_schema().fieldNames())
    assert set(rows.column("archive_queue").to_pylist()) == {"q"}
    chosen = read.scan(row_filter="archive_key = 'b' and archive_day = '2026-01-05'")
    assert len(list(chosen.plan_files())) == 1
    assert chosen.to_arrow().num_rows == 3
    (snapshot,) = read.snapshots()
    assert snapshot.summary is not None
    note = {name: snapshot.summary[name] for name in ("harebell.writer", "harebell.batch", "harebell.rows")}
    assert note == {"harebell.writer": "w", "harebell.batch": "0", "harebell.rows": "5"}
    catalog.close()


def test_a_batch_counts_once_when_its_snapshot_is_expired(tmp_path: Path) -> None:
    table = Iceberg.make(tmp_path / "archive")
    for batch in range(3):
        table.add([data(table, 1)], "w" if batch < 2 else "other", batch)
    catalog = SqlCatalog("harebell", uri=f"sqlite:///{table.root}/_archive/catalog.db")
    read = catalog.load_table("harebell.messages")
    expiry = read.maintenance.expire_snapshots()
    expiry.by_ids([each.snapshot_id for each in read.snapshots()[:2]]).commit()
    catalog.close()
    assert not table.add([data(table, 1)], "w", 1)
    assert table.written("w") == Written(1, 1, 2)
    assert len(table.files()) == 3


def test_forgotten_states_leave_nothing_behind(tmp_path: Path) -> None:
    table = Iceberg.make(tmp_path / "archive")
    for batch in range(30):
        table.add([data(table, 1)], "w", batch)
    old = table.files()
    table.replace(old[:10], [new := rewrite(table.root, old[:10])])
    table.forget(3600.0)
    with opened(table) as read:
        assert len(read.snapshots()) == 31
    table.forget(0.0)
    with opened(table) as read:
        (last,) = read.snapshots()
        named = {last.manifest_list, *(each.manifest_path for each in last.manifests(read.io))}
        assert read.scan().to_arrow().num_rows == 30
    metadata = table.root / "metadata"
    young = set(metadata.glob("*.avro"))
    assert len(young) > 30, "of a commit that is at work, for all that this one knows"
    for each in young:
        os.utime(each, (time.time() - 2 * 24 * 3600,) * 2)
    table.forget(0.0)
    assert {f"file://{each}" for each in metadata.glob("*.avro")} == named
    assert table.files() == sorted([*old[10:], new])
    assert table.expired(0.0) == [file.path for file in old[:10]], "the last snapshot has exchanged them"
    assert not table.add([data(table, 1)], "w", 29)
    assert table.add([data(table, 1)], "w", 30)
    table.forget(0.0)
    assert table.expired(0.0) == []
    assert sum(file.rows for file in table.files()) == 31


def test_two_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Iceberg.make(tmp_path / "archive")
    mine, theirs, again = data(table, 2), data(table, 3), data(table, 2)
    commit = SqlCatalog.commit_table
    others = iter(
        [lambda: Iceberg(table.root).add([theirs], "other", 0), lambda: Iceberg(table.root).add([again], "w", 1)]
    )

    def meanwhile(*arguments: Any) -> Any:
        if (other := next(others, None)) is not None:
            other()  # type: ignore[no-untyped-call]
        return commit(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", meanwhile)
    assert not table.add([mine], "w", 0)  # the same writer was faster, at last
    assert table.files() == sorted([theirs, again])


def test_a_writer_gives_up_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Iceberg.make(tmp_path / "archive")
    tries = []
    monkeypatch.setattr(iceberg, "ATTEMPTS", 3)

    def never(*arguments: Any) -> Any:
        tries.append(arguments)
        raise CommitFailedException("somebody else was faster")

    monkeypatch.setattr(SqlCatalog, "commit_table", never)
    with pytest.raises(CommitFailedException):
        table.add([data(table, 2)], "w", 0)
    assert (len(tries), table.files()) == (3, [])


def test_metadata_are_on_the_disk_before_the_catalog_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Iceberg.make(tmp_path / "archive")
    synced: set[Path] = set()
    unsynced: list[set[Path]] = []
    fsync, commit, create = os.fsync, SqlCatalog._write_metadata, table.root / "metadata"

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    def written(metadata: Any, io: Any, metadata_path: str) -> None:
        commit(metadata, io, metadata_path)
        unsynced.append(set(create.iterdir()) - before - synced)

    file = data(table, 2)
    before = set(create.iterdir())
    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(written))
    table.add([file], "w", 0)
    assert unsynced == [set()]
    assert create in synced


def test_files_of_metadata(tmp_path: Path) -> None:
    files = iceberg_files.SyncedFileIO()
    output = files.new_output(f"file://{tmp_path}/new/x")
    assert not output.exists()
    with output.create() as stream:
        stream.write(b"abc")
        assert stream.tell() == 3
    assert (output.exists(), len(output), len(output.to_input_file())) == (True, 3, 3)
    with pytest.raises(FileExistsError):
        output.create()
    output.create(overwrite=True).close()
    assert len(output) == 0
    files.delete(output.location)
    assert not output.exists()


def test_a_table_in_a_named_catalog(tmp_path: Path, lake: str) -> None:
    made = make_table(tmp_path / "archive", "iceberg", NAME)
    made.add([file := data(made, 2)], "w", 0)
    assert find_table(tmp_path / "archive").files() == [file]
    assert make_table(tmp_path / "archive", "iceberg").files() == [file]
    assert make_table(tmp_path / "archive", "iceberg", NAME).files() == [file]
    catalog = SqlCatalog("lake", uri=lake)
    assert catalog.load_table("shop.messages").scan().to_arrow().num_rows == 2
    with pytest.raises(InvalidArgument, match=r"is an Iceberg table lake\.shop\.messages, not lake\.shop\.other"):
        check_table(tmp_path / "archive", "iceberg", CatalogTable.of("lake.shop.other"))
    make_table(tmp_path / "own", "iceberg")
    with pytest.raises(InvalidArgument, match="in a catalog of its own, not lake"):
        check_table(tmp_path / "own", "iceberg", NAME)
    catalog.drop_table("shop.messages")
    with pytest.raises(
        InvalidArgument, match=r"is the Iceberg table lake\.shop\.messages, and its catalog has no such"
    ):
        find_table(tmp_path / "archive").files()
    catalog.close()


STORED = arrow_schema(read_schema())


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (STORED.remove(0), "its column queue is missing, and must be string"),
        (STORED.set(1, pa.field("offset", pa.string())), "its column offset is string, and must be long"),
        (STORED.append(pa.field("mine", pa.string())), "there is no column mine in one"),
        (STORED, "is not partitioned as an archive is, by archive_day, archive_key, archive_queue"),
    ],
)
def test_a_table_of_another_schema_is_refused(tmp_path: Path, lake: str, schema: pa.Schema, said: str) -> None:
    root = tmp_path / "archive"
    catalog = SqlCatalog("lake", uri=lake)
    catalog.create_namespace("shop")
    catalog.create_table("shop.messages", schema, f"file://{root}")
    catalog.close()
    with pytest.raises(InvalidArgument, match=said):
        Iceberg.make(root, NAME)
    assert not (root / "_archive").exists()


def test_a_table_of_another_schema_in_the_own_catalog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_archive").mkdir()
    catalog = SqlCatalog("harebell", uri=f"sqlite:///{tmp_path}/_archive/catalog.db")
    catalog.create_namespace("harebell")
    catalog.create_table("harebell.messages", STORED.remove(0), f"file://{tmp_path}")
    catalog.close()
    with pytest.raises(InvalidArgument, match="its column queue is missing, and must be string"):
        Iceberg.make(tmp_path)


def test_the_table_of_another_folder_is_refused(tmp_path: Path, lake: str) -> None:
    Iceberg.make(tmp_path / "a", NAME)
    with pytest.raises(InvalidArgument, match=r"is in file://.*/a, not in file://.*/b"):
        Iceberg.make(tmp_path / "b", NAME)


def test_files_of_others_are_no_messages(tmp_path: Path, lake: str) -> None:
    table = Iceberg.make(tmp_path / "archive", NAME)
    catalog = SqlCatalog("lake", uri=lake)
    stranger = tmp_path / "elsewhere"
    loaded = catalog.load_table("shop.messages")
    with loaded.transaction() as change:
        change.set_properties({"write.data.path": f"file://{stranger}"})
    rows = [{"archive_key": "a", "archive_queue": "q", "queue": "q"}]
    catalog.load_table("shop.messages").append(pa.Table.from_pylist(rows, schema=STORED))
    catalog.close()
    with pytest.raises(InvalidArgument, match=r"has a file that is not the archive's: file://.*/elsewhere/"):
        table.files()


@pytest.mark.parametrize(
    "name", ["", "messages", "lake.messages", "lake..messages", "lake.shop.", "lake.shop.mess ages", "lake.a/b.c"]
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"it takes catalog\.namespace\.table"):
        CatalogTable.of(name)


def test_what_is_no_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is no location"):
        Iceberg.make(tmp_path / "a#b")
    with pytest.raises(InvalidArgument, match="catalog_table is for an Iceberg archive, not for delta"):
        make_table(tmp_path / "archive", "delta", NAME)
    with pytest.raises(InvalidArgument, match=r"the catalog of the Iceberg table nope\.a\.b cannot be used: "):
        Iceberg.make(tmp_path / "archive", CatalogTable.of("nope.a.b"))
