"""The scripts: a signal at any moment of a command, its loading included, is one line and a status of its own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.command import TIMEOUT, environment, python

INTERRUPTING = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            {interrupt}

sys.meta_path.insert(0, Interrupting())
sys.argv = [{script!r}, *{given}]
from harebell.cli.entry import {script}
{script}()
"""


@pytest.mark.parametrize(("script", "given", "module"), [
    ("harebell", ["ping"], "harebell.cli.main"), ("harebell", ["ping"], "harebell.errors"),
    ("harebell", ["ping"], "cyclopts"), ("harebell", ["ping"], "rich"), ("harebell", ["ping"], "harebell.cli.ping"),
    ("harebell", ["serve"], "harebell.broker"), ("harebell", ["queues", "list"], "rich.table"),
    ("harebell", ["--version"], "harebell.printable"), ("harebellctl", ["status"], "harebell.cli.ctl.main"),
    ("harebellctl", ["status"], "cyclopts"), ("harebellctl", ["status"], "harebell.cli.ctl.command"),
])  # fmt: skip
def test_ctrl_c_while_a_command_is_loaded(script: str, given: list[str], module: str) -> None:
    code = INTERRUPTING.format(script=script, given=given, module=module, interrupt="raise KeyboardInterrupt")
    result = python(code)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", f"{script}: interrupted\n")


@pytest.fixture(autouse=True)
def hang_ups() -> Iterator[None]:
    """Under `nohup` these tests would ignore SIGHUP, and so would each process that they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


ENDING = {"SIGTERM": 143, "SIGHUP": 129}
KILL = "import os, signal; os.kill(os.getpid(), signal.{})"
MODULES = ["harebell.cli.main", "cyclopts", "harebell.broker"]


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("module", MODULES)
def test_a_signal_while_a_command_is_loaded(module: str, number: str) -> None:
    code = INTERRUPTING.format(script="harebell", given=["serve"], module=module, interrupt=KILL.format(number))
    result = python(code)
    assert (result.returncode, result.stdout) == (ENDING[number], "")
    assert result.stderr == f"harebell: ended by {number}\n"


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_for_process_1(number: str) -> None:
    """The kernel drops a signal for it that has no handler."""
    unshare = (shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
    with suppress(OSError):
        if not subprocess.run([*unshare, "true"], capture_output=True).returncode:
            kill = KILL.format(number)
            code = INTERRUPTING.format(script="harebell", given=["serve"], module="harebell.broker", interrupt=kill)
            command = [*unshare, sys.executable, "-c", code]
            result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT)
            assert (result.returncode, result.stderr) == (ENDING[number], f"harebell: ended by {number}\n")
            return
    pytest.skip("no process of this user may be the first of a namespace")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_with_its_cleaning_up(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """The broker of this export never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"amqp://127.0.0.1:{listening.getsockname()[1]}/"
        command = [sys.executable, "-m", "harebell", "definitions", "export", "--url", url, "--file", "out.json"]
        with subprocess.Popen(
            command, env=environment(TMPDIR=str(tmp_path)), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as process:
            listening.settimeout(TIMEOUT)
            with listening.accept()[0] as accepted:
                accepted.settimeout(TIMEOUT)
                assert accepted.recv(8) == b"AMQP\x00\x00\x09\x01"
                process.send_signal(number)
                assert process.wait(TIMEOUT) == status
            assert process.stderr is not None
            assert process.stderr.read().count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_ignores_a_signal_goes_on_doing_so() -> None:
    """As `nohup` has it."""
    kill = KILL.format("SIGHUP")
    code = INTERRUPTING.format(script="harebell", given=["--version"], module="harebell.printable", interrupt=kill)
    result = python(f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{code}")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("harebell ")
