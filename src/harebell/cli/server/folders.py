"""The user's data folder, by the XDG base directory specification, and what to do when one cannot be used."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from harebell.user_folders import user_folder

__all__ = ["data_folder", "way_out"]

_WAYS_OUT: Final = {
    errno.EACCES: "let the broker's user read and write it, or run this as that user",
    errno.EPERM: "let the broker's user own it, or run this as that user",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files, with `ulimit -n` or LimitNOFILE="),
    errno.EBUSY: "end the program that uses it",
    errno.ENOMEM: "free memory",
    errno.ENOSPC: "make room on the disk",
}


def data_folder() -> Path:
    """The broker's default data folder: $XDG_DATA_HOME/harebell, else ~/.local/share/harebell."""
    return user_folder("data", "the data", "name a folder with --data")


def way_out(error: OSError, otherwise: str = "mend it, or name another folder with --data") -> str:
    """What to do about an error of a data folder, or of a file in one."""
    return _WAYS_OUT.get(error.errno or 0, otherwise)
