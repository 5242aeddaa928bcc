"""Opens the transport: one round over the hosts, with the credentials of the moment."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.transport.wire import Wire
from harebell.client.url import ConnectionParameters

__all__ = ["Credentials", "Dialer"]

Credentials = Callable[[], "tuple[str, str] | Awaitable[tuple[str, str]]"]


_C = TypeVar("_C", bound=Wire)


class Dialer(Generic[_C]):
    """The hosts of one connection.

    make         makes the transport of a dialect
    hosts        in order of preference; each round begins with the first
    credentials  asked at each dial for (user name, password or token); may be a coroutine function
    sock         a connected socket, for the first dial: there is no way to make another one
    """

    def __init__(
        self,
        make: Callable[[ConnectionParameters, asyncio.AbstractEventLoop], _C],
        hosts: Sequence[ConnectionParameters],
        credentials: Credentials | None = None,
        sock: socket.socket | None = None,
    ) -> None:
        self._make = make
        self.hosts = list(hosts)
        self._credentials = credentials
        self._sock = sock

    @property
    def peers(self) -> str:
        return ", ".join(host.peer for host in self.hosts)

    def new_secret(self, secret: str) -> None:
        """The password has changed; the next dial uses it."""
        self.hosts = [replace(host, password=secret) for host in self.hosts]

    async def dial(self, timeout: float, connecting: Callable[[str], None], deadline: float | None = None) -> _C:
        """An open connection to the first host that accepts one. The last host's error when none does.

        timeout     seconds for each host
        connecting  called with the host that is dialled next
        deadline    in the loop's time, for all hosts together
        """
        error: errors.HarebellError | None = None
        for host in self.hosts:
            if deadline is not None:
                left = deadline - asyncio.get_running_loop().time()
                if error is not None and left <= 0:
                    break
                timeout = min(timeout, max(left, 0.001))
            if self._credentials is not None:
                given = self._credentials()
                username, password = await given if inspect.isawaitable(given) else given
                host = replace(host, username=username, password=password)
            connecting(host.peer)
            try:
                return await _open(self._make, host, timeout, self._sock)
            except errors.InvalidArgument:
                raise
            except errors.HarebellError as failed:
                error = failed
        assert error is not None  # there is at least one host
        raise error


async def _open(
    make: Callable[[ConnectionParameters, asyncio.AbstractEventLoop], _C],
    parameters: ConnectionParameters,
    timeout: float,
    sock: socket.socket | None,
) -> _C:
    loop = asyncio.get_running_loop()
    core = make(parameters, loop)
    context = parameters.ssl_context()
    name = (parameters.server_name or parameters.host) if context is not None else None
    try:
        async with asyncio.timeout(timeout):
            if sock is not None:
                await loop.create_connection(lambda: core, sock=sock, ssl=context, server_hostname=name)
            else:
                await loop.create_connection(
                    lambda: core, parameters.host, parameters.port, ssl=context, server_hostname=name
                )
            await core.opened
    except TimeoutError as error:
        core.abort()
        raise errors.DeadlineExceeded(f"{parameters.peer}: no connection within {timeout:g} s, {core.stage}") from error
    except OSError as error:  # a refused TLS certificate too
        core.abort()
        raise errors.ConnectionLost(f"{parameters.peer} cannot be reached: {error}") from error
    except BaseException:
        core.abort()
        raise
    if core.reason is not None:
        raise copy_of(core.reason) from core.reason.__cause__
    return core
