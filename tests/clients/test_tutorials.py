"""What RabbitMQ's seven tutorials teach, as pika programs of our own in processes of their own.

The same on Harebell and on RabbitMQ.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fixtures.rabbitmq import EACH
from tests.wire import BrokerThread

pytest.importorskip("pika")  # of the development group
PROGRAMS = Path(__file__).parent / "tutorials"

Program = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["harebell", *EACH])
def start(request: pytest.FixtureRequest) -> Iterator[Program]:
    """Starts a program against the broker; those that still run at the end are killed."""
    fixture = request.getfixturevalue("broker" if request.param == "harebell" else request.param)
    url = fixture.broker.url if isinstance(fixture, BrokerThread) else fixture.url
    running: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAMS / f"{name}.py"), *arguments]
        running.append(subprocess.Popen(
            command, env={**os.environ, "AMQP_URL": url}, stdout=subprocess.PIPE, text=True
        ))  # fmt: skip
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def name() -> str:
    """Of a queue or exchange, used once: RabbitMQ is shared."""
    return f"tutorial-{uuid4()}"


def ready(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def output(process: subprocess.Popen[str], code: int = 0) -> list[str]:
    text = process.communicate(timeout=60)[0]
    assert process.returncode == code, text
    return text.splitlines()


def test_1_hello_world(start: Program, name: str) -> None:
    output(start("send", name, "Hello", "stop"))
    assert output(start("work", name)) == ["ready", "got Hello", "got stop"]


def test_2_work_queues(start: Program, name: str) -> None:
    """One after the other; what a worker that dies had is another's."""
    first = ready(start("work", name))
    output(start("send", name, "1", "die", "2", "stop"))
    assert output(first, 9) == ["got 1", "got die"]
    second = start("work", name)
    second_lines = []
    assert second.stdout is not None
    for line in second.stdout:
        second_lines.append(line.strip())
        if line == "got die\n":
            break
    assert second_lines == ["ready", "got die"]
    output(second, 9)


def test_2_work_is_shared(start: Program, name: str) -> None:
    workers = [ready(start("work", name)), ready(start("work", name))]
    output(start("send", name, "stop", "stop"))
    assert [output(worker) for worker in workers] == [["got stop"], ["got stop"]]


def test_3_publish_subscribe(start: Program, name: str) -> None:
    receivers = [ready(start("receive", name, "fanout", "")) for _ in range(2)]
    output(start("emit", name, "fanout", "a", "1", "b", "stop"))
    assert [output(receiver) for receiver in receivers] == [["a 1", "b stop"]] * 2


def test_4_routing(start: Program, name: str) -> None:
    errors = ready(start("receive", name, "direct", "error"))
    everything = ready(start("receive", name, "direct", "info", "warning", "error"))
    output(start("emit", name, "direct", "info", "1", "debug", "2", "warning", "3", "error", "stop"))
    assert output(errors) == ["error stop"]
    assert output(everything) == ["info 1", "warning 3", "error stop"]


def test_5_topics(start: Program, name: str) -> None:
    kernel = ready(start("receive", name, "topic", "kern.*", "end"))
    critical = ready(start("receive", name, "topic", "*.critical", "kern.#", "end"))
    output(start("emit", name, "topic", "kern.critical", "1", "cron.critical", "2", "kern", "3", "end", "stop"))
    assert output(kernel) == ["kern.critical 1", "end stop"]
    assert output(critical) == ["kern.critical 1", "cron.critical 2", "kern 3", "end stop"]


def test_6_rpc(start: Program, name: str) -> None:
    server = ready(start("rpc_server", name))
    assert output(start("rpc_client", name, "3", "12", "0")) == ["3 9", "12 144", "0 0"]
    output(server)


def test_7_publisher_confirms(start: Program, name: str) -> None:
    assert output(start("confirm", name)) == ["100", "returned 312"]
