"""Benchmarks as their readers run them: programs of their own, beside whatever else listens on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["FOLDER", "run"]

FOLDER = Path(__file__).parents[2] / "benchmarks"
LONGEST = 600.0  # seconds, on a machine that is busy with much else


def run(*arguments: object) -> str:
    """What a program prints that must not fail."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        env=os.environ | {"HAREBELL_MANAGEMENT_PORT": "0", "PYTHONPATH": f"{FOLDER.parent / 'src'}:{FOLDER}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
