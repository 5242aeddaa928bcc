"""Names of files that outlast a power cut: an fsync of a file does not sync the folder that has its name."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["make_file", "make_folder", "replace_file", "replacing", "sync_folder"]


def sync_folder(folder: Path) -> None:
    """Sync the names in the folder: those made, replaced and removed before. OSError when the disk refuses."""
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777, *, exist_ok: bool = True) -> None:
    """Make the folder, with `mode`, and those above it; the names of new ones are on the disk when this returns.

    FileExistsError as `Path.mkdir` raises it; OSError when the disk refuses. A new name in a folder that this process
    may not read cannot be synced, and is not.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode, parents=True, exist_ok=exist_ok)
    for each in new:
        with suppress(PermissionError):  # making a name needs no permission to read the folder
            sync_folder(each.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write what takes the place of an older one of that name, or of none.

    When the block ends, content and name are on the disk; after a power cut meanwhile the file is the old one or the
    new one. When it ends with an error, the file is the old one. OSError when the disk refuses: then the file is the
    old one, or the new one whose name is not synced yet. Several may do so at a time: the file is that of one of them.
    """
    with _beside(path) as temporary:
        with temporary.open("xb") as file:
            yield file
            _sync(file)
        temporary.replace(path)
    sync_folder(path.parent)


def replace_file(path: Path, parts: Iterable[str]) -> None:
    """Write the texts as the content of the file, in UTF-8, as `replacing` does."""
    with replacing(path) as file:
        file.writelines(part.encode() for part in parts)


def make_file(path: Path, parts: Iterable[str]) -> bool:
    """Make a file with the texts as its content, in UTF-8; False, and nothing changed, when there is one of that name.

    Of several processes one makes it, and others never see a part of it. When this returns, content and name are on the
    disk. OSError when the disk refuses, or has no links: then there is no new file, or its name is not synced yet.
    """
    with _beside(path) as temporary:
        with temporary.open("xb") as file:
            file.writelines(part.encode() for part in parts)
            _sync(file)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A name in the file's folder that no other process and thread has; there is no file of that name afterwards."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.randbits(62)}.tmp")
    try:
        yield temporary
    finally:
        with suppress(OSError):  # the folder may be the very thing that is gone
            temporary.unlink(missing_ok=True)
