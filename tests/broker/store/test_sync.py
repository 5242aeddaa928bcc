from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harebell.broker.store import sync as syncing
from harebell.broker.store.sync import FEW, sync_files


def dirty(folder: Path, count: int) -> list[int]:
    fds = [os.open(folder / str(number), os.O_RDWR | os.O_CREAT) for number in range(count)]
    for fd in fds:
        os.write(fd, b"x")
    return fds


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 50])
def test_few_files_are_synced_one_by_one_and_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    one_by_one: list[int] = []
    at_once: list[int] = []
    monkeypatch.setattr(os, "fdatasync", one_by_one.append)
    monkeypatch.setattr(syncing, "sync_file_system", at_once.append)
    fds = dirty(tmp_path, count)
    sync_files(os, fds)
    assert (one_by_one, len(at_once)) == (fds if count <= FEW else [], int(count > FEW))
    for fd in fds:
        os.close(fd)


def test_a_system_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(syncing, "sync_file_system", None)
    fds = dirty(tmp_path, FEW + 1)
    sync_files(os, fds)
    assert synced == fds
    for fd in fds:
        os.close(fd)


@pytest.mark.skipif(syncing.sync_file_system is None, reason="this kernel's syncfs does not report errors")
def test_the_call_itself(tmp_path: Path) -> None:
    (fd,) = dirty(tmp_path, 1)
    assert syncing.sync_file_system is not None
    syncing.sync_file_system(fd)
    os.close(fd)
    with pytest.raises(OSError) as refused:
        syncing.sync_file_system(fd)
    assert refused.value.errno == errno.EBADF
