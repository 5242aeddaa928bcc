"""`make test` runs each test once: what is measured for coverage, and what `--not-measured` leaves, make the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [line for line in run.stdout.splitlines() if "::" in line]


def test_each_test_is_run_once() -> None:
    folders = ("tests/testing", "tests/repository/test_pyproject.py")
    measured = collected("-m", "not spark and not rabbitmq and not slow", "tests/testing")
    rest = collected("--not-measured", "testing", *folders)
    assert measured
    assert rest
    assert sorted(measured + rest) == sorted(collected(*folders))
