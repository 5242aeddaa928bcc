"""`harebell serve` with its HTTP API: by an option, by default, and where it cannot be had."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harebell.testing.rabbitmq import free_ports
from tests.admin.kit import CERTIFICATE, KEY, Api
from tests.cli.command import environment

STOP_SECONDS = 30.0
AT = re.compile(r"HTTP API at (https?)://127\.0\.0\.1:(\d+)/")
ON = ("--management", "--management-port", "0")

WITHOUT = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
sys.meta_path.insert(0, Blocker())
from harebell.cli.main import main
sys.exit(main())
"""


@contextmanager
def serving(*arguments: str | Path, code: str = "", **changes: str) -> Iterator[subprocess.Popen[str]]:
    """The process of a broker that is ready."""
    run = ["-c", code] if code else ["-m", "harebell"]
    with subprocess.Popen(
        [sys.executable, *run, "serve", "--port", "0", *map(str, arguments)],
        env=environment(**changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "ready at" in line, process.stderr.read() if process.stderr else ""
            yield process
        finally:
            process.kill()


def refused(*arguments: str | Path, code: str = "", **changes: str) -> str:
    """The error of a broker that does not start."""
    run = ["-c", code] if code else ["-m", "harebell"]
    done = subprocess.run(
        [sys.executable, *run, "serve", *map(str, arguments)],
        env=environment(**{"HAREBELL_PORT": "0", **changes}), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def address(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stderr is not None
    for line in process.stderr:
        found = AT.search(line)
        if found:
            return found[1], int(found[2])
    raise AssertionError("no address in the log")


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=STOP_SECONDS)
    assert process.returncode == 0
    return log


def test_it_is_there_and_ends_with_the_broker(tmp_path: Path) -> None:
    with serving("--data", tmp_path, *ON) as process:
        _, port = address(process)
        assert Api(port).get("/api/whoami")["name"] == "guest"
        assert Api(port).get("/api/shovels") == []
        log = ended(process)
        assert "Traceback" not in log
        assert "GET" not in log, "requests are no lines of the log"


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with serving("--data", tmp_path, "--no-management", HAREBELL_MANAGEMENT="yes") as process:
        assert "HTTP API" not in ended(process)


def test_https_beside_tls_and_nothing_else_with_tls_only(tmp_path: Path) -> None:
    tls = ("--tls-cert", CERTIFICATE, "--tls-key", KEY, "--tls-port", "0", "--management-tls-port", "0")
    with serving("--data", tmp_path, *ON, *tls, "--tls-only") as process:
        assert address(process)[0] == "https"
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert any("certificate read again" in line for line in process.stderr)
        ended(process)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def test_a_port_that_is_taken_is_an_error_where_it_was_asked_for(tmp_path: Path, taken: int) -> None:
    error = refused("--data", tmp_path, "--management", "--management-port", str(taken))
    assert f"port {taken} of 127.0.0.1 is taken" in error
    assert "give another port with --management-port; 0 takes a free one" in error


def test_a_port_that_is_the_brokers_own(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    error = refused("--data", tmp_path, "--management", "--port", str(port), "--management-port", str(port))
    assert f"port {port} of 127.0.0.1 is this broker's own --port: give another port with --management-port" in error


def test_a_default_port_that_is_taken_leaves_the_broker_alone(tmp_path: Path, taken: int) -> None:
    code = f"import harebell.config as c; c.OPTIONS['management_port'].default = {taken}\n"
    code += f"c.Config.__init__.__kwdefaults__['management_port'] = {taken}\n"
    code += "import sys; from harebell.cli.main import main; sys.exit(main())"
    with serving("--data", tmp_path, code=code, HAREBELL_MANAGEMENT="") as process:
        log = ended(process)
    assert f"no HTTP API: port {taken} of 127.0.0.1 is taken" in log
    assert "--no-management does without it" in log


def test_without_the_extra_the_broker_serves_and_says_what_is_missing(tmp_path: Path) -> None:
    with serving("--data", tmp_path, code=WITHOUT, HAREBELL_MANAGEMENT="") as process:
        log = ended(process)
    assert "no HTTP API: uvicorn is not installed: pip install 'harebell[admin]', or give --no-management" in log


def test_without_the_extra_it_is_an_error_where_it_was_asked_for(tmp_path: Path) -> None:
    assert "uvicorn is not installed" in refused("--data", tmp_path, *ON, code=WITHOUT)
