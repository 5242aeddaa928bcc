"""The API of a broker: its start and stop, its addresses, and HTTPS."""

from __future__ import annotations

import asyncio
import http.client
import shutil
import ssl
from pathlib import Path

import pytest

from harebell.admin import Management
from harebell.broker import Broker, Tls
from harebell.errors import InvalidArgument
from tests.admin.kit import CERTIFICATE, KEY, TLS, Api


async def whoami(port: int) -> str:
    return str((await asyncio.to_thread(Api(port).get, "/api/whoami"))["name"])


async def test_it_serves_on_a_free_port_of_this_machine() -> None:
    async with Broker() as broker, Management(broker) as management:
        assert management.port
        assert management.url == f"http://127.0.0.1:{management.port}/"
        assert await whoami(management.port) == "guest"
        assert management.hosts == ("localhost",)
    with pytest.raises(ConnectionError):
        await whoami(management.port)


async def test_it_is_stopped_and_started_again() -> None:
    async with Broker() as broker:
        management = Management(broker, "127.0.0.1")
        await management.start()
        first = management.port
        await management.stop()
        await management.stop()
        await management.start()
        assert management.port == first
        assert await whoami(first or 0) == "guest"
        await management.stop()


async def test_a_port_that_is_taken() -> None:
    async with Broker() as broker, Management(broker, "127.0.0.1") as management:
        other = Management(broker, "127.0.0.1", management.port)
        with pytest.raises(OSError, match="cannot listen on"):
            await other.start()
        assert await whoami(management.port or 0) == "guest"


async def test_it_needs_a_started_broker_and_knows_its_own_addresses() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError):
        await Management(broker).start()
    with pytest.raises(RuntimeError, match="not started"):
        Management(broker).context  # noqa: B018
    with pytest.raises(RuntimeError, match="no port"):
        Management(broker, port=None).url  # noqa: B018


def over_tls(port: int, context: ssl.SSLContext) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", "/api/whoami", headers={"authorization": Api(port).authorization})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERTIFICATE)
    context.check_hostname = False
    return context


async def test_https_with_the_brokers_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(CERTIFICATE, certificate)
    shutil.copy(KEY, key)
    async with Broker(port=None, tls=Tls(certificate, key)) as broker:
        async with Management(broker, port=None, tls_port=0) as management:
            assert management.url == f"https://127.0.0.1:{management.tls_port}/"
            assert management.tls_port
            status, body = await asyncio.to_thread(over_tls, management.tls_port, trusting())
            assert (status, b"guest" in body) == (200, True)
            management.reload_tls()
            certificate.write_text("no certificate")
            with pytest.raises(InvalidArgument):
                management.reload_tls()
            status, _ = await asyncio.to_thread(over_tls, management.tls_port, trusting())
            assert status == 200, "the one that was in use stays"


async def test_https_needs_a_certificate() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match="certificate"):
            await Management(broker, tls_port=0).start()


async def test_a_cookie_of_https_is_for_https(tmp_path: Path) -> None:
    async with (
        Broker(port=None, tls=TLS) as broker,
        Management(broker, port=None, tls_port=0) as management,
    ):
        port = management.tls_port or 0

        def log_in() -> str:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=trusting())
            connection.request("POST", "/api/login", b'{"username": "guest", "password": "guest"}')
            found = connection.getresponse().getheader("set-cookie", "")
            connection.close()
            return found

        assert (await asyncio.to_thread(log_in)).endswith("; Secure")


async def test_listeners_of_both_kinds_are_told(tmp_path: Path) -> None:
    async with (
        Broker(tls=TLS) as broker,
        Management(broker, tls_port=0) as management,
    ):
        found = [(each.protocol, each.port, each.tls) for each in management.context.listeners]
        assert set(found) >= {
            ("amqp", broker.port, False), ("amqp/ssl", broker.tls_port, True), ("http", management.port, False),
            ("https", management.tls_port, True),
        }  # fmt: skip
