"""Runs the `harebell` command as its users do: as a process of its own, with this interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"

TIMEOUT = 300.0  # seconds; what takes that long hangs


def environment(**changes: str) -> dict[str, str]:
    """The process's own, with the sources on the path, a terminal of fixed width, and `changes`."""
    path = os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "TERM": "dumb", **changes}


def harebell(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harebell", *map(str, arguments)],
        env=environment(**changes), capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
