"""The user's data folder, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["data_folder"]


def data_folder() -> Path:
    """The broker's default data folder: $XDG_DATA_HOME/harebell, else ~/.local/share/harebell."""
    given = os.environ.get("XDG_DATA_HOME", "")
    # The specification ignores a relative path in the variable.
    base = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return base / "harebell"
