"""The data folder: how the broker before left it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell.broker.store.data_folder import (
    BOOT_ID,
    LastStop,
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
