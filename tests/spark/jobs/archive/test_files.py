"""Rows cut into data files: which file a row goes to, in which order, and that nothing is left of what failed."""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive import files as archive_files
from harebell.spark.jobs.archive.files import Cutter, write_rows
from tests.spark.jobs.filling import DAY, batch


def contents(root: Path, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(root / path).read().to_pylist()
    return rows


def test_day_key_and_queue_name_the_folder(tmp_path: Path) -> None:
    now = datetime(2026, 2, 3, 23, 59, 59, 5, tzinfo=UTC)
    cutter = Cutter(tmp_path, 1, 2, now)
    cutter.add(
        batch(
            [
                {"timestamp": DAY, "routing_key": "orders.eu", "body": b"1"},
                {"routing_key": "orders.us", "body": b"2"},
                {"timestamp": DAY, "routing_key": "orders", "body": b"3"},
                {"timestamp": DAY, "routing_key": "", "queue": "a/b", "body": b"4"},
            ]
        )
    )
    cutter.add(batch([{"timestamp": DAY, "routing_key": "orders.eu", "body": b"5"}]))
    files = sorted(cutter.close())
    assert [(file.day, file.key, file.queue, file.rows) for file in files] == [
        ("2026-01-05", "-", "a_b", 1),
        ("2026-01-05", "orders", "q", 3),
        ("2026-02-03", "orders", "q", 1),
    ]
    assert all((tmp_path / file.path).stat().st_size == file.size for file in files)
    rows = contents(tmp_path, files[1].path)
    assert [(row["body"], row["archived_at"], row["archived_row"]) for row in rows] == [
        (b"1", now, 2 << 33),
        (b"3", now, (2 << 33) + 2),
        (b"5", now, (2 << 33) + 4),
    ]
    assert contents(tmp_path, files[0].path)[0]["queue"] == "a/b"


def test_much_data_goes_to_its_file_early_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "BUFFER_BYTES", 2000)
    batches = [batch([{"routing_key": key, "timestamp": DAY, "body": b"%d" % n} for key in "aaab"]) for n in range(50)]
    files = sorted(write_rows(tmp_path, 1, 0, batches))
    assert [(file.key, file.rows) for file in files] == [("a", 150), ("b", 50)]
    assert pq.ParquetFile(tmp_path / files[0].path).num_row_groups > 1
    bodies = [row["body"] for row in contents(tmp_path, files[0].path)]
    assert bodies == [b"%d" % n for n in range(50) for _ in range(3)]


def test_an_error_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "BUFFER_BYTES", 1)
    monkeypatch.setattr(archive_files, "MOST_FOLDERS", 3)
    days = [{"timestamp": DAY + timedelta(days=n)} for n in range(4)]
    with pytest.raises(InvalidArgument, match="more than 3 folders"):
        write_rows(tmp_path, 1, 0, [batch(days[:3]), batch(days)])
    assert list(tmp_path.rglob("*.parquet")) == []


def open_files() -> set[Path]:
    """The descriptors of this process, where the system tells them."""
    return set(Path("/proc/self/fd").iterdir()) if sys.platform == "linux" else set()


class Refused(BaseException):
    """Stands in for whatever ends a step: an error of the disk, of Arrow, the end of the task."""


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), Refused()], ids=["disk", "end"])
def test_no_step_that_fails_leaves_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Every making, write and sync of three files fails in its turn."""
    monkeypatch.setattr(archive_files, "BUFFER_BYTES", 1)  # some files are begun before the end
    rows = [batch([{"routing_key": f"{key}.x", "timestamp": DAY} for key in "abc"])] * 2
    left = 0

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise error
            return work(*arguments, **named)

        return call

    for module, name in (
        (pq, "ParquetWriter"), (pq.ParquetWriter, "write"), (pq.ParquetWriter, "write_table"), (os, "fsync"),
        (pq.ParquetWriter, "close"), (archive_files, "sync_folder"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    for step in itertools.count(1):
        left = step
        files = open_files()
        try:
            made = write_rows(tmp_path / "x", 1, 0, rows)
        except type(error):
            assert not list(tmp_path.rglob("*.parquet"))
            assert open_files() == files
        else:
            break
    assert step > 12
    assert len(made) == 3


def test_no_rows_no_file(tmp_path: Path) -> None:
    assert write_rows(tmp_path, 1, 0, [batch([])]) == []
    assert write_rows(tmp_path, 1, 0, []) == []
