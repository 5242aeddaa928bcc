"""EmbeddedBroker: a broker that blocking programs can use, on a port that stays."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

import harebell
from harebell import blocking
from harebell.broker import Broker
from harebell.errors import ConnectionLost, InvalidArgument, LocalProtocolError, NotFound
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from harebell.testing import EmbeddedBroker


def test_a_blocking_client_and_a_loop_that_ends() -> None:
    async def declare() -> None:
        async with harebell.connect(server.url) as connection, connection.channel() as channel:
            await channel.queue_declare("q")
            await channel.publish(b"m", "", "q")

    with EmbeddedBroker() as server:
        asyncio.run(declare())  # the broker is not of this loop
        with blocking.connect(server.url) as connection:
            delivery = connection.channel().get("q", no_ack=True)
            assert delivery is not None
            assert delivery.body == b"m"
        server.run(lambda broker: broker.set_policy("short", "^q$", {"max-length": 1}))
        policies = server.run(lambda broker: broker.export_definitions()["policies"])
        assert isinstance(policies, list)
        assert [policy["name"] for policy in policies] == ["short"]


async def test_a_restart_keeps_the_port_and_the_data(tmp_path: Path) -> None:
    with EmbeddedBroker(lambda: Broker(data=tmp_path)) as server:
        port = server.port
        async with harebell.connect(server.url, recovery=None) as connection, connection.channel() as channel:
            await channel.queue_declare("kept", durable=True)
            await asyncio.to_thread(server.restart)
            assert server.port == port
            assert "320" in str(await connection.wait_closed())
        async with harebell.connect(server.url) as connection, connection.channel() as channel:
            await channel.queue_declare("kept", passive=True)


async def test_without_data_nothing_is_kept() -> None:
    with EmbeddedBroker() as server:
        async with harebell.connect(server.url) as connection, connection.channel() as channel:
            await channel.queue_declare("q", durable=True)
        await asyncio.to_thread(server.stop)
        assert not server.is_running
        with pytest.raises(ConnectionLost):
            await harebell.connect(f"amqp://guest:guest@127.0.0.1:{server._port}/")
        await asyncio.to_thread(server.start)
        async with harebell.connect(server.url) as connection, connection.channel() as channel:
            with pytest.raises(NotFound):
                await channel.queue_declare("q", passive=True)


async def test_no_port_at_all() -> None:
    with EmbeddedBroker(lambda: Broker(port=None)) as server:
        with pytest.raises(RuntimeError, match="open_socket"):
            _ = server.port
        async with harebell.connect(sock=server.open_socket()) as connection:
            assert connection.is_open


def test_misuse_is_named_and_a_failed_start_leaves_nothing() -> None:
    server = EmbeddedBroker()
    with pytest.raises(LocalProtocolError, match="not running"):
        _ = server.url
    with server:
        with pytest.raises(LocalProtocolError, match="already running"):
            server.start()
        taken = EmbeddedBroker(lambda: Broker(port=server.port))
        with pytest.raises(OSError, match="in use"):
            taken.start()
        assert taken._thread is None
    server.close()  # once more is no error
    with pytest.raises(InvalidArgument, match="what makes a broker"):
        EmbeddedBroker(Broker())  # type: ignore[arg-type]


class Interrupted:
    """Who waits for the broker is interrupted, as by Ctrl-C, once it has waited for so many seconds."""

    def __init__(self, patch: pytest.MonkeyPatch, after: float) -> None:
        self._patch, self._after, self._result = patch, after, Future.result

    def __enter__(self) -> None:
        waiting = threading.current_thread()

        def result(future: Future[object], timeout: float | None = None) -> object:
            if threading.current_thread() is not waiting:
                return self._result(future, timeout)
            with suppress(TimeoutError):
                self._result(future, self._after)
            raise KeyboardInterrupt

        self._patch.setattr(Future, "result", result)

    def __exit__(self, *_: object) -> None:
        self._patch.setattr(Future, "result", self._result)


@pytest.mark.parametrize(
    "after, hangs",
    [(0.0, False), (0.001, False), (0.01, False), (2.0, False), (0.0, True), (0.001, True), (0.01, True), (0.2, True)],
)
def test_an_interrupted_start_leaves_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: float, hangs: bool
) -> None:
    async def never_listen(self: Broker, *given: object) -> int:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    if hangs:
        monkeypatch.setattr(Broker, "_listen", never_listen)
    threads: list[threading.Thread] = []

    def make() -> Broker:
        threads.append(threading.current_thread())
        return Broker(data=tmp_path)

    server = EmbeddedBroker(make)
    with pytest.raises(KeyboardInterrupt), Interrupted(monkeypatch, after):
        server.start()
    monkeypatch.undo()
    assert not server.is_running
    assert len(threads) == 1
    assert not threads[0].is_alive()
    with EmbeddedBroker(lambda: Broker(data=tmp_path)):  # BlockingIOError while a broker has the folder
        pass
    with server:
        assert server.is_running


@pytest.mark.parametrize("after", [0.0, 0.001, 0.05, 5.0])
@pytest.mark.parametrize("way", ["stop", "close"])
def test_an_interrupted_stop_stops_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: float, way: str
) -> None:
    server = EmbeddedBroker(lambda: Broker(data=tmp_path))
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as silent:  # it never answers connection.close
        silent.sendall(PROTOCOL_HEADER)
        silent.recv(1)
        with pytest.raises(KeyboardInterrupt), Interrupted(monkeypatch, after):
            getattr(server, way)()
    monkeypatch.undo()
    assert not server.is_running
    with EmbeddedBroker(lambda: Broker(data=tmp_path)):
        pass
    server.close()
