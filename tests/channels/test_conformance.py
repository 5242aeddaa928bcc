"""ASGI 1's own tests of channel layers, and a server of that time: asgiref 1.1 and Daphne 1.4, each a process.

They come from PyPI into a folder of their own (`tools/test_servers.sh`), which hides the versions of today.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

OLD = Path(os.environ.get("HAREBELL_TEST_CACHE", "/var/cache/harebell-test")) / "asgi1"
pytestmark = pytest.mark.skipif(not (OLD / "asgiref").exists(), reason="no asgiref 1: run tools/test_servers.sh")

CONFORMANCE = """
import os, unittest
from asgiref.conformance import ConformanceTestCase
from harebell.channels import AsgiChannelLayer

class Layer(ConformanceTestCase):
    settings = {"prefix": os.environ["PREFIX"], "expiry": 1, "group_expiry": 2, "capacity": 5}
    channel_layer = AsgiChannelLayer(os.environ["URL"], **settings)
    expiry_delay = 1.1
    capacity_limit = 5

unittest.main(argv=["conformance"])
"""

APPLICATION = """
import os
from harebell.channels import AsgiChannelLayer

channel_layer = AsgiChannelLayer(os.environ["URL"], prefix=os.environ["PREFIX"])

if __name__ == "__main__":
    while True:
        channel, message = channel_layer.receive(["http.request"], block=True)
        if channel is not None:
            content = b"you asked for " + message["path"].encode()
            channel_layer.send(message["reply_channel"], {"status": 200, "headers": [], "content": content})
"""

DAPHNE = "from daphne.cli import CommandLineInterface; CommandLineInterface.entrypoint()"


def environment(url: str, prefix: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(OLD), "PYTHONWARNINGS": "ignore", "URL": url, "PREFIX": prefix}


def test_the_tests_of_asgiref_1(broker_url: str, prefix: str) -> None:
    command = [sys.executable, "-c", CONFORMANCE]
    run = subprocess.run(command, env=environment(broker_url, prefix), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "Ran 18 tests" in run.stderr
    assert "skipped=1" in run.stderr  # the base class itself


def test_daphne_1_serves_an_application(broker_url: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "old_application.py").write_text(APPLICATION)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    commands = [["-c", DAPHNE, "-p", str(port), "old_application:channel_layer"], ["old_application.py"]]
    processes = [
        subprocess.Popen([sys.executable, *command], env=environment(broker_url, prefix), cwd=tmp_path)
        for command in commands
    ]
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=60) as answer:
                    content = answer.read()
                break
            except OSError:
                assert time.monotonic() < deadline
                assert all(process.poll() is None for process in processes)
                time.sleep(0.1)
        assert content == b"you asked for /page"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
