"""Programs run without the paths of this repository, and one that fails is an error with its output."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.dist import commands


def test_a_program_does_not_see_this_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "HAREBELL_PURE", "HAREBELL_MANAGEMENT", "KEPT"):
        monkeypatch.setenv(name, "x")
    code = "import os; print(*sorted(set(os.environ) & set('PYTHONPATH VIRTUAL_ENV KEPT MORE'.split())));"
    code += "print([name for name in os.environ if name.startswith('HAREBELL_')], os.getcwd())"
    said = commands.run([sys.executable, "-c", code], tmp_path, MORE="x").splitlines()
    assert said == ["KEPT MORE", f"[] {tmp_path}"]


def test_a_program_that_fails(tmp_path: Path) -> None:
    with pytest.raises(commands.Failed, match=r"-c print.*\nwhat is wrong"):
        commands.run([sys.executable, "-c", "print('what is wrong'); raise SystemExit(3)"], tmp_path)


def test_a_program_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LONGEST", 0.1)
    with pytest.raises(commands.Failed, match="has not ended in 0 s"):
        commands.run([sys.executable, "-c", "import threading; threading.Event().wait()"], tmp_path)
