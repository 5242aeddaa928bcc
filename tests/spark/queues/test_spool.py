"""The spool's files: names, locks, what is refused by the disk, what is damaged."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pyarrow as pa
import pytest

from harebell.client.servers import BrokerIdentity
from harebell.errors import InvalidArgument, SpoolError
from harebell.spark.options import source_options
from harebell.spark.queues.segments import mark_acked, read_segment, write_once
from harebell.spark.queues.spool import Spool

ROW = pa.RecordBatch.from_pydict({"body": [b"x"]})


def write(path: Path) -> bool:
    return write_once(path, ROW, lambda name: None, contextlib.nullcontext)


@pytest.mark.parametrize("name", ["a/b", ".", "..", ".hidden", "ä" * 100, "a" * 255, "x y"])
def test_any_queue_and_any_virtual_host_has_a_folder_of_its_own(tmp_path: Path, name: str) -> None:
    folder = Spool(tmp_path, name, name).folder
    folder.mkdir(parents=True)
    assert folder.parent.parent.resolve() == tmp_path.resolve()
    assert folder.resolve().parts[len(tmp_path.resolve().parts) :] == (folder.parent.name, folder.name)


def test_the_longest_name_of_a_drain_is_a_folder(tmp_path: Path) -> None:
    name = "t" * 255
    assert source_options({"queue": "q", "ticket": name}, streaming=False).ticket == name
    ticket = Spool(tmp_path, "/", "q").ticket(name)
    with ticket.lock(0) as ours, ticket.spool.lock():
        assert ours


def test_a_segment_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "00000-000000.arrow"
    assert write(path)
    assert not write(path)
    assert read_segment(path).equals(ROW)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_part_has_one_attempt_at_a_time(tmp_path: Path) -> None:
    ticket = Spool(tmp_path, "/", "q").ticket("t")
    with ticket.lock(0) as first, ticket.lock(0) as second, ticket.lock(1) as other:
        assert (first, second, other) == (True, False, True)
    with ticket.lock(0) as again:
        assert again


def test_a_drain_is_of_the_broker_that_came_first(tmp_path: Path) -> None:
    here, there = BrokerIdentity("harebell@host", "01"), BrokerIdentity("harebell@host", "02")
    ticket = Spool(tmp_path, "/", "q").ticket("t")
    for _ in range(2):
        ticket.claim(here)
    with pytest.raises(InvalidArgument) as refused:
        ticket.claim(there)
    for part in ("drain 't' of queue 'q'", str(tmp_path), "(01)", "(02)", "--spool", str(ticket.folder / "broker")):
        assert part in str(refused.value)
    ticket.spool.ticket("another").claim(there)
    Spool(tmp_path, "/", "another").ticket("t").claim(there)
    ticket.remove()
    assert not ticket.folder.exists()


@pytest.mark.parametrize("step", ["writing", "written"])
def test_what_the_disk_refuses_leaves_nothing_behind(tmp_path: Path, step: str) -> None:
    def full(name: str) -> None:
        if name == step:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SpoolError if step == "writing" else OSError, match="No space left"):
        write_once(tmp_path / "s.arrow", ROW, full, contextlib.nullcontext)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ticket = Spool(tmp_path / "file", "/", "q").ticket("t")
    with pytest.raises(SpoolError, match=r"file/%2F/q/t .*: Not a directory \(.* MB free of .* MB\); .*still in its"):
        with ticket.lock(0):
            pass


@pytest.mark.parametrize(("acked", "said"), [(True, "put the file back from a backup"), (False, "delete it$")])
@pytest.mark.parametrize("size", [0, 5, 200])
def test_a_damaged_file_is_named(tmp_path: Path, acked: bool, said: str, size: int) -> None:
    path = tmp_path / "00000-000000.arrow"
    write(path)
    path.write_bytes(path.read_bytes()[:size])
    if acked:
        mark_acked(path)
    with pytest.raises(SpoolError, match=f"{path} is damaged .*{said}"):
        read_segment(path)


def test_a_missing_file_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_segment(tmp_path / "none.arrow")
