"""What is listed of a spool folder, and what is deleted by age."""

from __future__ import annotations

import contextlib
import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from harebell.errors import InvalidArgument
from harebell.spark.queues.pruning import prune, tickets
from harebell.spark.queues.reader import agreed_limits
from harebell.spark.queues.segments import mark_acked, write_once
from harebell.spark.queues.spool import Spool

HOUR = 3600.0
STREAM = "0123456789abcdef" * 2


def keep(folder: Path, ticket: str, *counts: int, acked: bool = True, age: float = 0.0, queue: str = "q") -> Path:
    """A drain with segments of so many rows, its files so many seconds old."""
    one = Spool(folder, "/", queue).ticket(ticket)
    with one.lock(0):
        for number, count in enumerate(counts):
            batch = pa.RecordBatch.from_pydict({"body": [b"x"] * count})
            write_once(one.segment(0, number), batch, lambda name: None, contextlib.nullcontext)
            if acked:
                mark_acked(one.segment(0, number))
    then = time.time() - age
    for path in one.folder.iterdir():
        os.utime(path, (then, then))
    return one.folder


def test_the_list_says_what_is_there(tmp_path: Path) -> None:
    keep(tmp_path, "b", 2, 3, 0, age=10)
    keep(tmp_path, "a", 4, acked=False)
    keep(tmp_path, "damaged", 1, 0, queue="a/b")
    broken = next((tmp_path / "%2F" / "a%2Fb" / "damaged").glob("*-000000.arrow"))
    broken.write_bytes(b"")
    states = tickets(tmp_path)
    assert [(s.vhost, s.queue, s.ticket, s.rows, s.unacked, s.complete, s.last) for s in states] == [
        ("/", "a/b", "damaged", 0, 0, True, False),
        ("/", "q", "b", 5, 0, True, False),
        ("/", "q", "a", 4, 4, False, False),
    ]
    assert states[0].damaged == (broken,)
    assert states[1].size == sum(path.stat().st_size for path in states[1].folder.iterdir())
    assert 9 < time.time() - states[1].changed < 60


@pytest.mark.parametrize("vhost", ["/", ".", "..", ".a", "a/b", "ü"])
def test_the_drains_of_any_virtual_host_are_listed(tmp_path: Path, vhost: str) -> None:
    with Spool(tmp_path, vhost, "..").ticket("t").lock(0):
        pass
    assert [(state.vhost, state.queue, state.ticket) for state in tickets(tmp_path)] == [(vhost, "..", "t")]


def test_prune_deletes_what_is_old_and_no_longer_needed(tmp_path: Path) -> None:
    keep(tmp_path, "old", 2, 0, age=2 * HOUR)
    keep(tmp_path, "young", 2, 0, age=HOUR / 2)
    keep(tmp_path, "unacked", 2, acked=False, age=2 * HOUR)
    keep(tmp_path, "nothing", age=2 * HOUR)
    for number in (9, 10):
        keep(tmp_path, f"{STREAM}-{number:08d}", 1, 0, age=2 * HOUR)
    names = ["nothing", "old", f"{STREAM}-00000009"]
    hour = timedelta(hours=1)
    assert sorted(state.ticket for state in prune(tmp_path, hour, dry_run=True)) == sorted(names)
    assert len(tickets(tmp_path)) == 6
    assert sorted(state.ticket for state in prune(tmp_path, hour)) == sorted(names)
    assert [state.ticket for state in prune(tmp_path, hour, last=True)] == [f"{STREAM}-00000010"]
    assert [state.ticket for state in prune(tmp_path, hour, unacked=True)] == ["unacked"]
    assert [state.ticket for state in tickets(tmp_path)] == ["young"]


def test_every_file_that_a_drain_writes_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = keep(tmp_path, "t", 2, 0, age=HOUR)
    written: list[str] = []
    link = os.link

    def noted(source: Path, target: Path) -> None:
        written.append(source.name)
        link(source, target)

    monkeypatch.setattr(os, "link", noted)
    agreed_limits(Spool(tmp_path, "/", "q").ticket("t"), lambda: [1])
    [temporary] = written
    for name in ("00000-000002.arrow.71.300.tmp", "plan.71.300.tmp", "123456-1234567.arrow.71.300.tmp", temporary):
        (folder / name).touch()
    assert [state.ticket for state in prune(tmp_path, timedelta(0))] == ["t"]
    assert not folder.exists()


@pytest.mark.parametrize(
    "name",
    [
        "archive_day=2026-01-05/archive_key=a/archive_queue=q/0af3.parquet",
        "home/docs/letters/will.txt",
        "home/docs/letters/2019/will.txt",
        "%2F/q/t/notes.arrow",
        "%2F/q/t/00001-000000.arrow/part",
        "%2F/q/t/plans",
    ],
)
def test_a_folder_with_anything_else_is_no_spool_and_stays(tmp_path: Path, name: str) -> None:
    drain = keep(tmp_path, "t", 2, 0, age=2 * HOUR)
    other = tmp_path / name
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("precious")
    with pytest.raises(InvalidArgument, match=f"{tmp_path} is no spool folder: .*; name the folder that"):
        tickets(tmp_path)
    with pytest.raises(InvalidArgument, match="is no spool folder"):
        prune(tmp_path, timedelta(0))
    assert other.read_text() == "precious"
    assert (drain / "00000-000000.arrow").exists()


def test_neither_a_link_nor_an_empty_folder_is_deleted(tmp_path: Path) -> None:
    empty, link = tmp_path / "spool" / "a" / "b" / "c", tmp_path / "spool" / "a" / "b" / "link"
    empty.mkdir(parents=True)
    os.utime(empty, (0, 0))
    assert prune(tmp_path / "spool", timedelta(hours=1)) == []
    assert empty.exists()
    drain = keep(tmp_path / "elsewhere", "t", 2, 0, age=2 * HOUR)
    link.symlink_to(drain)
    with pytest.raises(InvalidArgument, match=r"is no spool folder: .*/link is nothing that a drain writes"):
        prune(tmp_path / "spool", timedelta(hours=1))
    assert drain.exists()


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no spool folder"):
        tickets(tmp_path / "none")
