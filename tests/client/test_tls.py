"""amqps: both faces through a TLS listener in front of a broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import harebell
from harebell import errors
from harebell.client.blocking import connect as connect_blocking
from harebell.client.messages import Publication
from harebell.client.url import parse_url

HERE = Path(__file__).parent / "tls"
CERTIFICATE = HERE / "certificate.pem"
BIG = b"x" * 100_000


@pytest.fixture
async def tls_port(harebell_url: str) -> AsyncIterator[int]:
    """A port that speaks TLS and hands the bytes on to a broker."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, HERE / "key.pem")
    port = parse_url(harebell_url).port
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", port)
        for task in (pump(reader, broker_writer), pump(broker_reader, writer)):
            pumps.add(asyncio.create_task(task))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*pumps)


async def test_sessions_over_tls(tls_port: int, name: str) -> None:
    url = f"amqps://localhost:{tls_port}/?cacertfile={CERTIFICATE}"
    async with harebell.sessions.connect(url) as connection, connection.session(name) as session:
        await session.queue_declare(name, exclusive=True, auto_delete=True)
        assert await session.publish_many([Publication(BIG, "", name)] * 20) == 20
        async with session.consume(name, window=5) as consumer:
            for _ in range(20):
                delivery = await anext(consumer)
                assert delivery.body == BIG
                delivery.accept()


async def test_asyncio_over_tls(tls_port: int, name: str) -> None:
    async with harebell.connect(f"amqps://localhost:{tls_port}/?cacertfile={CERTIFICATE}") as connection:
        async with connection.channel() as channel:
            await channel.queue_declare(name, exclusive=True)
            await channel.confirm_select()
            assert await channel.publish_many([Publication(BIG, "", name)] * 50) == 50
            async with channel.consume(name) as consumer:
                for _ in range(50):
                    delivery = await anext(consumer)
                    assert delivery.body == BIG
                    delivery.ack()


async def test_blocking_over_tls(tls_port: int, name: str) -> None:
    def block() -> None:
        with connect_blocking(f"amqps://localhost:{tls_port}/?cacertfile={CERTIFICATE}", timeout=60) as connection:
            channel = connection.channel()
            channel.queue_declare(name, exclusive=True)
            channel.confirm_select()
            assert channel.publish_many([Publication(BIG, "", name)] * 50) == 50
            for seen, delivery in enumerate(channel.consume(name), 1):
                assert delivery.body == BIG
                delivery.ack()
                if seen == 50:
                    break

    await asyncio.to_thread(block)


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_an_unknown_certificate_is_refused(tls_port: int, face: str) -> None:
    with pytest.raises(errors.ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
        if face == "asyncio":
            await harebell.connect(f"amqps://localhost:{tls_port}/")
        else:
            await asyncio.to_thread(connect_blocking, f"amqps://localhost:{tls_port}/", timeout=60)


async def test_a_wrong_name_is_refused_and_can_be_given(tls_port: int) -> None:
    url = f"amqps://127.0.0.1:{tls_port}/?cacertfile={CERTIFICATE}"
    with pytest.raises(errors.ConnectionLost, match="elsewhere"):
        await harebell.connect(f"{url}&server_name_indication=elsewhere")
    async with harebell.connect(f"{url}&server_name_indication=localhost") as connection:
        assert connection.is_open


async def test_verify_none(tls_port: int) -> None:
    async with harebell.connect(f"amqps://localhost:{tls_port}/?verify=verify_none") as connection:
        assert connection.is_open


async def test_plain_text_to_a_tls_port(tls_port: int) -> None:
    with pytest.raises((errors.ConnectionLost, errors.RemoteProtocolError)):
        await harebell.connect(f"amqp://localhost:{tls_port}/", timeout=60)
