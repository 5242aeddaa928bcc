"""The user's data folder, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from harebell.errors import InvalidArgument

__all__ = ["data_folder"]


def data_folder() -> Path:
    """The broker's default data folder: $XDG_DATA_HOME/harebell, else ~/.local/share/harebell."""
    given = os.environ.get("XDG_DATA_HOME", "")
    # The specification ignores a relative path in the variable.
    try:
        base = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    except RuntimeError:
        raise InvalidArgument("this user has no home folder for the data: name a folder with --data") from None
    return base / "harebell"
