"""TLS of the broker's sockets: what a client reads when the handshake fails, and how a connection ends.

Clients are made of `ssl.MemoryBIO`, so that each byte is seen, and the end of the connection apart from a reset.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

import harebell
from harebell.broker import Broker, Tls
from harebell.broker.net import tls_stream
from harebell.config import Limits
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from tests.wire import PATIENCE

SERVER = Path(__file__).parents[2] / "client" / "tls"
OWN = Path(__file__).parents[1] / "tls"
LOOPS: Final[list[Any]] = [asyncio.new_event_loop]
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS.append(uvloop.new_event_loop)

loops = pytest.mark.parametrize("loop", LOOPS, ids=lambda each: each.__module__.partition(".")[0])
ALERT, HANDSHAKE = 21, 22  # types of records


def run(loop: Callable[[], asyncio.AbstractEventLoop], test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await test()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  the state of the broker, which has no event for a test
        await asyncio.sleep(0)


def broker(**options: Any) -> Broker:
    limits = Limits(handshake_timeout=options.pop("handshake_timeout", PATIENCE * 2))
    return Broker(tls=Tls(SERVER / "certificate.pem", SERVER / "key.pem", **options), limits=limits)


def context(version: str = "TLSv1_3", certificate: str | None = None, ciphers: str | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.minimum_version = made.maximum_version = ssl.TLSVersion[version]
    if certificate is not None:
        made.load_cert_chain(OWN / f"{certificate}.pem", OWN / f"{certificate}-key.pem")
    if ciphers is not None:
        made.set_ciphers(ciphers)
    return made


class Client:
    """A TLS client whose socket's bytes are read one by one."""

    def __init__(self, made: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = made.wrap_bio(self._in, self._out)

    async def dial(self, port: int) -> None:
        self._reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    async def do(self, step: Callable[[], Any]) -> Any:
        """The step's result, with the socket read and written as it needs. EOFError at a bare end."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._flush()
                data = await self._reader.read(1 << 16)  # a ConnectionResetError fails the test
                if not data:
                    raise EOFError from None
                self._in.write(data)
            else:
                self._flush()
                return done

    async def end(self) -> bytes:
        """What comes until the end of the socket, undecrypted."""
        return await self._reader.read()

    def _flush(self) -> None:
        if self._out.pending:
            self.writer.write(self._out.read())


REFUSED = {
    "no shared cipher": (context("TLSv1_2", ciphers="ECDHE-RSA-AES128-GCM-SHA256"), {}, "HANDSHAKE_FAILURE"),
    "an old version": (context("TLSv1_2"), {"minimum": "1.3"}, "ALERT_PROTOCOL_VERSION"),
    "no certificate, 1.2": (context("TLSv1_2"), {"verify": "required"}, "HANDSHAKE_FAILURE"),
    "no certificate, 1.3": (context(), {"verify": "required"}, "CERTIFICATE_REQUIRED"),
    "an unknown authority, 1.2": (context("TLSv1_2", "server"), {"verify": "required"}, "UNKNOWN_CA"),
    "an unknown authority, 1.3": (context(certificate="server"), {"verify": "optional"}, "UNKNOWN_CA"),
}


@loops
@pytest.mark.parametrize("made, options, alert", REFUSED.values(), ids=REFUSED)
def test_a_failed_handshake_sends_its_alert(
    loop: Any, made: ssl.SSLContext, options: dict[str, str], alert: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        authority = {"ca": OWN / "client.pem"} if "verify" in options else {}
        async with broker(**options, **authority) as server:
            client = Client(made)
            await client.dial(server.tls_port)
            with pytest.raises(ssl.SSLError) as caught:
                await client.do(client.tls.do_handshake)
                await client.do(lambda: client.tls.read(1))  # with TLS 1.3, the client's half ends before ours
            assert alert in str(caught.value.reason)
            assert await client.end() == b""  # the end, at once, and no reset
            client.writer.close()
            assert server.node.connections == set()

    run(loop, test)
    assert "TLS handshake failed: " in caplog.text
    assert ("the client's certificate is not accepted: self-signed certificate" in caplog.text) == (
        alert == "UNKNOWN_CA"
    )


@loops
@pytest.mark.parametrize(
    "told", [PROTOCOL_HEADER, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 70_000]
)
def test_plain_bytes_are_answered_with_an_alert(loop: Any, told: bytes) -> None:
    async def test() -> None:
        async with broker() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.tls_port)
            writer.write(told)
            answer = await reader.read()
            assert (answer[0], len(answer), answer[5]) == (ALERT, 7, 2)  # one record, fatal
            writer.close()

    run(loop, test)


@loops
@pytest.mark.parametrize("sent", ["nothing", "a part of the handshake", "refused, and then silence"])
def test_a_handshake_has_an_end(loop: Any, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_stream, "LINGER", 0.01)

    async def test() -> None:
        async with broker(handshake_timeout=0.01) as server:
            client = Client(context())
            await client.dial(server.tls_port)
            if sent != "nothing":
                client.writer.write(b"\x16\x03\x01" if sent.startswith("a part") else PROTOCOL_HEADER)
            try:
                await client.end()
            except ConnectionResetError:
                pass
            await until(lambda: not server._transports)
            client.writer.close()

    run(loop, test)


@loops
def test_a_stop_does_not_wait_for_handshakes(loop: Any) -> None:
    async def test() -> None:
        async with broker() as server:
            client = Client(context())
            await client.dial(server.tls_port)
            await until(lambda: bool(server._transports))
        assert server._transports == set()
        client.writer.close()

    run(loop, test)


@loops
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_damaged_record_ends_the_connection_with_an_alert(loop: Any, version: str) -> None:
    async def test() -> None:
        async with broker() as server:
            client = Client(context(version))
            await client.dial(server.tls_port)
            await client.do(client.tls.do_handshake)
            await client.do(lambda: client.tls.write(PROTOCOL_HEADER))
            assert (await client.do(lambda: client.tls.read(1))) == b"\1"
            client.writer.write(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
                while True:
                    await client.do(lambda: client.tls.read(1 << 16))
            assert await client.end() == b""
            client.writer.close()

    run(loop, test)


@loops
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_refused_protocol_header_ends_with_close_notify(loop: Any, version: str) -> None:
    async def test() -> None:
        async with broker() as server:
            client = Client(context(version))
            await client.dial(server.tls_port)
            await client.do(client.tls.do_handshake)
            await client.do(lambda: client.tls.write(b"AMQP\x09\x09\x09\x09"))
            received = b""
            while piece := await client.do(lambda: client.tls.read(100)):  # b"" is close_notify
                received += piece
            assert received == PROTOCOL_HEADER
            assert await client.end() == b""
            client.writer.close()

    run(loop, test)


@loops
def test_the_clients_close_notify_ends_the_connection(loop: Any) -> None:
    async def test() -> None:
        async with broker() as server:
            client = Client(context())
            await client.dial(server.tls_port)
            await client.do(client.tls.do_handshake)
            await client.do(lambda: client.tls.write(PROTOCOL_HEADER))
            assert (await client.do(lambda: client.tls.read(1))) == b"\1"
            await client.do(lambda: client.tls.read(1 << 16))
            await client.do(client.tls.unwrap)  # returns when the broker has said it too
            assert await client.end() == b""
            client.writer.close()
            await until(lambda: not server.node.connections)

    run(loop, test)


@loops
def test_much_output_for_a_client_that_reads_late(loop: Any) -> None:
    """More than the socket takes waits unencrypted, and comes in order when the client reads."""

    async def test() -> None:
        async with broker() as server:
            url = f"amqps://localhost:{server.tls_port}/?cacertfile={SERVER / 'certificate.pem'}"
            body = bytes(range(256)) * (15 << 12)
            async with harebell.connect(url) as connection, connection.channel() as channel:
                await channel.queue_declare("q")
                await channel.confirm_select()
                for number in range(3):
                    await channel.publish(bytes([number]) + body, "", "q")
                for number in range(3):
                    delivery = await channel.get("q", no_ack=True)
                    assert delivery is not None
                    assert delivery.body == bytes([number]) + body

    run(loop, test)
