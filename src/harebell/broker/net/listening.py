"""The addresses that a broker listens on, and its listening sockets.

A host is an address, or a name that the machine resolves. Two words take what the machine has, of IPv4 and of IPv6:

    localhost   127.0.0.1 and ::1
    *           all addresses, 0.0.0.0 and ::

Anything else must be there: an address that the machine has not, or a port that is taken on one of them, is an error,
and then no socket is open. Beside all addresses of its family, an address gets no socket of its own. An IPv6 socket
takes IPv6 only, so `::` and `0.0.0.0` do not collide.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from harebell.broker.net.descriptors import ACCEPTS, BACKLOG, deepen_backlog

__all__ = [
    "LOOPBACK",
    "ListenError",
    "close_listeners",
    "dialled_host",
    "open_listeners",
    "serve",
    "shown_address",
    "shown_host",
]

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
WORDS: Final = {"localhost": ("127.0.0.1", "::1"), "*": ("0.0.0.0", "::")}
DIALLED: Final = {"localhost": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
ANY: Final = frozenset({"0.0.0.0", "::"})
ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
PORT_TRIES: Final = 32  # ports that are taken on another address, before port 0 is given up

_Address = tuple[int, str, tuple[Any, ...]]  # family, the host that was asked for, and the socket's address


class ListenError(OSError):
    """A `host` and `port` that the broker cannot listen on. `errno` says why."""

    def __init__(self, code: int, reason: str, host: str, port: int) -> None:
        super().__init__(code, f"cannot listen on {shown_address(host, port)}: {reason}")
        self.host, self.port = host, port


def shown_host(host: str) -> str:
    """The host as a URL has it: an IPv6 address in brackets, its zone with %25 (RFC 6874)."""
    return f"[{host.replace('%', '%25')}]" if ":" in host else host


def shown_address(host: str, port: int) -> str:
    """Host and port as log lines and connection names have them, such as 127.0.0.1:5672 and [::1]:5672."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dialled_host(hosts: Sequence[str], listening: socket.socket | None = None) -> str:
    """The host that clients of this machine dial: the first of `hosts`, where that is an address or a name.

    listening  the first socket that was opened for them; None: none is open, and IPv4 is expected
    """
    first = str(listening.getsockname()[0]) if listening is not None and hosts[0] in WORDS else hosts[0]
    return DIALLED.get(first, first)


async def open_listeners(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Bound sockets for all addresses of the hosts, on one port; 0 takes one that is free on all of them.

    Raises ListenError.
    """
    addresses = await _addresses(hosts, port)
    for left in reversed(range(PORT_TRIES)):
        try:
            return _bind(addresses, port)
        except ListenError as error:
            if port or error.errno != errno.EADDRINUSE or not left:
                raise
    raise AssertionError("the last try raises")


async def _addresses(hosts: Sequence[str], port: int) -> list[_Address]:
    """Each address once, in the order of the hosts."""
    found: dict[tuple[int, Any], _Address] = {}
    for host in hosts:
        for name in WORDS.get(host, (host,)):
            try:
                answers = await asyncio.get_running_loop().getaddrinfo(
                    name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
            except socket.gaierror as error:
                if host in WORDS:
                    continue
                raise ListenError(errno.EADDRNOTAVAIL, str(error.strerror), host, port) from error
            for family, _, _, _, address in answers:
                found.setdefault((family, address[0]), (family, host, address))
    return list(found.values())


def _bind(addresses: Sequence[_Address], port: int) -> list[socket.socket]:
    whole = {family for family, _, address in addresses if address[0] in ANY}
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        absent: ListenError | None = None
        for family, host, address in addresses:
            name = str(address[0]) if host in WORDS else host
            covered = family in whole and address[0] not in ANY
            try:
                if covered:  # it must be there all the same
                    _listening(family, (address[0], 0, *address[2:])).close()
                    continue
                listening = opened.enter_context(_listening(family, (address[0], port, *address[2:])))
            except OSError as error:
                code = error.errno or errno.EIO
                failed = ListenError(code, os.strerror(code), name, port)
                if host not in WORDS or code not in ABSENT:
                    raise failed from error
                absent = failed
                continue
            port = port or listening.getsockname()[1]
            sockets.append(listening)
        if not sockets:
            raise absent or ListenError(errno.EADDRNOTAVAIL, "the machine has neither IPv4 nor IPv6", "*", port)
        opened.pop_all()
        return sockets


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)  # two sockets may be bound to a port; only one of them can listen
    except OSError:
        made.close()
        raise
    return made


async def serve(
    sockets: Sequence[socket.socket],
    protocol: Callable[[], asyncio.BaseProtocol],
    made: Callable[[asyncio.Server], None],
) -> None:
    """Serve on each socket. `made` takes each server before it accepts anything: who has it closes it, also when this
    fails or is cancelled; the sockets without a server are closed here.
    """
    loop, left = asyncio.get_running_loop(), list(sockets)
    try:
        for listening in sockets:
            # Serving begins once the server is known: a cancelled one would leave its socket in the loop.
            server = await loop.create_server(protocol, sock=listening, backlog=ACCEPTS, start_serving=False)
            left.remove(listening)
            made(server)
            await server.start_serving()
            deepen_backlog(server)
    finally:
        for listening in left:
            listening.close()


async def close_listeners(servers: Sequence[asyncio.Server]) -> None:
    """Close them once what they have accepted has its transport: asyncio drops what comes to a closed server."""
    loop = asyncio.get_running_loop()
    for server in servers:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    for _ in range(2):  # an accepted socket gets its transport in the next turn, its protocol in the one after
        await asyncio.sleep(0)
    for server in servers:
        server.close()
