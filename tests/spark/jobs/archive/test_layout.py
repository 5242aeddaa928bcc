"""Where an archive keeps what: names of folders, and which archive is in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import pytest

from harebell.errors import InvalidArgument, MissingDependency
from harebell.spark.jobs.archive.layout import (
    DataFile,
    Format,
    data_file,
    folder_name,
    folder_of,
    key_prefix,
    queue_folder,
)
from harebell.spark.jobs.archive.table import find_table, make_table
from tests.spark.jobs.filling import data


@pytest.mark.parametrize(
    ("key", "words", "folder"),
    [
        ("orders.eu.new", 1, "orders"),
        ("orders.eu.new", 2, "orders.eu"),
        ("orders", 3, "orders"),
        ("orders.eu", 0, "-"),
        ("", 1, "-"),
        (".a", 1, "-"),
        ("a/../b c=%", 1, "a_"),
        ("grüße/x", 1, "gr__e_x"),
        ("x" * 300, 1, "x" * 80),
        ("__HIVE_DEFAULT_PARTITION__", 1, "HIVE_DEFAULT_PARTITION"),
        ("__HIVE_DEFAULT_PARTITION__.x", 2, "__HIVE_DEFAULT_PARTITION__.x"),
    ],
)
def test_the_folder_of_a_key(key: str, words: int, folder: str) -> None:
    assert key_prefix(key, words) == folder


def test_queues_never_share_a_place() -> None:
    names = ["a/b", "a.b", "a%2Fb", ".", "..", "ü" * 120, "ü" * 119 + "a", "a", "A"]
    places = {queue_folder("/", name) for name in names} | {queue_folder("v.h", name) for name in names}
    assert len(places) == 2 * len(names)
    assert all(part not in (".", "..") and len(part) <= 200 for place in places for part in place.split("/"))
    assert queue_folder("/", "a") == "%2F/a"


def test_a_file_knows_its_partition() -> None:
    path = folder_of("2026-01-05", "orders", folder_name("shop.log")) + "/x.parquet"
    assert data_file(path, 3, 100) == DataFile(path, "2026-01-05", "orders", "shop.log", 3, 100)


def test_the_archive_that_is_there(tmp_path: Path) -> None:
    for kind in get_args(Format):
        made = make_table(tmp_path / kind, kind)
        assert (made.format, made.files()) == (kind, [])
        assert find_table(str(tmp_path / kind)).format == kind
        assert make_table(tmp_path / kind, kind).root == tmp_path / kind
    with pytest.raises(InvalidArgument, match="is parquet, not delta"):
        make_table(tmp_path / "parquet", "delta")


@pytest.mark.parametrize(
    "name", ["a b", "a%b", "a%2", "ü", "a[b]*", "a{b,c}", "a:b", "a=b", "+", "a\\b", "a%20b", "%2F"]
)
@pytest.mark.parametrize("kind", get_args(Format))
def test_a_folder_of_any_name_is_an_archive_or_refused(tmp_path: Path, name: str, kind: Format) -> None:
    if kind == "delta" and name in ("a\\b", "a%20b", "%2F"):
        with pytest.raises(InvalidArgument, match=r"a Delta table cannot be in .*: deltalake takes '.*' for another"):
            make_table(tmp_path / name / "archive", kind)
        assert list(tmp_path.iterdir()) == []
        return
    table = make_table(tmp_path / name, kind)
    file = data(table, 2)
    assert table.add([file], "w", 0)
    assert find_table(tmp_path / name).files() == [file]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no archive in"):
        find_table(tmp_path / "none")
    with pytest.raises(InvalidArgument, match=r"on a \(shared\) file system"):
        find_table("s3://bucket/archive")
    (tmp_path / "mine").write_text("")
    with pytest.raises(InvalidArgument, match="not empty and no archive"):
        make_table(tmp_path, "parquet")


@pytest.mark.parametrize(("kind", "module"), [("delta", "deltalake"), ("iceberg", "pyiceberg.catalog.sql")])
def test_a_table_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"pip install 'harebell\[{kind}\]'"):
        make_table(tmp_path / "archive", kind)
    assert not (tmp_path / "archive").exists()
