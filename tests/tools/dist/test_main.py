"""One run of `make dist`: what it builds, what it says at its end, and when it fails. Building and trying are replaced."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.dist import __main__ as program
from tools.dist.commands import Failed

SDIST, PURE = "harebell-0.1.0.tar.gz", "harebell-0.1.0-py3-none-any.whl"


@pytest.fixture(autouse=True)
def replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(kind: str, into: Path, root: Path | None = None) -> Path:
        into.mkdir()
        made = into / {"sdist": SDIST, "pure": PURE}[kind]
        made.write_bytes(bytes(2_100_000))
        return made

    def compiled(pure: Path, python: Path, source: Path, work: Path) -> Path:
        made = work / f"harebell-0.1.0-{python.name}.whl"
        made.write_bytes(pure.read_bytes())
        return made

    monkeypatch.setattr(program, "DIST", tmp_path / "dist")
    monkeypatch.setattr(program, "build", build)
    monkeypatch.setattr(program, "compiled", compiled)
    monkeypatch.setattr(program, "unpack", lambda sdist, into: into)
    monkeypatch.setattr(program, "strays", lambda sdist: [])
    monkeypatch.setattr(program, "leaks", lambda file, *folders: [])
    monkeypatch.setattr(program, "check_metadata", lambda files: None)
    monkeypatch.setattr(program, "trial", lambda *arguments, quick: ["quick" if quick else "whole"])
    monkeypatch.setattr(program, "find_python", lambda version: None if version == "3.14" else Path(f"cp{version}"))
    monkeypatch.setattr(program, "lacks", lambda python: "no Python.h" if python.name == "cp3.13" else "")
    monkeypatch.delenv("PYTHONS", raising=False)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dist", *arguments])
    return program.main()


def built() -> set[str]:
    return {path.name for path in program.DIST.iterdir()}


def test_all_is_built_and_tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program.DIST.mkdir()
    (program.DIST / "harebell-0.0.9.tar.gz").touch()
    assert run(monkeypatch) == 0
    compiled = ["harebell-0.1.0-cp3.11.whl", "harebell-0.1.0-cp3.12.whl"]
    assert built() == {SDIST, PURE, *compiled}
    end = [line for line in capsys.readouterr().out.splitlines() if "about three minutes" not in line][-7:]
    assert end[:-1] == [
        "dist: Python 3.13: not compiled: no Python.h",
        "dist: Python 3.14: not compiled: not on this machine",
        *(f"dist: {name}, 2.1 MB: whole" for name in (SDIST, PURE, *compiled)),
    ]
    assert end[-1].startswith("dist: 4 files in dist/, 0 failures, ")


def test_a_part_is_built(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--only", "pure", "--quick") == 0
    assert built() == {PURE}
    assert f"dist: {PURE}, 2.1 MB: quick" in capsys.readouterr().out


def test_a_python_that_was_asked_for_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONS", "3.12 3.14")
    assert run(monkeypatch, "--only", "compiled") == 1
    assert built() == {"harebell-0.1.0-cp3.12.whl"}


@pytest.mark.parametrize("step", ["compiled", "check_metadata", "trial"])
def test_the_rest_goes_on_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise Failed("what is wrong")

    monkeypatch.setattr(program, step, fail)
    assert run(monkeypatch) == 1
    assert {SDIST, PURE} <= built()
    assert "FAILED: " in (said := capsys.readouterr().out)
    assert "what is wrong" in said


@pytest.mark.parametrize(
    ("step", "words"),
    [("strays", "files that git does not know: notes.txt"), ("leaks", "has paths of this machine: notes.txt")],
)
def test_what_may_not_be_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str, words: str
) -> None:
    monkeypatch.setattr(program, step, lambda *arguments: ["notes.txt"])
    assert run(monkeypatch, "--only", "sdist") == 1
    assert words in capsys.readouterr().out
