"""EmbeddedBroker: a broker that blocking programs can use, on a port that stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import harebell
from harebell import blocking
from harebell.broker import Broker
from harebell.errors import ConnectionLost, InvalidArgument, LocalProtocolError, NotFound
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
