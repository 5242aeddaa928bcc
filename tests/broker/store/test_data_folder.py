"""The data folder: how the broker before left it."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.broker.store.catalog.check import CATALOG, CatalogError
from harebell.broker.store.data_folder import (
    BOOT_ID,
    LastStop,
    OthersFolder,
    hold_folder,
    make_folders,
    mark_recovered,
    mark_running,
    mark_stopped,
)  # fmt: skip


def test_a_folder_is_held_once(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "data"), pytest.raises(BlockingIOError, match="in use by another broker"):
        hold_folder(tmp_path / "data")
    hold_folder(tmp_path / "data").close()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("what", ["the folder", "its catalog"])
def test_root_leaves_the_folder_of_another_user_alone(
    tmp_path: Path, what: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one that is no user of this machine: a container runs as root in a folder of the machine around it."""
    owner = pwd.getpwnam("nobody").pw_uid if known else 12345678
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    own = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = list(own(path, **options))
        found[4] = owner if path == theirs else 0
        return os.stat_result(found)

    theirs = tmp_path
    if what == "its catalog":
        theirs = tmp_path / CATALOG
        theirs.touch()
    monkeypatch.setattr(Path, "stat", stat)
    before = sorted(tmp_path.iterdir())
    if known:
        with pytest.raises(OthersFolder, match=r"belongs to user nobody.*: use `sudo -u nobody harebell"):
            hold_folder(tmp_path)
        assert sorted(tmp_path.iterdir()) == before
        theirs = tmp_path / "elsewhere"
    hold_folder(tmp_path).close()


async def test_a_refused_start_does_not_count_as_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with Broker(port=None, data=data):
        pass
    catalog = (data / CATALOG).read_bytes()
    (data / CATALOG).write_bytes(b"")
    before = sorted(data.iterdir())
    with pytest.raises(CatalogError, match="Nothing was changed"):
        await Broker(port=None, data=data).start()
    assert sorted(data.iterdir()) == before
    (data / CATALOG).write_bytes(catalog)
    async with Broker(port=None, data=data) as broker:
        assert broker.node.last_stop is LastStop.CLEAN
        assert (data / "running").exists()


def test_the_mark_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, and a kill counts as a power cut."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        assert mark_running(tmp_path) is LastStop.CLEAN
    assert mark_running(tmp_path) is LastStop.POWER_CUT


def test_the_last_stop(tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("one\n")
    assert mark_running(tmp_path, boot_id=boot) is LastStop.CLEAN
    assert mark_running(tmp_path, boot_id=boot) is LastStop.KILLED
    boot.write_text("two\n")
    assert mark_running(tmp_path, boot_id=boot) is LastStop.POWER_CUT
    mark_recovered(tmp_path, boot_id=boot)
    assert mark_running(tmp_path, boot_id=boot) is LastStop.KILLED
    mark_stopped(tmp_path)
    assert mark_running(tmp_path, boot_id=boot) is LastStop.CLEAN


def test_a_power_cut_is_one_until_it_is_recovered(tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    for name in ("one", "two"):
        boot.write_text(name)
        mark_running(tmp_path, boot_id=boot)
    for _ in range(2):  # starts that failed
        assert mark_running(tmp_path, boot_id=boot) is LastStop.POWER_CUT


def test_folders_are_made_once(tmp_path: Path) -> None:
    for _ in range(2):
        make_folders(tmp_path, "a", "b")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_marker_that_was_lost_in_writing_is_a_power_cut(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("")
    assert mark_running(tmp_path) is LastStop.POWER_CUT


def test_a_machine_without_boot_ids(tmp_path: Path) -> None:
    for expected in (LastStop.CLEAN, LastStop.POWER_CUT):
        assert mark_running(tmp_path, boot_id=tmp_path / "none") is expected


def test_this_machine_tells_its_boots_apart() -> None:
    assert len(BOOT_ID.read_text()) > 30
