"""Examples that libraries publish, unmodified, against the broker: aio-pika's README and kombu's examples/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harebell.protocol.v091 import methods as m
from tests.clients.published import sources
from tests.wire import BrokerThread, Wire

pytestmark = pytest.mark.slow
REDIRECT = Path(__file__).parent / "redirect"


def start(broker: BrokerThread, program: Path, *arguments: str) -> subprocess.Popen[str]:
    """The program, in its folder; 5672 means the broker."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(REDIRECT),
        "HAREBELL_TEST_PORT": str(broker.port),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", program.name, *arguments], cwd=program.parent, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0, output
    return output


def wait_for_consumer(broker: BrokerThread, queue: str) -> None:
    deadline = time.monotonic() + 30
    with Wire(broker.port).log_in() as wire:
        while time.monotonic() < deadline:
            wire.channel(1)
            wire.send(1, m.QueueDeclare(queue, passive=True))
            wire.wait(lambda: bool(wire.received))
            got = wire.received.pop().method
            if isinstance(got, m.QueueDeclareOk):
                if got.consumer_count:
                    return
                wire.call(1, m.ChannelClose(200, ""), m.ChannelCloseOk)
            else:
                wire.send(1, m.ChannelCloseOk())
    raise AssertionError(f"nobody consumes from {queue}")


@pytest.fixture
def readme(tmp_path: Path) -> list[Path]:
    """Every program of aio-pika's README, in order."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (sources("aio-pika") / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    for number, block in enumerate(blocks):
        (tmp_path / f"example{number}.py").write_text(block)
    return [tmp_path / f"example{number}.py" for number in range(len(blocks))]


def test_aio_pika_readme(broker: BrokerThread, readme: list[Path]) -> None:
    consumer, publisher, getter = readme[:3]
    with start(broker, consumer) as consuming:
        wait_for_consumer(broker, "test_queue")
        assert finish(start(broker, publisher)) == ""
        assert finish(consuming) == "b'Hello test_queue'\n"
    assert finish(start(broker, getter)) == ""


def test_kombu_hello(broker: BrokerThread) -> None:
    examples = sources("kombu") / "examples"
    finish(start(broker, examples / "hello_publisher.py"))
    assert "Received: helloworld" in finish(start(broker, examples / "hello_consumer.py"))


def test_kombu_rpc(broker: BrokerThread) -> None:
    examples = sources("kombu") / "examples" / "rpc-tut6"
    server = start(broker, examples / "rpc_server.py")
    wait_for_consumer(broker, "rpc_queue")
    try:
        assert "832040" in finish(start(broker, examples / "rpc_client.py"))  # the thirtieth Fibonacci number
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_kombu_complete(broker: BrokerThread) -> None:
    examples = sources("kombu") / "examples"
    receiver = start(broker, examples / "complete_receive.py")
    wait_for_consumer(broker, "kombu_demo")
    try:
        finish(start(broker, examples / "complete_send.py"))
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "Received message: {'hello': 'world'}\n"
    finally:
        receiver.terminate()
        receiver.communicate(timeout=60)
