"""`make test` runs each test once: its runs, as `make` gives them, make the whole and have nothing in common."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Tests of every kind: quick ones and others, of packages that are measured and of others, in a folder and beside.
SAMPLE = (
    "tests/testing",
    "tests/repository/test_pyproject.py",
    "tests/test_errors.py",
    "tests/cli/administration/test_users.py",
    "tests/spark/runtime/test_session.py",
    "tests/channels/test_churn.py",
)
PROCESSES = {"-n", "--dist", "--seed"}  # options with a value that say how, not what


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [line for line in run.stdout.splitlines() if "::" in line]


def runs() -> list[list[str]]:
    """The arguments of each pytest that `make test` starts."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST_"))}
    command = ["make", "-n", "test", "SEED=1"]
    make = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    commands = [shlex.split(line) for line in make.stdout.replace("\\\n", " ").splitlines() if " -m pytest " in line]
    return [command[command.index("pytest") + 1 :] for command in commands]


def part(run: list[str]) -> list[str] | None:
    """The arguments of a run that collects no more than the sample; None when it has nothing of it."""
    options, paths, arguments = [], [], iter(run)
    for argument in arguments:
        if argument in PROCESSES:
            next(arguments)
        elif argument in ("-m", "--not-measured", "--leave-out", "--hypothesis-profile"):
            options += [argument, next(arguments)]
        elif not argument.startswith("-"):
            paths.append(argument)
    chosen = [each for each in SAMPLE if not paths or any(Path(each).is_relative_to(path) for path in paths)]
    return [*options, *chosen] if chosen else None


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_each_test_is_run_once() -> None:
    parts = [arguments for run in runs() if (arguments := part(run)) is not None]
    assert len(parts) == 3
    tests = [collected(*arguments) for arguments in parts]
    assert all(tests)
    assert Counter(chain.from_iterable(tests)) == Counter(collected(*SAMPLE))
