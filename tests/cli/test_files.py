"""Files that a command writes: whole, or the older one stays; and no command writes one in another way."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import harebell.cli
from harebell.cli.files import write_file


def refuse(*_: object, **__: object) -> NoReturn:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("older", [None, "older"])
@pytest.mark.parametrize("step", ["os.fsync", "os.open", "pathlib.Path.replace"])
def test_a_full_disk_leaves_the_older_file(
    step: str, older: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    if older is not None:
        file.write_text(older)
    monkeypatch.setattr(step, refuse)
    with pytest.raises(OSError, match="No space left") as refused:
        write_file(file, "newer")
    monkeypatch.undo()
    assert refused.value.filename == str(file)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == ({} if older is None else {"file": older})


@pytest.mark.parametrize(("mode", "private", "then"), [
    (None, False, 0o640), (None, True, 0o600), (0o644, False, 0o644), (0o660, False, 0o660), (0o644, True, 0o600),
])  # fmt: skip
def test_permissions(mode: int | None, private: bool, then: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if mode is not None:
        file.write_text("older")
        file.chmod(mode)
    before = os.umask(0o027)
    try:
        write_file(file, "a ☃\r\n", private=private)
    finally:
        os.umask(before)
    assert (stat.S_IMODE(file.stat().st_mode), file.read_bytes()) == (then, "a ☃\r\n".encode())
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays(tmp_path: Path) -> None:
    link, file, longest = tmp_path / "link", tmp_path / "file", tmp_path / ("é" * 127)
    link.symlink_to(file)
    for text in ("first", "second"):
        write_file(link, text)
        assert (link.is_symlink(), file.read_text()) == (True, text)
    write_file(longest, "a name of 254 bytes")
    assert longest.read_text() == "a name of 254 bytes"


def test_what_is_no_file_of_a_disk_is_written_to(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write_file(f"/dev/fd/{writing}", "through a pipe")
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        assert pipe.read() == "through a pipe"
    write_file(os.devnull, "nowhere")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("step, number", [("os.open", errno.EACCES), ("pathlib.Path.replace", errno.EBUSY)])
@pytest.mark.parametrize("private", [False, True])
def test_a_file_in_whose_place_no_other_can_be_put_is_written_to(
    step: str, number: int, private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may not be written; or it is a mount of its own, as a container has them."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "file"
    file.write_text("older, and longer")
    file.chmod(0o644)
    monkeypatch.setattr(step, refuse)
    write_file(file, "newer", private=private)
    monkeypatch.undo()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "newer")]
    assert stat.S_IMODE(file.stat().st_mode) == (0o600 if private else 0o644)
    monkeypatch.setattr(step, refuse)
    with pytest.raises(OSError):
        write_file(tmp_path / "another", "new")


def test_a_file_that_may_not_be_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("older")
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (file, os.W_OK))  # root may write any
    with pytest.raises(PermissionError):
        write_file(file, "newer")
    assert file.read_text() == "older"


@pytest.mark.parametrize("place", [
    pytest.param(lambda folder: folder, id="a folder"),
    pytest.param(lambda folder: folder / "none" / "file", id="in no folder"),
    pytest.param(lambda folder: folder / ("a" * 300), id="a name too long"),
])  # fmt: skip
def test_a_place_that_takes_no_file(place: Callable[[Path], Path], tmp_path: Path) -> None:
    with pytest.raises(OSError) as refused:
        write_file(place(tmp_path), "text")
    assert refused.value.filename == str(place(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_no_command_writes_a_file_in_another_way() -> None:
    sources = Path(harebell.cli.__file__).parent
    other = re.compile(r"""\.write_(text|bytes)\(|\bopen\([^)\n]*["'][wx]b?["']""")
    found = {each.relative_to(sources).as_posix() for each in sources.rglob("*.py") if other.search(each.read_text())}
    assert found == {"files.py"}
