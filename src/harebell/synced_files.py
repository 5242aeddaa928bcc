"""Names of files that outlast a power cut: an fsync of a file does not sync the folder that has its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["make_folder", "replace_file", "sync_folder"]


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


def replace_file(path: Path, parts: Iterable[str]) -> None:
    """Write the texts as the content of the file, in UTF-8, in place of an older one.

    When this returns, content and name are on the disk; after a power cut meanwhile the file is the old one or the new
    one. OSError when the disk refuses: then the file is the old one, or the new one whose name is not synced yet.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
