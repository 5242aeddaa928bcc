"""The inventory: what is missing is named, and nothing that never had data, or was removed, is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harebell.broker.store.inventory import INVENTORY, Inventory, Missing, missing_files, sizes_of_records
from harebell.broker.store.open_files import OpenFiles

NEW = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
LOG = "queues/a/00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for kind in ("queues/a", "streams/b", "delays"):
        (tmp_path / kind).mkdir(parents=True)
    return tmp_path


def begun(data: Path) -> tuple[OpenFiles, Inventory]:
    inventory = Inventory(data)
    inventory.begin()
    return OpenFiles(os, 8, inventory), inventory


@pytest.mark.parametrize("stopped", [True, False])
def test_a_file_with_data(data: Path, stopped: bool) -> None:
    files, inventory = begun(data)
    fd = files.open(f"{data}/{LOG}", NEW)
    files.pwrite(fd, b"x" * 10, 0)
    files.close(fd)
    if stopped:
        inventory.end()
    assert missing_files(data) == []
    os.truncate(data / LOG, 7)
    assert missing_files(data) == ([Missing(LOG, "3 bytes shorter than at the last stop")] if stopped else [])
    os.truncate(data / LOG, 0)
    assert missing_files(data) == [Missing(LOG, "empty")]
    (data / LOG).unlink()
    assert missing_files(data) == [Missing(LOG, "gone")]
    (data / LOG).mkdir()
    assert missing_files(data) == [Missing(LOG, "no file any more")]
    files.release()


@pytest.mark.parametrize("stopped", [True, False])
def test_what_is_no_loss(data: Path, stopped: bool) -> None:
    """A segment without data, one that was emptied, and one that was removed."""
    names = [f"{data}/streams/b/{number:020}-0.log" for number in range(3)]
    files, inventory = begun(data)
    for name in names:
        files.close(files.open(name, NEW))
    for name in names[1:]:
        fd = files.open(name, NEW)
        files.pwrite(fd, b"x", 0)
        files.ftruncate(fd, 0)
        files.close(fd)
    files.unlink(names[2])
    if stopped:
        inventory.end()
    assert missing_files(data) == []
    for name in names[:2]:
        Path(name).unlink()
    assert missing_files(data) == []
    files.release()


def test_an_inventory_that_is_damaged(data: Path) -> None:
    for text in (b"", b"+ " + LOG.encode(), b"\xff\x00\n= queues/a/x.log many\n? queues/a/x.log\n+ ../../etc/passwd\n"):
        (data / INVENTORY).write_bytes(text)
        assert missing_files(data) == []
    (data / INVENTORY).unlink()
    (data / INVENTORY).mkdir()
    assert missing_files(data) == []
    _, inventory = begun(data)
    inventory.end()
    assert (data / INVENTORY).is_file()


def test_the_sizes_of_records_are_those_of_a_clean_stop(data: Path) -> None:
    _, inventory = begun(data)
    (data / "transactions").write_bytes(b"x" * 10)
    assert sizes_of_records(data) == {}
    inventory.end()
    assert sizes_of_records(data) == {"transactions": 10}
    (data / "transactions").unlink()
    assert missing_files(data) == []
    begun(data)[1].close()
    assert sizes_of_records(data) == {}
