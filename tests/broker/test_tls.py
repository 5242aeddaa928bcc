"""TLS listeners: both kinds side by side, client certificates, versions, reloading, and who is turned away."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker, Tls
from harebell.broker.net.tls import certificate_user
from harebell.config import Limits
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from tests.wire import PATIENCE

HERE = Path(__file__).parent / "tls"
FIRST = Path(__file__).parents[1] / "client" / "tls"
ALICE = "CN=alice,O=Example\\, Inc."
CLIENT = f"certfile={HERE / 'client.pem'}&keyfile={HERE / 'client-key.pem'}"


def tls(folder: Path = FIRST, **options: object) -> Tls:
    return Tls(folder / "certificate.pem", folder / "key.pem", **options)  # type: ignore[arg-type]


def url(broker: Broker, user: str = "guest:guest@", ca: Path = FIRST / "certificate.pem", more: str = "") -> str:
    return f"amqps://{user}localhost:{broker.tls_port}/?cacertfile={ca}{more}"


async def works(where: str) -> None:
    async with harebell.connect(where) as connection, connection.channel() as channel:
        await channel.queue_declare("q")
        await channel.confirm_select()
        await channel.publish(b"x" * 300_000, "", "q")
        delivery = await channel.get("q", no_ack=True)
        assert delivery is not None
        assert len(delivery.body) == 300_000


async def certificate_of(broker: Broker) -> bytes:
    """The certificate that the broker shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", broker.tls_port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    assert isinstance(shown, bytes)
    return shown


def der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(file.read_text())


async def test_with_and_without_tls() -> None:
    async with Broker(tls=tls()) as broker:
        await works(broker.url)
        await works(url(broker))
        assert broker.tls_url == f"amqps://guest:guest@127.0.0.1:{broker.tls_port}/"


async def test_tls_alone() -> None:
    async with Broker(port=None, tls=tls()) as broker:
        await works(url(broker))
        with pytest.raises(RuntimeError, match="listens on no port"):
            broker.url  # noqa: B018  its refusal is the point


async def test_no_tls() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match="speaks no TLS"):
            broker.tls_url  # noqa: B018
        with pytest.raises(RuntimeError, match="speaks no TLS"):
            await broker.reload_tls()


@pytest.mark.parametrize("verify", ["optional", "required"])
async def test_external(verify: str) -> None:
    async with Broker(tls=tls(ca=HERE / "client.pem", verify=verify)) as broker:
        broker.add_user(ALICE, None)
        broker.set_permissions(ALICE)
        async with harebell.connect(url(broker, "", more=f"&{CLIENT}&auth_mechanism=external")) as connection:
            assert connection.is_open
            (held,) = broker.node.connections
            assert held.user == ALICE
        broker.remove_user(ALICE)
        with pytest.raises(errors.AccessRefused, match="EXTERNAL"):
            await harebell.connect(url(broker, "", more=f"&{CLIENT}&auth_mechanism=external"))


@pytest.mark.parametrize("verify", ["optional", "required"])
async def test_external_of_0_10(verify: str) -> None:
    """The certificate's user has the session, and the rights; a name in the response changes nothing."""
    async with Broker(tls=tls(ca=HERE / "client.pem", verify=verify)) as broker:
        where = url(broker, "guest:guest@", more=f"&{CLIENT}&auth_mechanism=external")
        broker.add_user(ALICE, None)
        broker.set_permissions(ALICE, configure="^hers$", write=".*", read=".*")
        async with harebell.sessions.connect(where) as connection:
            (held,) = broker.node.connections
            assert held.user == ALICE
            async with connection.session("alice") as session:
                await session.queue_declare("hers")
                await session.publish(b"x" * 100_000, "", "hers")
                async with session.consume("hers") as consumer:
                    assert len((await anext(consumer)).body) == 100_000
                (mine,) = broker.node.sessions
                assert mine.user == ALICE
                with pytest.raises(errors.AccessRefused):
                    await session.queue_declare("others")
        broker.remove_user(ALICE)
        with pytest.raises(errors.AccessRefused, match="EXTERNAL"):
            await harebell.sessions.connect(where)


async def test_external_of_0_10_without_a_certificate() -> None:
    async with Broker(tls=tls(ca=HERE / "client.pem", verify="optional")) as broker:
        with pytest.raises(errors.AccessRefused, match="no common login mechanism"):
            await harebell.sessions.connect(url(broker, "", more="&auth_mechanism=external"))


async def test_the_common_name() -> None:
    async with Broker(tls=tls(ca=HERE / "client.pem", verify="required", user="common_name")) as broker:
        broker.add_user("alice", None)
        broker.set_permissions("alice")
        await works(url(broker, "", more=f"&{CLIENT}&auth_mechanism=external"))


async def test_without_a_client_certificate() -> None:
    async with Broker(tls=tls(ca=HERE / "client.pem", verify="optional")) as broker:
        await works(url(broker))
        with pytest.raises(errors.AccessRefused, match="no common login mechanism"):
            await harebell.connect(url(broker, "", more="&auth_mechanism=external"))
    async with Broker(tls=tls(ca=HERE / "client.pem", verify="required")) as broker:
        with pytest.raises(errors.HarebellError):
            await harebell.connect(url(broker))
        assert broker.node.connections == set()


async def test_a_client_certificate_of_somebody_else() -> None:
    async with Broker(tls=tls(ca=HERE / "client.pem", verify="optional")) as broker:
        with pytest.raises(errors.HarebellError):
            await harebell.connect(
                url(broker, more=f"&certfile={HERE / 'server.pem'}&keyfile={HERE / 'server-key.pem'}")
            )


@pytest.mark.parametrize("minimum, highest, comes_in", [("1.2", "TLSv1_2", True), ("1.3", "TLSv1_2", False),
                                                        ("1.3", "TLSv1_3", True)])  # fmt: skip
async def test_versions(minimum: str, highest: str, comes_in: bool) -> None:
    context = ssl.create_default_context(cafile=FIRST / "certificate.pem")
    context.maximum_version = ssl.TLSVersion[highest]
    async with Broker(tls=tls(minimum=minimum)) as broker:
        try:
            reader, writer = await asyncio.open_connection("localhost", broker.tls_port, ssl=context)
        except (ssl.SSLError, ConnectionError):
            assert not comes_in
            return
        assert comes_in
        writer.write(PROTOCOL_HEADER)
        assert await reader.readexactly(1) == b"\1"
        writer.close()


async def test_reload_is_for_new_connections(tmp_path: Path) -> None:
    shutil.copy(FIRST / "certificate.pem", tmp_path / "certificate.pem")
    shutil.copy(FIRST / "key.pem", tmp_path / "key.pem")
    async with Broker(tls=tls(tmp_path)) as broker:
        port = broker.tls_port
        assert await certificate_of(broker) == der(FIRST / "certificate.pem")
        async with harebell.connect(url(broker)) as old, old.channel() as channel:
            shutil.copy(HERE / "server.pem", tmp_path / "certificate.pem")
            with pytest.raises(errors.InvalidArgument, match="cannot be used"):
                await broker.reload_tls()  # the key does not fit
            assert await certificate_of(broker) == der(FIRST / "certificate.pem")
            shutil.copy(HERE / "server-key.pem", tmp_path / "key.pem")
            for _ in range(3):
                await broker.reload_tls()
                assert broker.tls_port == port
                assert await certificate_of(broker) == der(HERE / "server.pem")
            await channel.queue_declare("still-there")
            await works(url(broker, ca=HERE / "server.pem"))
            with pytest.raises(errors.ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                await harebell.connect(url(broker))


@pytest.mark.parametrize("told", [b"AMQP\0\0\x09\x01", b"GET / HTTP/1.1\r\n\r\n", b""])
async def test_who_speaks_no_tls_is_let_go(told: bytes) -> None:
    async with Broker(tls=tls(), limits=Limits(handshake_timeout=0.2)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.tls_port)
        writer.write(told)
        async with asyncio.timeout(PATIENCE):
            try:
                await reader.read()
            except ConnectionError:
                pass
        writer.close()
        assert broker.node.connections == set()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("nonsense")
    unusable: tuple[dict[str, Any], ...] = (
        {"certificate": tmp_path / "missing"}, {"certificate": tmp_path / "broken"},
        {"certificate": HERE / "server.pem"}, {"certificate": HERE / "server.pem", "key": HERE / "client-key.pem"},
        {"certificate": FIRST / "certificate.pem", "key": FIRST / "key.pem", "ca": tmp_path / "broken"},
    )  # fmt: skip
    for options in unusable:
        with pytest.raises(errors.InvalidArgument, match="cannot be used"):
            Tls(**options).context()
    for wrong in ({"verify": "some"}, {"minimum": "1.1"}, {"user": "me"}, {"verify": "required"}):
        with pytest.raises(errors.InvalidArgument, match="TLS"):
            Tls(HERE / "server.pem", **wrong)  # type: ignore[arg-type]


async def test_a_broker_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    broken = Broker(data=tmp_path, tls=Tls(tmp_path / "missing"))
    with pytest.raises(errors.InvalidArgument, match="missing"):
        await broken.start()
    with pytest.raises(errors.InvalidArgument, match="no SASL mechanism MAGIC"):
        await Broker(data=tmp_path, mechanisms=("MAGIC",)).start()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match=r"in use"):
        await Broker(data=tmp_path, tls=tls(), tls_port=taken.getsockname()[1]).start()
    async with Broker(data=tmp_path):
        pass


RDN = (
    (("countryName", "DE"),), (("organizationName", 'A, "B" + C'),), (("commonName", "x"), ("userId", "#1")),
    (("2.5.4.99", " y "),),
)  # fmt: skip


@pytest.mark.parametrize("certificate, source, user", [
    (None, "common_name", None), ({}, "distinguished_name", None), ({"subject": ()}, "distinguished_name", None),
    ({"subject": RDN}, "common_name", "x"), ({"subject": (*RDN, (("commonName", "z"),))}, "common_name", None),
    ({"subject": RDN}, "distinguished_name", '2.5.4.99=\\ y\\ ,CN=x+UID=\\#1,O=A\\, \\"B\\" \\+ C,C=DE'),
])  # fmt: skip
def test_names_in_certificates(certificate: dict[str, object] | None, source: str, user: str | None) -> None:
    assert certificate_user(certificate, source) == user  # type: ignore[arg-type]


async def test_events_say_whether_a_connection_has_tls() -> None:
    async with Broker(tls=tls(), events=True) as broker:
        async with harebell.connect(broker.url) as watcher, watcher.channel() as channel:
            await channel.queue_declare("events")
            await channel.queue_bind("events", "amq.rabbitmq.event", "connection.created")
            await channel.queue_bind("events", "amq.rabbitmq.event", "user.authentication.success")
            found = []
            for where in (broker.url, url(broker)):
                async with harebell.connect(where):
                    pass
                for _ in range(2):
                    event = await channel.get("events", no_ack=True)
                    assert event is not None
                    headers = event.headers or {}
                    found.append((event.routing_key, headers["ssl"], headers.get("ssl_protocol")))
                    assert bool(headers.get("ssl_cipher")) == bool(headers.get("ssl_protocol"))
        assert found == [
            ("user.authentication.success", False, None),
            ("connection.created", False, ""),
            ("user.authentication.success", True, None),
            ("connection.created", True, "tlsv1.3"),
        ]
