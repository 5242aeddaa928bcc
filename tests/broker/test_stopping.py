"""How a broker stops: what was published is confirmed first, and no client keeps it from stopping."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.broker.net import descriptors, server
from harebell.broker.node import Node
from harebell.protocol.v091 import methods as m
from tests.broker.kit import NodeKit
from tests.broker.net.test_tls_stream import loops
from tests.broker.store.test_open_files import descriptors as open_in
from tests.broker.test_net import connected
from tests.wire import BrokerThread, Wire


def test_confirms_go_out_before_the_goodbye(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    client.declare("s", x_queue_type="stream")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("s", b"1")
    drained: list[bool] = []
    kit.node.drain(lambda: drained.append(True))
    assert not client.transport.reading
    assert not drained
    while not drained:
        kit.run_sync()
    client.receive()
    assert [type(event) for _, event in client.events] == [m.BasicAck]
    kit.stop()
    client.receive()
    assert client.transport.reading  # for its close-ok
    assert [type(event) for _, event in client.events] == [m.BasicAck, m.ConnectionClose]


def test_nothing_to_wait_for(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    client.publish("q", b"1")
    drained: list[bool] = []
    kit.node.drain(lambda: drained.append(True))
    assert drained == [True]


def test_a_store_that_failed_is_not_waited_for(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("s", x_queue_type="stream")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("s", b"1")
    drained: list[bool] = []
    kit.node.drain(lambda: drained.append(True))
    kit.node.batch.fail(OSError(5, "Input/output error"))
    assert drained == [True]


PARTS: dict[str, Callable[[Node], object]] = {
    "a connection": lambda node: next(iter(node.connections)),
    "a queue": lambda node: node.vhosts["/"].queues["q"],
    "a stream": lambda node: node.vhosts["/"].queues["s"],
    "a delayed exchange": lambda node: node.vhosts["/"].delays["d"],
    "the positions": lambda node: node.store.positions,
    "the transactions": lambda node: node.store.prepared,
    "the copy of the catalog": lambda node: node.catalog,
    "the logins": lambda node: node.logins.verifier,
}


@pytest.mark.pure
@pytest.mark.parametrize("parts", [*[(part,) for part in PARTS], ("a queue", "the positions"), tuple(PARTS)])
def test_everything_is_closed_though_something_cannot_be(tmp_path: Path, parts: tuple[str, ...]) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    for name, arguments in {"q": {}, "other": {}, "s": {"x-queue-type": "stream"}}.items():
        client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
    kind = m.ExchangeDeclare("d", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    client.call(kind, m.ExchangeDeclareOk)
    for name in ("q", "other", "s"):
        client.publish(name, b"x", delivery_mode=2)
    client.publish("q", b"late", "d", delivery_mode=2, headers={"x-delay": 1000})
    errors: list[OSError] = []

    def refuse(*_: object) -> None:
        errors.append(OSError(errno.ENOSPC, f"No space left on device, {len(errors)}"))
        raise errors[-1]

    with pytest.MonkeyPatch.context() as patch:
        for part in parts:
            how = {"the logins": "stop", "the copy of the catalog": "keep_copy"}.get(part, "close")
            patch.setattr(PARTS[part](kit.node), how, refuse)
        if parts == ("the copy of the catalog",):
            kit.node.stop()  # it is made again with the next stop
        else:
            with pytest.raises(OSError, match="No space left on device, 0"):
                kit.node.stop()
    assert len(errors) == len(parts), "each of them was tried"
    kit.run_syncs()
    assert kit.node.batch.commit._thread is None
    assert open_in(tmp_path) == 0
    kit = NodeKit(tmp_path)
    client = kit.client()
    assert [client.count(name) for name in ("q", "other", "s")] == [1, 1, 1]
    assert len(kit.node.vhosts["/"].delays["d"]) == 1
    kit.stop()


def test_confirms_reach_a_publisher_of_a_broker_that_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLOSE_OK_SECONDS", 0.1)
    with BrokerThread() as broker:
        wire = connected(broker)
        stream = {"x-queue-type": "stream"}
        wire.call(1, m.QueueDeclare("s", durable=True, arguments=stream), m.QueueDeclareOk)
        wire.call(1, m.ConfirmSelect(), m.ConfirmSelectOk)
        for _ in range(100):
            wire.publish("", "s", b"x")
        wire.barrier()
    acked = 0
    while acked < 100:
        method = wire.expect(m.BasicAck).method
        assert isinstance(method, m.BasicAck)
        acked = method.delivery_tag
    wire.expect(m.ConnectionClose)
    wire.socket.close()


async def test_a_client_that_never_answers_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLOSE_OK_SECONDS", 0.1)
    broker = await Broker().start()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"AMQP\0\0\x09\x01")
    await reader.read(100)  # connection.start: it is in the middle of its login
    async with asyncio.timeout(60):
        await broker.stop()
        await reader.read()  # to its end
    writer.close()


async def test_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLOSE_OK_SECONDS", 1000.0)
    broker = await Broker().start()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"AMQP\0\0\x09\x01")
    await reader.read(100)
    async with asyncio.timeout(60):
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)
        broker.hurry()
        await stopping
    writer.close()


async def test_stops_and_starts_again() -> None:
    broker = Broker()
    for _ in range(2):
        await broker.start()
        broker.hurry()
        await broker.stop()


@loops
@pytest.mark.parametrize("turns", range(7))
def test_a_stop_at_any_step_of_an_accept_leaves_no_socket(
    loop: Callable[[], asyncio.AbstractEventLoop], turns: int
) -> None:
    async def stop() -> None:
        broker = await Broker().start()
        with socket.create_connection(("127.0.0.1", broker.port or 0)) as client:  # the loop has not turned
            for _ in range(turns):
                await asyncio.sleep(0)
            broker.hurry()
            await broker.stop()
            client.settimeout(30)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(stop())
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_connections_leave_descriptors_for_the_store(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with BrokerThread() as broker:
        with connected(broker) as known:
            broker.run(lambda: setattr(broker.broker, "_last_descriptor", 2))
            for _ in range(3):
                with Wire(broker.port) as refused:
                    refused.wait_end()
            known.barrier()  # who is in stays in
            assert [record.message.split(":")[0] for record in caplog.records] == ["connections are refused"]
            assert "LimitNOFILE" in caplog.text
            broker.run(lambda: setattr(broker.broker, "_last_descriptor", 1 << 20))
            connected(broker).socket.close()


def test_how_many_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert descriptors.last_for_connections() == 1024 - 1 - 256
    assert descriptors.raise_limit() == 4096
    assert limits[-1] == (4096, 4096)
    assert descriptors.last_for_connections() == 4096 - 1 - 1024
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert descriptors.last_for_connections() > 1 << 20

    def refuse(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    limits.append((256, resource.RLIM_INFINITY))
    assert descriptors.raise_limit() == 256


def test_a_client_that_takes_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says with heartbeats that it lives, and reads nothing."""
    with BrokerThread() as broker, connected(broker) as other:
        with connected(broker, heartbeat=1) as stuck:
            monkeypatch.setattr("harebell.broker.net.transport.STUCK_BEATS", 2)
            other.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
            stuck.send(1, m.BasicConsume("q", no_ack=True))
            for _ in range(200):
                other.publish("", "q", b"x" * 100_000)
            deadline = time.monotonic() + 30
            while broker.run(lambda: len(broker.broker.node.connections)) > 1 and time.monotonic() < deadline:
                stuck.raw(b"\x08\0\0\0\0\0\0\xce")
                other.poll(0.1)
            assert broker.run(lambda: len(broker.broker.node.connections)) == 1
