"""HTTPS: what a client reads when the handshake fails, how long it may take, and large answers. HTTP is in test_app."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from typing import Any

import pytest

from harebell.admin import Management
from harebell.admin.http import server
from harebell.broker import Broker, Tls
from tests.admin.kit import CERTIFICATE, KEY, Api
from tests.broker.net.test_listening import Unwilling
from tests.wire import PATIENCE

ALERT = 21  # the type of a record


def serving(**options: Any) -> tuple[Broker, Management]:
    broker = Broker(port=None, tls=Tls(CERTIFICATE, KEY, **options))
    return broker, Management(broker, port=None, tls_port=0)


def trusting() -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=CERTIFICATE)
    made.check_hostname = False
    return made


@pytest.mark.parametrize("told", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\x01", b"\x16\x03\x01\x00\x05hello"])
async def test_plain_bytes_are_answered_with_an_alert(told: bytes, caplog: pytest.LogCaptureFixture) -> None:
    broker, management = serving()
    async with asyncio.timeout(PATIENCE), broker, management:
        reader, writer = await asyncio.open_connection("127.0.0.1", management.tls_port)
        own = writer.get_extra_info("sockname")[1]
        writer.write(told)
        answer = await reader.read()
        assert (answer[0], len(answer), answer[5]) == (ALERT, 7, 2)  # one record, fatal
        writer.close()
    assert f"127.0.0.1:{own}, HTTPS: TLS handshake failed: " in caplog.text


async def test_an_old_version_is_told_by_an_alert(caplog: pytest.LogCaptureFixture) -> None:
    broker, management = serving(minimum="1.3")
    old = trusting()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with asyncio.timeout(PATIENCE), broker, management:
        with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
            await asyncio.open_connection("127.0.0.1", management.tls_port, ssl=old)
    assert "TLS handshake failed: " in caplog.text


async def test_a_handshake_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.01)
    broker, management = serving()
    async with asyncio.timeout(PATIENCE), broker, management:
        reader, writer = await asyncio.open_connection("127.0.0.1", management.tls_port)
        writer.write(b"\x16\x03\x01")
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()


async def test_a_stop_waits_for_no_handshake() -> None:
    broker, management = serving()
    async with asyncio.timeout(PATIENCE):
        async with broker, management:
            reader, writer = await asyncio.open_connection("127.0.0.1", management.tls_port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read())[0] == ALERT  # the broker lingers, until this client closes
        writer.close()


async def test_no_room_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", -1)
    broker, management = serving()
    async with asyncio.timeout(PATIENCE), broker, management:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection("127.0.0.1", management.tls_port, ssl=trusting())


async def test_several_requests_and_large_answers_in_one_connection() -> None:
    broker, management = serving()
    async with asyncio.timeout(PATIENCE), broker, management:
        port = management.tls_port
        assert port is not None

        def ask() -> None:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=trusting())
            for number in range(3):
                connection.request("GET", "/api/openapi.json")
                answer = connection.getresponse()
                assert len(answer.read()) == int(answer.headers["content-length"]) > 50_000
                body = "x" * 300_000
                login = {"authorization": Api(port).authorization}
                connection.request("PUT", f"/api/global-parameters/g{number}", f'{{"value": "{body}"}}', login)
                assert connection.getresponse().read() == b""
            connection.request("GET", "/api/global-parameters", headers=login)
            assert len(connection.getresponse().read()) > 900_000
            connection.close()

        await asyncio.to_thread(ask)


async def test_an_upgrade_is_ignored_and_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(port=None)
    management = Management(broker, port=0)
    async with asyncio.timeout(PATIENCE), broker, management:
        reader, writer = await asyncio.open_connection("127.0.0.1", management.port)
        writer.write(
            b"GET /api/version HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        status = await reader.readline()
        writer.close()
    assert status.split()[1] in (b"200", b"401", b"404")
    assert "pgrade" not in caplog.text


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "is cancelled"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_a_start_that_ends_early_listens_nowhere(
    monkeypatch: pytest.MonkeyPatch, number: int, hangs: bool
) -> None:
    """Of HTTP, and of HTTPS behind it; the next start is one as any other."""
    async with asyncio.timeout(PATIENCE), Broker(port=None, tls=Tls(CERTIFICATE, KEY)) as broker:
        management = Management(broker, host=["127.0.0.1", "127.0.0.2"], port=0, tls_port=0)
        with monkeypatch.context() as patched:
            loop = Unwilling(patched, number, hangs=hangs)
            starting = asyncio.create_task(management.start())
            if hangs:
                await loop.hanging.wait()
                starting.cancel()
            with pytest.raises(asyncio.CancelledError if hangs else OSError):
                await starting
        assert all(each.fileno() == -1 for each in loop.sockets)
        async with management:
            address = "127.0.0.2", management.port
            with socket.create_connection(address):
                pass
