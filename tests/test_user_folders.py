"""Where a user's files go, and what a user without a home folder is told."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from harebell.errors import InvalidArgument
from harebell.user_folders import user_folder

Kind = Literal["data", "state", "cache"]
USUAL: list[tuple[Kind, str, str]] = [
    ("data", "XDG_DATA_HOME", ".local/share"), ("state", "XDG_STATE_HOME", ".local/state"),
    ("cache", "XDG_CACHE_HOME", ".cache"),
]  # fmt: skip


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(("kind", "variable", "usual"), USUAL)
def test_the_folder(kind: Kind, variable: str, usual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "relative"):
        monkeypatch.setenv(variable, ignored)
        assert user_folder(kind, "it") == tmp_path / usual / "harebell"
    monkeypatch.setenv(variable, "/given")
    assert user_folder(kind, "it") == Path("/given/harebell")
    monkeypatch.setattr(Path, "home", homeless)
    assert user_folder(kind, "it") == Path("/given/harebell")


@pytest.mark.parametrize(("kind", "variable", "usual"), USUAL)
def test_a_user_without_a_home_folder(kind: Kind, variable: str, usual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InvalidArgument, match=rf"no home folder for the spool: set HOME or {variable} to a folder$"):
        user_folder(kind, "the spool")
    with pytest.raises(InvalidArgument, match=r"to a folder, or name a folder with --data$"):
        user_folder(kind, "the data", "name a folder with --data")
