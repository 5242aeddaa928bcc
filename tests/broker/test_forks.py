"""A forked child of a process with a broker: it has nothing of it, whatever it does, and the parent's goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import REFUSED

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

COMMON = f"""{REFUSED}
import asyncio, atexit, gc, logging, os, sys
from pathlib import Path
import harebell
from harebell.broker import Broker
from harebell.config import Limits
from harebell.testing import EmbeddedBroker

logging.disable()  # what is left on stderr is a failure

def in_child(call):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            call()
            status = 0
        finally:
            os._exit(status)
    return pid

def ended(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def living_child():
    (reader, writer), (ready, begun) = os.pipe(), os.pipe()
    pid = in_child(lambda: (os.close(writer), os.close(begun), os.read(reader, 1)))
    os.close(begun)
    os.read(ready, 1)  # the child has let go of what it inherited
    return pid, writer
"""

LEFT = """
async def main():
    async with Broker(data=sys.argv[1] or None) as broker, harebell.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await channel.queue_declare("q", durable=True, exclusive=True)
        await channel.publish(b"before", "", "q")
        under_way = [asyncio.ensure_future(channel.publish(b"under way", "", "q")) for _ in range(20)]
        await asyncio.sleep(0)
        pid = os.fork()
        if not pid:
            del broker, connection, channel
            gc.collect()
            atexit._run_exitfuncs()
            os._exit(0)  # sys.exit would have asyncio close what its loop shares with the parent's
        ended(pid)
        assert broker.folder.exists()
        await asyncio.gather(*under_way)
        await channel.queue_declare("new", durable=True)
        await channel.publish(b"x" * 10_000_000, "", "new")
        assert (await channel.queue_declare("q", passive=True)).message_count == 21
        async with harebell.connect(broker.url) as another:
            assert another.is_open
        folder = broker.folder
    assert folder.exists() == bool(sys.argv[1])

asyncio.run(main())
"""

METHODS = """
async def child(broker):
    for call in (
        lambda: broker.node, lambda: broker.listeners,
        broker.statistics, lambda: broker.set_limits(Limits()), broker.export_definitions,
        lambda: broker.add_decorator(lambda queue: None), lambda: broker.set_policy("p", ".*", {}),
    ):
        refused(call)
    await refused_awaiting(broker.start, broker.open_socket, broker.wait_failed, broker.reload_tls)
    await broker.stop()
    await broker.stop()
    async with harebell.connect(broker.url, recovery=None) as connection:  # the parent's, who serves it
        assert connection.is_open
    async with Broker() as own, harebell.connect(own.url) as connection:
        assert connection.is_open

async def main():
    async with Broker(data=sys.argv[1] or None) as broker:
        pid = in_child(lambda: asyncio.run(child(broker)))
        await asyncio.to_thread(ended, pid)
        broker.set_limits(Limits())

asyncio.run(main())
"""

LIVES_ON = """
async def main():
    broker = Broker(data=sys.argv[1] or None)
    await broker.start()
    client = await harebell.connect(broker.url, recovery=None)
    pid, let_go = living_child()
    client_gone = asyncio.ensure_future(client.wait_closed())
    silent_reader, silent = await asyncio.open_connection("127.0.0.1", broker.port)
    await broker.stop()
    await client_gone
    try:
        await harebell.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/")
    except errors.ConnectionLost as error:
        assert "cannot be reached" in str(error), error
    else:
        raise AssertionError("somebody listens on the port of a broker that is stopped")
    assert await silent_reader.read() == b""
    silent.close()
    await broker.start()
    await broker.stop()
    os.close(let_go)
    ended(pid)

asyncio.run(main())
"""

EMBEDDED = """
server = EmbeddedBroker(lambda: Broker(data=sys.argv[1] or None))
with server:
    folder = server.broker.folder
    pid = os.fork()
    if not pid:
        sys.exit(0)  # out of the block
    ended(pid)
    def child():
        for call in (
            lambda: server.broker, lambda: server.run(lambda broker: 0), server.open_socket, server.start,
            server.restart,
        ):
            refused(call)
        server.stop()
        server.close()
        with harebell.blocking.connect(server.url) as connection:
            connection.channel().queue_declare("child")
        with EmbeddedBroker() as own, harebell.blocking.connect(own.url):
            pass
    ended(in_child(child))
    assert folder.exists() and server.is_running
    with harebell.blocking.connect(server.url) as connection:
        connection.channel().queue_declare("child", passive=True)
    pid, let_go = living_child()
    server.restart()
    os.close(let_go)
    ended(pid)
assert folder.exists() == bool(sys.argv[1])
server.start()
server.close()
"""


@pytest.mark.parametrize("temporary", [True, False], ids=["in a temporary folder", "in a folder"])
@pytest.mark.parametrize(
    "program", [LEFT, METHODS, LIVES_ON, EMBEDDED], ids=["left", "methods", "lives on", "embedded"]
)
def test_a_child_has_nothing_of_the_broker(program: str, temporary: bool, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-Wignore::DeprecationWarning", "-c", COMMON + program,
            "" if temporary else str(tmp_path / "data"),
        ],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
