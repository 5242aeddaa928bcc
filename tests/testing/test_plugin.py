"""The fixtures of `harebell.testing.plugin`, as the tests of an application use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = "[pytest]\nasyncio_mode = {}\nasyncio_default_fixture_loop_scope = function\n"
APPLICATION = """
import asyncio
import harebell
from harebell import blocking

seen = []


async def test_a_channel(harebell_channel, harebell_connection, harebell_broker):
    await harebell_channel.queue_declare("q")
    assert str(harebell_broker.port) in harebell_connection.parameters.peer
    seen.append(harebell_broker.port)


async def test_each_test_has_its_own_broker(harebell_channel):
    try:
        await harebell_channel.queue_declare("q", passive=True)
    except harebell.errors.NotFound:
        return
    raise AssertionError("the queue of the other test")


def test_a_blocking_program(harebell_url):
    with blocking.connect(harebell_url) as connection:
        assert connection.channel().queue_declare("q").message_count == 0


async def test_what_is_held_down_is_let_go(harebell_connection, harebell_connect):
    other = await harebell_connect(recovery=None)
    assert other.is_open
    harebell_connection.test().block_reconnect()
    harebell_connection.test().disconnect_transport()
    assert harebell_connection.state == "reconnecting"


async def test_a_restart(harebell_broker, harebell_connection):
    signal = harebell_connection.test().signal_on_reconnect()
    await asyncio.to_thread(harebell_broker.restart)
    await signal.wait()


async def test_the_suite(harebell_suite):
    queue = await harebell_suite.create_test_queue()
    await harebell_suite.publish_messages("", queue)
    assert (await harebell_suite.get_message(queue)).body == b"0"


class TestOptions:
    import pytest

    @pytest.fixture
    def harebell_broker_options(self):
        return {"definitions": {"queues": [{"name": "defined", "vhost": "/", "durable": True, "auto_delete": False}]}}

    async def test_definitions(self, harebell_channel):
        await harebell_channel.queue_declare("defined", passive=True)


def test_fails(harebell_url):
    raise AssertionError("seen")
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    (folder / "conftest.py").write_text('pytest_plugins = ["harebell.testing.plugin"]\n')
    (folder / "test_application.py").write_text(APPLICATION)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments],
        cwd=folder, env={**os.environ, **environment}, text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS.format("auto"))
    report = run(tmp_path)
    assert "1 failed, 7 passed" in report, report


def test_strict_mode_and_another_broker(tmp_path: Path) -> None:
    """The fixtures say themselves that they are asynchronous; an unreachable URL shows that it is asked."""
    (tmp_path / "pytest.ini").write_text(SETTINGS.format("strict"))
    (tmp_path / "test_strict.py").write_text(
        "import pytest\n\n@pytest.mark.asyncio\n"
        "async def test_it(harebell_channel):\n    assert harebell_channel.is_open\n"
    )
    assert "1 passed" in run(tmp_path, "test_strict.py")
    report = run(tmp_path, "test_strict.py", HAREBELL_TEST_URL="amqp://127.0.0.1:1/")
    assert "errors.ConnectionLost" in report
