"""A forked child that uses an inherited connection: its calls raise, and the parent's connection goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.forked import REFUSED

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

PROGRAM = (
    f"""{REFUSED}
import asyncio, os, sys
import harebell
"""
    + """
async def all_refused(connection, channel, producer, session, delivery):
    await refused_awaiting(
        lambda: channel.publish(b"child", "", "q"),
        lambda: channel.publish_many([harebell.Publication(b"child", "", "q")]),
        lambda: channel.queue_declare("q"), lambda: channel.get("q"), connection.channel,
        lambda: producer.publish(b"child", "q"), lambda: producer.publish_soon(b"child", "q"),
        channel.consume("q").start, lambda: connection.update_secret("x"),
        lambda: session.publish(b"child", "", "q"), lambda: channel.send(b"child", "", "q"),
    )

async def child(url, connection, channel, producer, session, delivery):
    await all_refused(connection, channel, producer, session, delivery)
    refused(delivery.ack)
    refused(lambda: channel.publish_nowait(b"child", "", "q"))
    assert (connection.state, connection.is_closed, channel.is_open) == ("closed", True, False)
    assert isinstance(connection.closed_reason, errors.LocalProtocolError)
    assert await connection.wait_closed() is connection.closed_reason
    await channel.close()
    await connection.close()
    async with harebell.connect(url) as own, own.channel() as another:
        await another.publish(b"own", "", "q")

async def main(url):
    async with (
        harebell.connect(url) as connection, connection.channel() as channel, connection.producer() as producer,
        harebell.sessions.connect(url) as over, over.session("s") as session,
    ):
        await channel.queue_declare("q", exclusive=False, auto_delete=False)
        await channel.confirm_select()
        channel.confirmations()
        await channel.publish(b"first", "", "q")
        delivery = await channel.get("q")
        under_way = await producer.publish_soon(b"under way", "q")
        pid = os.fork()
        if not pid:
            status = 1
            try:
                asyncio.run(child(url, connection, channel, producer, session, delivery))
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == 0
        delivery.ack()
        assert (await under_way).acked
        await channel.publish(b"parent", "", "q")
        await session.publish(b"session", "", "q")
        found = []
        while (delivery := await channel.get("q", no_ack=True)) is not None:
            found.append(delivery.body)
        assert sorted(found) == [b"own", b"parent", b"session", b"under way"], found
        assert connection.test().reconnection_count == 1
        await channel.queue_delete("q")

asyncio.run(main(sys.argv[1]))
"""
)


def test_a_child_is_refused_and_its_parent_goes_on(harebell_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-Wignore::DeprecationWarning", "-c", PROGRAM, harebell_url],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
