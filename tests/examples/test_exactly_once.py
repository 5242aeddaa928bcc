"""The example of the tutorial: the broker and the program are killed in the middle, and each order has one invoice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

import harebell
from harebell.broker import Broker
from tests.torture.server import Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "exactly_once" / "invoices.py"
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "exactly-once.md"
ORDERS = 1500
PATIENCE = 240.0


class Program:
    def __init__(self, port: int, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "HAREBELL_URL": f"amqp://127.0.0.1:{port}"}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, str(EXAMPLE), *arguments,
            cwd=self.folder, env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, *arguments: str) -> str:
        process = await self.start(*arguments)
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()


async def lines(process: asyncio.subprocess.Process, count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert await process.stdout.readline()


@pytest.mark.slow
async def test_the_broker_and_the_program_are_killed(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    program = Program(server.port, tmp_path)
    async with asyncio.timeout(PATIENCE):
        await server.start()
        await program.run("fill", str(ORDERS))
        work = await program.start("work")
        await lines(work, 5)
        await server.kill()
        await server.start()
        await lines(work, 5)
        work.kill()
        await work.communicate()
        said = await program.run("work")
        assert said.splitlines()[-1].endswith(" invoices")
        assert await program.run("check") == f"0 orders left, {ORDERS} invoices, 0 of them twice\n"
        await server.stop()


async def test_the_loop_of_the_tutorial() -> None:
    """It makes an invoice for each order, and takes more."""
    (loop,) = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    async with Broker() as broker, asyncio.timeout(PATIENCE):
        names: dict[str, object] = {"harebell": harebell, "URL": broker.url}
        exec("async def work():\n" + textwrap.indent(loop, "    "), names)
        async with harebell.sessions.connect(broker.url) as connection, connection.session() as session:
            for queue in ("orders", "invoices"):
                await session.queue_declare(queue, durable=True)
            work = asyncio.create_task(names["work"]())  # type: ignore[operator]
            async with session.consume("invoices", window=10) as invoices:
                for number in range(3):
                    await session.publish(b"order %d" % number, "", "orders")
                    assert (await anext(invoices)).body == b"invoice for order %d" % number
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            assert await session.message_count("orders") == 0
