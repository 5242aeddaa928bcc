"""Qpid's own Python client, and the suite that it has for brokers of AMQP 0-10, unmodified.

They run on Python 2.7 alone. Where there is one (on PATH or in pyenv's folder), the packages are fetched into the cache
and run; else these tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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


def run(broker: BrokerThread, qpid: tuple[str, Path], module: str, ignored: tuple[str, ...] = ()) -> tuple[int, str]:
    """The tests of a module. Returns how many passed, and what was printed."""
    found, folder = qpid
    command = [found, str(folder / "bin/qpid-python-test"), "-b", f"guest/guest@127.0.0.1:{broker.port}", "-m", module]
    for name in ignored:
        command += ["-i", f"{module}.{name}"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    ran = subprocess.run(
        [*command, f"{module}.*"], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    totals = re.search(r"Totals: \d+ tests, (\d+) passed, .* (\d+) failed", ran.stdout)
    assert totals is not None, ran.stdout + ran.stderr
    assert totals[2] == "0", ran.stdout
    return int(totals[1]), ran.stdout


def test_the_tests_of_the_client(broker: BrokerThread, qpid: tuple[str, Path]) -> None:
    passed, _ = run(broker, qpid, "qpid.tests")
    assert passed == 349


def test_the_suite_for_brokers(broker: BrokerThread, qpid: tuple[str, Path]) -> None:
    passed, _ = run(broker, qpid, "qpid_tests.broker_0_10", (*WITH_AGENT, *FAILING))
    assert passed == 176
