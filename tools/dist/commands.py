"""Runs the programs that build and try packages, without the paths of this repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "Failed", "environment", "run", "say"]

ROOT: Final = Path(__file__).resolve().parents[2]
LEFT_OUT: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables of the environment that let another Harebell or another Python's packages be found; and HAREBELL_*."""
LONGEST: Final = 1800.0  # seconds of one program: what takes longer hangs; the slowest, mypyc, takes 200
SHOWN: Final = 4000  # characters of the output of a program that failed


class Failed(Exception):
    """A step failed; its output is the text."""


def say(words: str) -> None:
    print(f"dist: {words}", flush=True)


def run(command: Sequence[str | Path], cwd: Path, **more: str) -> str:
    """Run a program with `more` in its environment. Returns its output. Raises Failed when its exit status is not 0."""
    kept = {
        name: value for name, value in os.environ.items() if name not in LEFT_OUT and not name.startswith("HAREBELL_")
    }
    try:
        done = subprocess.run(
            list(map(str, command)), cwd=cwd, env=kept | more, text=True, check=False, timeout=LONGEST,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(map(str, command))}\nhas not ended in {LONGEST:.0f} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout[-SHOWN:]}")
    return done.stdout


def environment(python: Path, folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages, which may be options of pip too. Returns its Python."""
    run([python, "-m", "venv", folder], folder.parent)
    made = folder / "bin" / "python"
    run([made, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"], folder)  # the first that reads groups
    run([made, "-m", "pip", "install", "--quiet", *packages], folder)
    return made
