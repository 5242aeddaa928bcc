"""The commands of librabbitmq (Debian: amqp-tools), as they are, against the broker."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest

from tests.wire import BrokerThread

pytestmark = pytest.mark.skipif(shutil.which("amqp-publish") is None, reason="install amqp-tools")


def tool(broker: BrokerThread, name: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    return subprocess.run(
        [f"amqp-{name}", "--url", url, *arguments], input=stdin, capture_output=True, timeout=60, check=False
    )


def test_declare_publish_get_delete(broker: BrokerThread) -> None:
    assert tool(broker, "declare-queue", "-q", "q").stdout == b"q\n"
    assert tool(broker, "publish", "-r", "q", "-b", "hello").returncode == 0
    assert tool(broker, "publish", "-r", "q", "-p", "-C", "text/plain", stdin=b"from a pipe").returncode == 0
    assert tool(broker, "get", "-q", "q").stdout == b"hello"
    assert tool(broker, "get", "-q", "q").stdout == b"from a pipe"
    assert tool(broker, "get", "-q", "q").returncode == 2  # nothing there
    assert tool(broker, "publish", "-r", "q", "-b", "last").returncode == 0
    assert tool(broker, "delete-queue", "-q", "q").stdout == b"1\n"
    assert tool(broker, "get", "-q", "q").returncode == 1


def test_consume(broker: BrokerThread) -> None:
    tool(broker, "declare-queue", "-q", "q")
    for number in range(3):
        tool(broker, "publish", "-r", "q", "-b", f"{number};")
    consumed = tool(broker, "consume", "-q", "q", "-c", "3", "-p", "1", "cat")
    assert consumed.stdout == b"0;1;2;"


def test_consume_from_an_exchange(broker: BrokerThread) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    command = ["amqp-consume", "--url", url, "-e", "amq.topic", "-r", "a.#", "-c", "1", "cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as consumer:
        deadline = time.monotonic() + 20
        while not _bound(broker) and time.monotonic() < deadline:
            assert consumer.poll() is None
        assert tool(broker, "publish", "-e", "amq.topic", "-r", "a.b", "-b", "hi").returncode == 0
        assert consumer.communicate(timeout=60)[0] == b"hi"


def _bound(broker: BrokerThread) -> bool:
    router = broker.broker.node.vhosts["/"].router
    return broker.run(lambda: bool(router.route("amq.topic", "a.b").queues))


def test_publish_to_a_missing_exchange_fails(broker: BrokerThread) -> None:
    failed = tool(broker, "publish", "-e", "nope", "-r", "k", "-b", "x")
    assert (failed.returncode, b"no exchange 'nope'" in failed.stderr) in ((1, True), (0, False))  # it may not wait
