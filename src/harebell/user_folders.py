"""The user's folders for data, state and caches, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from harebell.errors import InvalidArgument

__all__ = ["user_folder"]

_FOLDERS: Final = {
    "data": ("XDG_DATA_HOME", ".local/share"),
    "state": ("XDG_STATE_HOME", ".local/state"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
}


def user_folder(kind: Literal["data", "state", "cache"], what: str, otherwise: str = "") -> Path:
    """Harebell's folder of that kind: the variable's, else that in the home folder. It may not exist.

    Raises InvalidArgument for a user without a home folder, as of a container with a user id of its own; `what` is to
    be put there, and `otherwise` is what the user may do instead: "name a folder with --data".
    """
    variable, usual = _FOLDERS[kind]
    given = os.environ.get(variable, "")
    if given.startswith("/"):  # the specification ignores a relative path
        return Path(given) / "harebell"
    try:
        return Path.home() / usual / "harebell"
    except RuntimeError:
        ways = f"set HOME or {variable} to a folder" + (f", or {otherwise}" if otherwise else "")
        raise InvalidArgument(f"this user has no home folder for {what}: {ways}") from None
