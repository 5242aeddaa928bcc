"""Addresses to listen on: several, both families, those that the machine has not, and ports that are taken."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

import harebell
from harebell.broker import Broker
from harebell.broker.net import listening
from harebell.broker.net.listening import (
    ListenError,
    close_listeners,
    dialled_host,
    open_listeners,
    serve,
    shown_address,
    shown_host,
)
from harebell.errors import InvalidArgument
from tests.broker.net.addresses import has_ipv6

ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
STRANGE = "192.0.2.77"  # RFC 5737: nobody has it


def bound(sockets: Sequence[socket.socket]) -> tuple[list[str], set[int]]:
    """The addresses and the ports of the sockets, which are closed."""
    with ExitStack() as closing:
        names = [closing.enter_context(each).getsockname() for each in sockets]
    return [name[0] for name in names], {name[1] for name in names}


def sockets_without(family: socket.AddressFamily, code: int) -> Any:
    """A kind of socket as on a machine that has none of this family: `code` says so."""

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == family:
                raise OSError(code, "absent")
            super().bind(address)

    return Socket


@ipv6
@pytest.mark.parametrize("hosts, addresses", [
    (["localhost"], ["127.0.0.1", "::1"]), (["*"], ["0.0.0.0", "::"]), (["::1", "127.0.0.1"], ["::1", "127.0.0.1"]),
    (["127.0.0.2", "localhost", "127.0.0.1"], ["127.0.0.2", "127.0.0.1", "::1"]), (["::"], ["::"]),
    (["0.0.0.0", "::"], ["0.0.0.0", "::"]), (["*", "127.0.0.1"], ["0.0.0.0", "::"]),
    (["127.0.0.1", "0.0.0.0"], ["0.0.0.0"]), (["::", "::1", "127.0.0.1"], ["::", "127.0.0.1"]),
    (["localhost", "*"], ["0.0.0.0", "::"]), (["*", "*", "0.0.0.0"], ["0.0.0.0", "::"]),
])  # fmt: skip
async def test_all_addresses_have_one_port(hosts: list[str], addresses: list[str]) -> None:
    found, ports = bound(await open_listeners(hosts, 0))
    assert found == addresses
    assert len(ports) == 1


@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
@pytest.mark.parametrize("family, left", [(socket.AF_INET6, "127.0.0.1"), (socket.AF_INET, "::1")])
@ipv6
async def test_a_word_takes_the_families_that_are_there(
    monkeypatch: pytest.MonkeyPatch, code: int, family: socket.AddressFamily, left: str
) -> None:
    monkeypatch.setattr("socket.socket", sockets_without(family, code))
    for word in ("localhost", "*"):
        sockets = await open_listeners([word], 0)
        dialled = dialled_host([word], sockets[0])
        assert len(bound(sockets)[0]) == 1
        assert dialled == left
    with pytest.raises(ListenError) as caught:
        await open_listeners(["127.0.0.1", "::1"], 0)
    assert (caught.value.errno, caught.value.host in ("127.0.0.1", "::1")) == (code, True)
    async with Broker() as broker, harebell.connect(broker.url) as connection:
        assert f"{shown_host(left)}:{broker.port}" in broker.url
        assert connection.is_open


async def test_neither_family(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(errno.EADDRNOTAVAIL, "absent")

    monkeypatch.setattr("socket.socket", Socket)
    with pytest.raises(ListenError, match="cannot listen on"):
        await open_listeners(["localhost"], 0)


@pytest.mark.parametrize("hosts", [[STRANGE], ["localhost", STRANGE], [STRANGE, "*"], ["no-such-name.invalid"]])
async def test_an_address_of_another_machine(hosts: list[str]) -> None:
    with pytest.raises(ListenError) as caught:
        await open_listeners(hosts, 0)
    assert caught.value.errno == errno.EADDRNOTAVAIL
    assert caught.value.host in (STRANGE, "no-such-name.invalid")


@ipv6
@pytest.mark.parametrize("taken_on", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("hosts", [["localhost"], ["127.0.0.1", "::1"], ["*"]])
async def test_a_port_that_is_taken_on_one_address(taken_on: str, hosts: list[str]) -> None:
    family = socket.AF_INET6 if ":" in taken_on else socket.AF_INET
    with socket.create_server((taken_on, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match="in use") as caught:
            await open_listeners(hosts, port)
    assert caught.value.errno == errno.EADDRINUSE
    assert (caught.value.host in (taken_on, "0.0.0.0", "::"), caught.value.port) == (True, port)
    bound(await open_listeners(hosts, port))  # no socket was left open


@ipv6
async def test_port_0_goes_on_until_a_port_is_free_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6 and len(refused) < 3:
                refused.append(address[1])
                raise OSError(errno.EADDRINUSE, "taken")
            super().bind(address)

    monkeypatch.setattr("socket.socket", Socket)
    _, ports = bound(await open_listeners(["localhost"], 0))
    assert len(refused) == 3
    assert len(ports) == 1
    monkeypatch.setattr(listening, "PORT_TRIES", 2)
    refused.clear()
    with pytest.raises(ListenError, match="in use"):
        await open_listeners(["localhost"], 0)


@pytest.mark.parametrize("host, in_url, with_port", [
    ("127.0.0.1", "127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]", "[::1]:1"), ("name", "name", "name:1"),
    ("fe80::1%eth0", "[fe80::1%25eth0]", "[fe80::1%eth0]:1"),
])  # fmt: skip
def test_hosts_in_urls(host: str, in_url: str, with_port: str) -> None:
    assert (shown_host(host), shown_address(host, 1)) == (in_url, with_port)


@pytest.mark.parametrize("host, dialled", [
    ("localhost", "127.0.0.1"), ("*", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"),
    ("broker.example", "broker.example"), (("10.1.1.1", "localhost"), "10.1.1.1"),
])  # fmt: skip
def test_the_url_before_the_start(host: str | tuple[str, ...], dialled: str) -> None:
    assert Broker(host, 5672).url == f"amqp://guest:guest@{dialled}:5672/"


def test_no_host() -> None:
    with pytest.raises(InvalidArgument, match="no host"):
        Broker(())


@ipv6
async def test_a_client_of_ipv6() -> None:
    async with Broker("::1") as broker:
        assert broker.url == f"amqp://guest:guest@[::1]:{broker.port}/"
        async with harebell.connect(broker.url) as connection, connection.channel() as channel:
            await channel.queue_declare("q")
            (held,) = broker.node.connections
            assert held.name.endswith(f" -> [::1]:{broker.port}")
            assert held.name.startswith("[::1]:")


class Unwilling:
    """The running loop, whose `create_server` fails or never ends at a call with a number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, *, hangs: bool) -> None:
        self.sockets: list[socket.socket] = []
        self.hanging = asyncio.Event()
        loop = asyncio.get_running_loop()
        create = loop.create_server

        async def create_server(*arguments: Any, sock: socket.socket, **named: Any) -> asyncio.Server:
            self.sockets.append(sock)
            if len(self.sockets) != number:
                return await create(*arguments, sock=sock, **named)
            if not hangs:
                raise OSError(errno.EMFILE, "no more")
            self.hanging.set()
            await asyncio.Event().wait()
            raise AssertionError("it was cancelled")

        monkeypatch.setattr(loop, "create_server", create_server)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "is cancelled"])
async def test_a_start_that_ends_early_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch, number: int, hangs: bool
) -> None:
    sockets = await open_listeners(["127.0.0.1", "127.0.0.2", "127.0.0.3"], 0)
    servers: list[asyncio.Server] = []
    loop = Unwilling(monkeypatch, number, hangs=hangs)
    starting = asyncio.ensure_future(serve(sockets, asyncio.Protocol, servers.append))
    if hangs:
        await loop.hanging.wait()
        starting.cancel()
    with pytest.raises(asyncio.CancelledError if hangs else OSError):
        await starting
    await close_listeners(servers)
    assert len(servers) == number - 1
    assert [each.fileno() for each in sockets] == [-1] * 3
