"""Which build runs, by what is in the package's folder and what the environment asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import harebell
from harebell.builds import NOTE, choose, stamp

ENVIRONMENT = dict(os.environ)  # as this process had it when it chose
MODULES = ("harebell.a", "harebell.inner.b")


def compiled_in_place(folder: Path) -> dict[str, list[int] | None]:
    (folder / "inner").mkdir()
    sources = {"harebell.a": folder / "a.py", "harebell.inner.b": folder / "inner" / "b.py"}
    for source in sources.values():
        source.write_text("x = 1\n")
    return {module: stamp(str(source)) for module, source in sources.items()}


def note(folder: Path, stamps: dict[str, list[int] | None], suffix: str = EXTENSION_SUFFIXES[0]) -> None:
    (folder / NOTE).write_text(json.dumps({"suffix": suffix, "modules": stamps}))


def edited(folder: Path) -> None:
    (folder / "inner" / "b.py").write_text("x = 1; y = 2\n")


def gone(folder: Path) -> None:
    (folder / "a.py").unlink()


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.delenv("HAREBELL_PURE", raising=False)


def test_without_a_note_it_is_pure(tmp_path: Path) -> None:
    before = sys.meta_path[:]
    assert choose(str(tmp_path)) == "pure"
    assert sys.meta_path == before


def test_in_a_zip_it_is_pure(tmp_path: Path) -> None:
    (tmp_path / "harebell.zip").write_bytes(b"")
    assert choose(str(tmp_path / "harebell.zip" / "harebell")) == "pure"


@pytest.mark.parametrize(
    ("happened", "asked", "wanted"),
    [
        (None, None, "compiled"),
        (None, "0", "compiled"),
        (None, "", "compiled"),
        (None, "1", "pure"),
        (edited, None, "stale"),
        (gone, None, "stale"),
        (edited, "1", "pure"),
    ],
)
def test_a_build_in_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happened: Callable[[Path], None] | None,
    asked: str | None,
    wanted: str,
) -> None:
    note(tmp_path, compiled_in_place(tmp_path))
    if happened is not None:
        happened(tmp_path)
    if asked is not None:
        monkeypatch.setenv("HAREBELL_PURE", asked)
    before = len(sys.meta_path)
    assert choose(str(tmp_path)) == wanted
    assert len(sys.meta_path) == before + (wanted != "compiled")


def test_sources_are_found_before_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(tmp_path, compiled_in_place(tmp_path))
    for name in ("a", "c"):
        (tmp_path / f"{name}.abi3.so").write_bytes(b"no library")
    monkeypatch.setenv("HAREBELL_PURE", "1")
    choose(str(tmp_path))
    finder = sys.meta_path[0]
    found = finder.find_spec("harebell.a", [str(tmp_path)], None)
    assert found is not None
    assert found.origin == str(tmp_path / "a.py")
    assert finder.find_spec("harebell.c", [str(tmp_path)], None) is None
    assert finder.find_spec("harebell", None, None) is None


def test_what_a_wheel_has_is_not_compared(tmp_path: Path) -> None:
    compiled_in_place(tmp_path)
    note(tmp_path, dict.fromkeys(MODULES))
    edited(tmp_path)
    assert choose(str(tmp_path)) == "compiled"


def test_beside_what_another_python_compiled_it_is_pure(tmp_path: Path) -> None:
    """Files that this Python compiled earlier may lie there too, and know nothing of the sources as they are."""
    before = len(sys.meta_path)
    note(tmp_path, compiled_in_place(tmp_path), ".cpython-27-x86_64-linux-gnu.so")
    assert choose(str(tmp_path)) == "pure"
    assert len(sys.meta_path) == before + 1
    found = sys.meta_path[0].find_spec("harebell.a", [str(tmp_path)], None)
    assert found is not None
    assert found.origin == str(tmp_path / "a.py")


def test_a_build_that_was_broken_off_is_stale(tmp_path: Path) -> None:
    note(tmp_path, {module: [-1, -1] for module in compiled_in_place(tmp_path)})
    assert choose(str(tmp_path)) == "stale"


def test_this_one_is_what_it_says() -> None:
    """In a process of its own, because here some modules may have been exchanged."""
    code = "import harebell, harebell.protocol.v091.engine as engine; print(harebell.build, engine.__file__)"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    build, file = done.stdout.split()
    assert build == harebell.build
    assert file.endswith(".py") == (build != "compiled")
