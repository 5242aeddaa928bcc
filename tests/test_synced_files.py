"""Files and names that are on the disk: what is synced, in which order, and what a refusal leaves."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.synced_files import make_file, make_folder, replace_file, replacing, sync_folder

SYNC = os.fsync


class Syncs:
    """Notes what each fsync is given, and the file's text at that time. The sync with number `refused` fails."""

    def __init__(self, file: Path, refused: int | None) -> None:
        self._file = file
        self._refused = refused
        self.seen: list[tuple[str, str | None]] = []

    def fsync(self, descriptor: int) -> None:
        kind = "folder" if os.path.sameopenfile(descriptor, self._open_folder) else "content"
        self.seen.append((kind, self._file.read_text() if self._file.exists() else None))
        if len(self.seen) == self._refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        SYNC(descriptor)

    def __enter__(self) -> Syncs:
        self._open_folder = os.open(self._file.parent, os.O_RDONLY)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._open_folder)


def noted(monkeypatch: pytest.MonkeyPatch, file: Path, refused: int | None = None) -> Syncs:
    syncs = Syncs(file, refused)
    monkeypatch.setattr(os, "fsync", syncs.fsync)
    return syncs


@pytest.mark.parametrize("old", [None, "old"])
def test_content_is_synced_before_it_has_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str | None
) -> None:
    file = tmp_path / "state.json"
    if old is not None:
        file.write_text(old)
    with noted(monkeypatch, file) as syncs:
        replace_file(file, ["né", "w\n"])
    assert syncs.seen == [("content", old), ("folder", "néw\n")]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("refused, left", [(1, "old"), (2, "new")])
def test_a_refused_sync_leaves_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, left: str
) -> None:
    file = tmp_path / "state.json"
    file.write_text("old")
    with noted(monkeypatch, file, refused), pytest.raises(OSError, match="Input/output error"):
        replace_file(file, ["new"])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"state.json": left}


def test_an_interrupted_text_leaves_the_old_file(tmp_path: Path) -> None:
    def parts() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    file = tmp_path / "state.json"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        replace_file(file, parts())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"state.json": "old"}


def test_a_new_file_is_synced_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plan"
    with noted(monkeypatch, file) as syncs:
        assert make_file(file, ["né", "w\n"])
        assert not make_file(file, ["other"])
    assert syncs.seen[:2] == [("content", None), ("folder", "néw\n")]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"plan": "néw\n"}


@pytest.mark.parametrize("refused, left", [(1, {}), (2, {"plan": "new"})])
def test_a_new_file_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, left: dict[str, str]
) -> None:
    file = tmp_path / "plan"
    with noted(monkeypatch, file, refused), pytest.raises(OSError, match="Input/output error"):
        make_file(file, ["new"])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == left


def test_several_write_one_file_at_a_time(tmp_path: Path) -> None:
    """All have begun before the first one ends: no file has parts of two of them."""
    file, begun = tmp_path / "x.zip", threading.Barrier(5)

    def write(octet: int) -> None:
        with replacing(file) as new:
            new.write(bytes([octet]) * 1000)
            begun.wait(60)
            new.write(bytes([octet]) * 1000)

    threads = [threading.Thread(target=write, args=(octet,)) for octet in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert file.read_bytes() in [bytes([octet]) * 2000 for octet in range(5)]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("there", [0, 1, 2, 3])
def test_every_new_folder_has_its_name_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int) -> None:
    chain = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    for folder in chain[:there]:
        folder.mkdir()
    synced: list[tuple[int, int]] = []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_dev, os.fstat(descriptor).st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    make_folder(chain[-1], 0o700)
    assert set(synced) == {(each.parent.stat().st_dev, each.parent.stat().st_ino) for each in chain[there:]}
    assert there == 3 or chain[-1].stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_there_is_refused_where_it_must_be_new(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        make_folder(tmp_path, exist_ok=False)


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "gone")
