"""Qpid's own Python client, and the suite that it has for brokers of AMQP 0-10, unmodified.

They run on Python 2.7 alone. Where there is one (on PATH or in pyenv's folder), the packages are fetched into the cache
and run; else these tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
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


def run(
    broker: BrokerThread, qpid: tuple[str, Path], module: str, tests: tuple[str, ...], ignored: tuple[str, ...] = ()
) -> Report:
    """Runs the tests of a module whose names are like one of ``tests``."""
    found, folder = qpid
    command = [found, str(folder / "bin/qpid-python-test"), "-b", f"guest/guest@127.0.0.1:{broker.port}", "-m", module]
    for name in ignored:
        command += ["-i", f"{module}.{name}"]
    # A test is a line then, whatever the length of its name.
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    ran = subprocess.run([*command, *tests], env=environment, capture_output=True, text=True, timeout=900, check=False)
    totals = re.search(r"Totals: \d+ tests, (\d+) passed, .* (\d+) failed", ran.stdout)
    assert totals is not None, ran.stdout + ran.stderr
    sections = re.split(rf"(?m)^(?={re.escape(module)}\S* \.+)", ran.stdout)
    words = [section for section in sections if re.match(r"\S+ \.+ fail$", section.partition("\n")[0])]
    assert len(words) == int(totals[2]), ran.stdout
    return Report(int(totals[1]), [section.split()[0] for section in words], "\n".join(words))


def passed(broker: BrokerThread, qpid: tuple[str, Path], module: str, ignored: tuple[str, ...] = ()) -> int:
    """How many tests of a module pass. Fails if one does not.

    Most of Qpid's tests give the broker one second for an answer, and a busy machine can stop it for longer: a test
    that failed is run once more, alone.
    """
    first = run(broker, qpid, module, (f"{module}.*",), ignored)
    if not first.failed:
        return first.passed
    again = run(broker, qpid, module, tuple(first.failed))
    assert not again.failed, f"{first.words}\n\nonce more, alone:\n{again.words}"
    return first.passed + again.passed


def test_the_tests_of_the_client(broker: BrokerThread, qpid: tuple[str, Path]) -> None:
    assert passed(broker, qpid, "qpid.tests") == 349


def test_the_suite_for_brokers(broker: BrokerThread, qpid: tuple[str, Path]) -> None:
    assert passed(broker, qpid, "qpid_tests.broker_0_10", (*WITH_AGENT, *FAILING)) == 176
