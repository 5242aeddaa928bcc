"""Where the command keeps things: the user's data folder, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["data_folder"]


def data_folder() -> Path:
    """The broker's folder when none is named: $XDG_DATA_HOME/harebell, else ~/.local/share/harebell."""
    given = os.environ.get("XDG_DATA_HOME", "")
    # The specification: a relative path in the variable is to be ignored.
    base = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return base / "harebell"
