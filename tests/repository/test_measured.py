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
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fixtures import long

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
    """The arguments of each pytest that `make test` starts for the sources, not for a compiled copy of them."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST_"))}
    command = ["make", "-n", "test", "SEED=1"]
    make = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    commands = [
        shlex.split(line)
        for line in make.stdout.replace("\\\n", " ").splitlines()
        if " -m pytest " in line and "pythonpath=" not in line
    ]
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


KINDS = ("rabbitmq", "rabbitmq4", "harebell")
SUBJECT = "def measured():\n    return 1\n\n\ndef repeated():\n    return 2\n"
TESTS = """
import os, subprocess, sys
import pytest, subject

EXIT = os._exit

def test_measured():
    assert subject.measured() == 1

@pytest.mark.repeats
@pytest.mark.parametrize("time", range(3))
def test_repeated(time):
    assert subject.repeated() == 2
    assert sys.gettrace() is None
    subprocess.run([sys.executable, "-c", "import subject; subject.repeated()"], check=True)

def test_measured_again():
    assert "COVERAGE_PROCESS_CONFIG" in os.environ
    assert os._exit is EXIT
"""


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["one process", "pytest-xdist"])
def test_what_repeats_is_not_measured(processes: list[str], tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text(SUBJECT)
    (tmp_path / "test_subject.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = repeats\npythonpath = .\n")
    (tmp_path / ".coveragerc").write_text("[run]\npatch = subprocess, _exit\ncore = ctrace\n")
    options = ["-q", "-p", "tests.fixtures.measured", "--cov=subject", "--cov-report=term-missing", *processes]
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COVERAGE_", "COV_"))
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True,
        env=outside | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
    )  # fmt: skip
    assert "5 passed" in run.stdout, run.stdout + run.stderr
    assert [line.split()[-1] for line in run.stdout.splitlines() if line.startswith("subject.py")] == ["6"]


@pytest.mark.parametrize("asked_for", [False, True])
def test_what_is_long_is_run_where_it_is_asked_for(
    asked_for: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked_for:
        monkeypatch.setenv("HAREBELL_LONG", "1")
    else:
        monkeypatch.delenv("HAREBELL_LONG", raising=False)
    left_out: list[pytest.Item] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    quick, slow = (pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None) for name in "ab")
    slow.add_marker("long")
    items: list[pytest.Item] = [slow, quick]
    long.pytest_collection_modifyitems(cast(Any, SimpleNamespace(hook=hook)), items)
    assert (items, left_out) == (([slow, quick], []) if asked_for else ([quick], [slow]))


def test_of_twins_one_is_run() -> None:
    """Of a test on both versions of RabbitMQ, and on Harebell; but not where the versions are compared."""
    names = [
        f"tests/client/test_a.py::test_{name}[{kind}-{way}]" for name in "abcdefgh" for kind in KINDS for way in "xy"
    ]
    left_out = set(long.twins(names))
    for name in "abcdefgh":
        for way in "xy":
            cases = {kind: f"tests/client/test_a.py::test_{name}[{kind}-{way}]" for kind in KINDS}
            assert cases["harebell"] not in left_out
            assert (cases["rabbitmq"] in left_out) != (cases["rabbitmq4"] in left_out)
    assert {kind for kind in KINDS if any(f"[{kind}-" in name for name in left_out)} == {"rabbitmq", "rabbitmq4"}
    assert long.twins(["tests/differential/test_a.py::test_a[3.10]", "tests/differential/test_a.py::test_a[4.0]"]) == []
    assert len(long.twins(["tests/a.py::test_a[3.10]", "tests/a.py::test_a[4.0]", "tests/a.py::test_b[4.0]"])) == 1
    assert long.twins(["tests/a.py::test_a", "tests/b.py::test_a[rabbitmq4]"]) == []
