"""Qpid's own Python client, and the suite that it has for brokers of AMQP 0-10, unmodified.

They run on Python 2.7 alone. Where there is one (on PATH or in pyenv's folder), the packages are fetched into the cache
and run; else these tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.clients.published import CACHE
from tests.wire import BrokerThread

pytestmark = pytest.mark.slow

PACKAGES: Final = ("qpid-python==1.36.0.post1", "qpid-qmf==0.28", "qpid-tools==1.36.0.post1")

WITH_AGENT: Final = (
    "management.*", "stats.*", "threshold.*", "qmf_events.*", "message.MessageTests.test_ack",
    "msg_groups.MultiConsumerMsgGroupTests.test_default_group_id", "msg_groups.MultiConsumerMsgGroupTests.test_move_*",
    "msg_groups.MultiConsumerMsgGroupTests.test_purge_*", "msg_groups.MultiConsumerMsgGroupTests.test_query",
    "msg_groups.MultiConsumerMsgGroupTests.test_reroute", "new_api.GeneralTests.test_ambiguous_*",
    "new_api.GeneralTests.test_node_disambiguation_*",
)  # fmt: skip
"""Tests that ask the management agent of Qpid's C++ broker (QMF), which is not part of AMQP: 56."""

FAILING: Final = ("new_api.GeneralTests.test_nolocal_rerouted",)
"""A message does not keep the connection that it came by, which a later queue with `no-local` would ask for."""

LANES: Final = 6
"""Processes that run Qpid's tests at a time."""

LISTENING: Final = "qpid.tests.connection."
"""Tests that all listen on one port: one process runs them."""


def python() -> str | None:
    """A Python 2.7."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = [found for name in ("python2.7", "python2") if (found := shutil.which(name))]
    for candidate in [*on_path, *map(str, sorted(pyenv.glob("versions/2.7.*/bin/python")))]:
        # A name on PATH proves nothing: version managers put there names that only print an error.
        said = subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if said.stdout.strip() == "(2, 7)":
            return candidate
    return None


@pytest.fixture(scope="module")
def qpid() -> tuple[str, Path]:
    """The Python, and the folder of the packages."""
    found = python()
    if found is None:
        pytest.skip("Qpid's client needs Python 2.7, and there is none on PATH or in pyenv's folder")
    folder = CACHE / "qpid-1.36"
    if not folder.exists():
        fresh = CACHE / f"qpid-1.36.{os.getpid()}"
        command = [found, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh), *PACKAGES]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if installed.returncode:
            pytest.skip(f"Qpid's packages cannot be installed: {installed.stderr.strip().splitlines()[-1:]}")
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return found, folder


@dataclass(frozen=True)
class Report:
    """What a run of Qpid's tests said."""

    passed: int
    failed: list[str]
    """The names of the tests that failed."""
    words: str
    """What was printed of these."""


def command(qpid: tuple[str, Path], module: str, *arguments: str) -> str:
    """What Qpid's program for tests prints."""
    found, folder = qpid
    # A test is a line then, whatever the length of its name.
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    words = [found, str(folder / "bin/qpid-python-test"), "-m", module, *arguments]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return ran.stdout + ran.stderr


def named(qpid: tuple[str, Path], module: str, ignored: tuple[str, ...]) -> list[str]:
    """The names of a module's tests."""
    without = [word for name in ignored for word in ("-i", f"{module}.{name}")]
    listed = command(qpid, module, "-l", *without, f"{module}.*")
    return re.findall(rf"(?m)^\s*({re.escape(module)}\.\S+)", listed)


def run(qpid: tuple[str, Path], module: str, tests: list[str]) -> Report:
    """Runs these tests of a module, one after the other, with a broker of their own."""
    with BrokerThread() as broker:
        printed = command(qpid, module, "-b", f"guest/guest@127.0.0.1:{broker.port}", *tests)
    totals = re.search(r"Totals: (\d+) tests, (\d+) passed, .* (\d+) failed", printed)
    assert totals is not None, printed
    sections = re.split(rf"(?m)^(?={re.escape(module)}\S* \.+)", printed)
    words = [section for section in sections if re.match(r"\S+ \.+ fail$", section.partition("\n")[0])]
    assert (int(totals[1]), int(totals[3])) == (len(tests), len(words)), printed
    return Report(int(totals[2]), [section.split()[0] for section in words], "\n".join(words))


def passed(qpid: tuple[str, Path], module: str, ignored: tuple[str, ...] = ()) -> int:
    """How many tests of a module pass. Fails if one does not.

    Most of them wait for something that must not come, so several are run at once. They give the broker one second for
    an answer, and a busy machine can stop it for longer: a test that failed is run once more, alone.
    """
    lanes: list[list[str]] = [[] for _ in range(LANES)]
    for number, name in enumerate(named(qpid, module, ignored)):
        lanes[0 if name.startswith(LISTENING) else number % LANES].append(name)
    with ThreadPoolExecutor(LANES) as pool:
        reports = list(pool.map(partial(run, qpid, module), lanes))
    first = sum(report.passed for report in reports)
    failed = [name for report in reports for name in report.failed]
    if not failed:
        return first
    again = run(qpid, module, failed)
    words = "\n".join(report.words for report in reports)
    assert not again.failed, f"{words}\n\nonce more, alone:\n{again.words}"
    return first + again.passed


def test_the_tests_of_the_client(qpid: tuple[str, Path]) -> None:
    assert passed(qpid, "qpid.tests") == 349


def test_the_suite_for_brokers(qpid: tuple[str, Path]) -> None:
    assert passed(qpid, "qpid_tests.broker_0_10", (*WITH_AGENT, *FAILING)) == 176
