"""Programs in the public API, as mypy and pyright see them.

`programs/` is checked, not run. A line without a comment must be accepted; `assert_type` says what a result is. A line
that must be refused has `# type: ignore[...]` with mypy's code: both checkers report such a comment where it is unused.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "typing" / "programs"
REFUSED = re.compile(r"  # type: ignore\[([a-z-]+)\]$", re.MULTILINE)


def checked(checker: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        [sys.executable, "-m", checker, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_mypy_accepts_and_refuses(tmp_path: Path) -> None:
    done = checked("mypy", "--cache-dir", str(tmp_path), str(PROGRAMS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_accepts_and_refuses() -> None:
    done = checked("pyright")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda program: program.stem)
def test_every_program_shows_what_is_refused(program: Path) -> None:
    text = program.read_text()
    assert "assert_type(" in text
    assert REFUSED.findall(text)
