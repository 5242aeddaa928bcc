"""kill -9 while a stream is written with confirms: what was confirmed is there afterwards, and nothing is torn."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harebell.protocol.v091 import methods as m
from tests.wire import Silence, Wire

SOURCE = Path(__file__).parents[2] / "src"
SERVE = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from harebell.broker import Broker

async def main():
    async with Broker(data=sys.argv[2]) as broker:
        print(broker.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def served(data: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(SOURCE), str(data)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def declare(wire: Wire) -> int:
    wire.channel(1)
    answer = wire.call(1, m.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}), m.QueueDeclareOk)
    assert isinstance(answer, m.QueueDeclareOk)
    return answer.message_count


def publish_until_killed(wire: Wire, process: subprocess.Popen[str], start: int, kill_after: int) -> int:
    """Publish numbers from `start` on; the broker is killed when so many are confirmed. The last confirmed tag."""
    wire.call(1, m.ConfirmSelect(), m.ConfirmSelectOk)
    confirmed = sent = 0
    while not wire.ended:
        for _ in range(50):
            wire.publish("", "s", b"%d" % (start + sent) + b"." * random.Random(sent).randrange(3000))
            sent += 1
        wire.poll(0.001)
        for got in wire.received:
            if isinstance(got.method, m.BasicAck):
                confirmed = got.method.delivery_tag
        wire.received.clear()
        if confirmed >= kill_after:
            process.send_signal(signal.SIGKILL)
            process.wait()
            try:
                wire.wait(lambda: False)
            except Silence:
                pass
            for got in wire.received:
                if isinstance(got.method, m.BasicAck):
                    confirmed = got.method.delivery_tag
    return confirmed


def read_all(wire: Wire, count: int) -> list[tuple[int, int]]:
    """(offset, number) of every record from the first on."""
    wire.call(1, m.BasicQos(0, 10_000), m.BasicQosOk)
    wire.send(1, m.BasicConsume("s", "c", arguments={"x-stream-offset": "first"}))
    found = []
    for _ in range(count):
        got = wire.expect(m.BasicDeliver)
        offset = got.headers["x-stream-offset"]
        assert isinstance(offset, int)
        found.append((offset, int(got.body.rstrip(b"."))))
        if len(found) % 1000 == 0:
            wire.send(1, m.BasicAck(len(found), multiple=True))
    return found


@pytest.mark.slow
def test_confirmed_messages_survive_kills(tmp_path: Path) -> None:
    expected = there = 0
    for round_ in range(3):
        with served(tmp_path) as (process, port), Wire(port).log_in() as wire:
            there = declare(wire)
            assert there >= expected, "confirmed messages are missing"
            expected = there + publish_until_killed(wire, process, there, 500 + 700 * round_)
    with served(tmp_path) as (_, port), Wire(port).log_in() as wire:
        there = declare(wire)
        assert there >= expected
        assert read_all(wire, there) == [(number, number) for number in range(there)]
