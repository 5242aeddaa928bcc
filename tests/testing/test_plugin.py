"""The fixtures of `warren.testing.plugin`, as the tests of an application use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = "[pytest]\nasyncio_mode = {}\nasyncio_default_fixture_loop_scope = function\n"
APPLICATION = '''
import asyncio
import warren
from warren import blocking

seen = []


async def test_a_channel(warren_channel, warren_connection, warren_broker):
    await warren_channel.queue_declare("q")
    assert str(warren_broker.port) in warren_connection.parameters.peer
    seen.append(warren_broker.port)


async def test_each_test_has_its_own_broker(warren_channel):
    try:
        await warren_channel.queue_declare("q", passive=True)
    except warren.errors.NotFound:
        return
    raise AssertionError("the queue of the other test")


def test_a_blocking_program(warren_url):
    with blocking.connect(warren_url) as connection:
        assert connection.channel().queue_declare("q").message_count == 0


async def test_what_is_held_down_is_let_go(warren_connection, warren_connect):
    other = await warren_connect(recovery=None)
    assert other.is_open
    warren_connection.test().block_reconnect()
    warren_connection.test().disconnect_transport()
    assert warren_connection.state == "reconnecting"


async def test_a_restart(warren_broker, warren_connection):
    signal = warren_connection.test().signal_on_reconnect()
    await asyncio.to_thread(warren_broker.restart)
    await signal.wait()


async def test_the_suite(warren_suite):
    queue = await warren_suite.create_test_queue()
    await warren_suite.publish_messages("", queue)
    assert (await warren_suite.get_message(queue)).body == b"0"


class TestOptions:
    import pytest

    @pytest.fixture
    def warren_broker_options(self):
        return {"definitions": {"queues": [{"name": "defined", "vhost": "/", "durable": True, "auto_delete": False}]}}

    async def test_definitions(self, warren_channel):
        await warren_channel.queue_declare("defined", passive=True)


def test_fails(warren_url):
    raise AssertionError("seen")
'''


def run(folder: Path, *arguments: str, **environment: str) -> str:
    (folder / "conftest.py").write_text('pytest_plugins = ["warren.testing.plugin"]\n')
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
        "import pytest\n\n@pytest.mark.asyncio\nasync def test_it(warren_channel):\n    assert warren_channel.is_open\n"
    )
    assert "1 passed" in run(tmp_path, "test_strict.py")
    report = run(tmp_path, "test_strict.py", WARREN_TEST_URL="amqp://127.0.0.1:1/")
    assert "errors.ConnectionLost" in report
