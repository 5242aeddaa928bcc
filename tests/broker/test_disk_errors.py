"""Each operation on each disk that refuses: what is refused, what ends the broker, and that nothing confirmed is lost.

The table of `OUTCOMES` is that of docs/explanation/guarantees.md. Every call that an operation makes to the disk fails
once, with each error.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.protocol.v091 import Properties, Table, methods as m
from tests.broker.disk_node import DiskNode
from tests.broker.kit import Client

ERRORS = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES", "EMFILE", "ENFILE")
GOES_ON, REFUSED, ENDS = "goes on", "refused", "ends"

# What may happen when one call fails. With no descriptor left, the store closes a file of its own and tries again.
OUTCOMES: dict[str, dict[str, set[str]]] = {
    "declare a queue": {"any": {REFUSED}, "no descriptor": {GOES_ON, REFUSED}},
    "declare a stream": {"any": {REFUSED}, "no descriptor": {GOES_ON, REFUSED}},
    "publish": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
    "publish to a stream": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
    "publish to a delayed exchange": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
    "acknowledge": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
    "commit": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
    "purge": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
    "read a stream": {"any": {ENDS}, "no descriptor": {GOES_ON, ENDS}},
}
STREAM: Table = {"x-queue-type": "stream"}


def publish(node: DiskNode, queue: str, body: bytes, exchange: str = "") -> None:
    properties = Properties(delivery_mode=2, headers={"x-delay": 1000})
    node.client.engine.send_content(1, m.BasicPublish(exchange, queue), properties, body)
    node.client.pump()


def settle(node: DiskNode) -> None:
    node.client.send(1, m.BasicAck(0, multiple=True))


def commit(node: DiskNode) -> None:
    node.client.send(2, m.ChannelOpen())
    node.client.send(2, m.TxSelect())
    node.client.engine.send_content(2, m.BasicPublish("", "q"), Properties(delivery_mode=2), b"x")
    node.client.send(2, m.TxCommit())


def read_stream(node: DiskNode) -> None:
    node.client.engine.send_method(1, m.BasicQos(0, 10))
    node.client.send(1, m.BasicConsume("s", "c", arguments={"x-stream-offset": "first"}))


ACTS: dict[str, Callable[[DiskNode], None]] = {
    "declare a queue": lambda node: node.client.send(1, m.QueueDeclare("new", durable=True)),
    "declare a stream": lambda node: node.client.send(1, m.QueueDeclare("new", durable=True, arguments=STREAM)),
    "publish": lambda node: publish(node, "fresh", b"x"),
    "publish to a stream": lambda node: publish(node, "s", b"x"),
    "publish to a delayed exchange": lambda node: publish(node, "", b"x", "d"),
    "acknowledge": settle,
    "commit": commit,
    "purge": lambda node: node.client.send(1, m.QueuePurge("q")),
    "read a stream": read_stream,
}


def made() -> DiskNode:
    """A node with confirmed messages, some of them delivered."""
    node = DiskNode()
    client = node.client
    for name, arguments in {"q": {}, "fresh": {}, "s": STREAM}.items():
        client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
    delayed: Table = {"x-delayed-type": "direct"}
    client.call(m.ExchangeDeclare("d", "x-delayed-message", durable=True, arguments=delayed), m.ExchangeDeclareOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for body in (b"1", b"2", b"3"):
        publish(node, "q", body)
        publish(node, "s", body)
    node.sync()
    client.receive()
    assert client.take(m.BasicAck)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    assert client.get("q", no_ack=False) is not None
    client.events.clear()
    return node


@pytest.mark.repeats
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("operation", OUTCOMES)
def test_every_call_that_fails(operation: str, error: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    kind = "no descriptor" if error in ("EMFILE", "ENFILE") else "any"
    allowed = OUTCOMES[operation].get(kind) or OUTCOMES[operation]["any"]
    found = set()
    for after in range(30):
        node = made()
        told: list[OSError] = []
        node.node.when_failed = told.append
        node.disk.fail(after, getattr(errno, error))
        ACTS[operation](node)
        node.sync()
        node.client.receive()
        reached = not node.disk._faults
        node.disk.heal()
        closes = node.client.take(m.ConnectionClose)
        if node.node.batch.failed is not None:
            found.add(ENDS)
            assert told == [node.node.batch.failed], "told once"
            (close,) = closes
            assert close.reply_code == 541
            assert "store failed" in close.reply_text
        elif closes:
            found.add(REFUSED)
            assert told == []
            assert closes[0].reply_code == 541
            assert "cannot make queue 'new' in vhost '/': " in closes[0].reply_text
            other = Client(node.node)
            other.send(1, m.QueueDeclare("new", passive=True))
            assert other.take(m.ChannelClose)[0].reply_code == 404
        else:
            found.add(GOES_ON)
        node.restart(None)
        acked = operation in ("acknowledge", "purge")
        contents = node.contents(["q"])["q"]
        assert acked or contents[:3] == [b"1", b"2", b"3"], f"{contents} after call {after}"
        assert node.client.count("s") >= 3
        node.close()
        if not reached:
            break
        if not acked:
            assert found <= allowed, f"call {after}: {found}"
    else:
        raise AssertionError("30 calls are not enough")
    assert found <= allowed | {GOES_ON}
    assert after == 0 or found & allowed


async def test_an_embedded_broker_tells_its_owner(tmp_path: Path) -> None:
    """The host's process goes on; the broker can be stopped and started again."""
    told: list[OSError] = []
    broker = await Broker(data=tmp_path, on_failed=told.append).start()
    waiting = asyncio.ensure_future(broker.wait_failed())
    error = OSError(errno.EIO, "Input/output error")
    assert broker.failure is None
    broker.node.batch.fail(error)
    broker.node.batch.fail(OSError(errno.EIO, "another"))
    assert await waiting is error
    assert told == [error]
    await broker.stop()
    assert broker.failure is error
    await broker.start()
    assert broker.failure is None
    await broker.stop()


def test_a_disk_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    node = made()
    waits: list[float | None] = []

    def stop(timeout: float | None = None) -> bool:
        waits.append(timeout)
        return False

    monkeypatch.setattr(node.commit, "stop", stop)
    node.node.batch.fail(OSError(errno.EIO, "Input/output error"))
    node.node.stop()
    assert waits == [2.0]
    node.folder.cleanup()
