"""Opens the transport: one round over the hosts, with the credentials of the moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

from harebell import errors
from harebell.client.callbacks import awaited, check_callable
from harebell.client.core.slots import copy_of
from harebell.client.seconds import check_seconds, shown
from harebell.client.transport.wire import Wire
from harebell.client.url import ConnectionParameters

__all__ = ["Credentials", "Dial", "Dialer", "check_credentials", "check_dial"]

Credentials = Callable[[], "tuple[str, str] | Awaitable[tuple[str, str]]"]
Dial = Callable[[str, int], "socket.socket | Awaitable[socket.socket]"]

DIAL_SECONDS: Final = 5.0  # for each of several hosts, unless the program says otherwise: the next may answer at once

# What OpenSSL's versions call an answer that is no TLS.
NO_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"))

_C = TypeVar("_C", bound=Wire)


def check_credentials(credentials: object) -> None:
    """InvalidArgument for what cannot be asked at each dial, as the user name and password themselves."""
    if credentials is None:
        return
    if not callable(credentials):  # what it is instead is not told: it may be the password
        raise errors.InvalidArgument(
            f"credentials is a {type(credentials).__name__}: give a function without arguments that returns (user "
            "name, password or token); a login that never changes stands in the URL"
        )
    check_callable("credentials", credentials)


def check_dial(dial: object) -> None:
    """InvalidArgument for what cannot be called with a host and a port."""
    if dial is not None:
        check_callable("dial", dial, "host", "port")


def _login(given: object) -> tuple[str, str]:
    """What `credentials` gave, checked; the text of the error has no part of it."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        kind = type(given).__name__
        shown = f"{kind} of {len(given)}" if isinstance(given, tuple | list) else kind
        raise errors.InvalidArgument(f"credentials() gave a {shown}: (user name, password or token) is needed")
    for what, text in zip(("user name", "password"), given, strict=True):
        if not isinstance(text, str):
            raise errors.InvalidArgument(f"credentials() gave a {what} of type {type(text).__name__}: text is needed")
    return given[0], given[1]


class Dialer(Generic[_C]):
    """The hosts of one connection.

    make         makes the transport of a dialect
    hosts        in order of preference: the first round begins with the first, and each later one behind the host whose
                 connection is lost, so that this one comes last
    credentials  asked at each dial for (user name, password or token); may be a coroutine function
    sock         a connected socket, for the first dial: there is no way to make another one
    connector    makes a connected socket for a host and port; may be a coroutine function
    each         seconds for each host; None: the whole timeout for a single one, DIAL_SECONDS for each of several
    """

    def __init__(
        self,
        make: Callable[[ConnectionParameters, asyncio.AbstractEventLoop], _C],
        hosts: Sequence[ConnectionParameters],
        credentials: Credentials | None = None,
        sock: socket.socket | None = None,
        connector: Dial | None = None,
        each: float | None = None,
    ) -> None:
        if each is not None and not (each := check_seconds(each, "dial_timeout")):
            raise errors.InvalidArgument(f"dial_timeout is {each!r}: a number of seconds above 0 is needed")
        if sock is not None and not isinstance(sock, socket.socket):
            raise errors.InvalidArgument(f"sock is {sock!r}: a connected socket is needed")
        check_dial(connector)
        check_credentials(credentials)
        if sock is not None and connector is not None:
            raise errors.InvalidArgument("sock and dial are both given: a connection is made with one of them")
        self._make = make
        self.hosts = list(hosts)
        self._credentials = credentials
        self._sock = sock
        self._connector = connector
        self._each = DIAL_SECONDS if each is None and len(self.hosts) > 1 else each
        self._next = 0  # the host that a round begins with

    @property
    def peers(self) -> str:
        return ", ".join(host.peer for host in self.hosts)

    def new_secret(self, secret: str) -> None:
        """The password has changed; the next dial uses it."""
        self.hosts = [replace(host, password=secret) for host in self.hosts]

    async def dial(self, timeout: float, connecting: Callable[[str], None], deadline: float | None = None) -> _C:
        """An open connection to the first host that accepts one. The last host's error when none does.

        timeout     seconds for each host, its credentials among them, if no other time was said for that
        connecting  called with the host that is dialled next
        deadline    in the loop's time, for all hosts together
        """
        error: errors.HarebellError | None = None
        count = len(self.hosts)
        if self._each is not None:
            timeout = min(timeout, self._each)
        for at in [(self._next + n) % count for n in range(count)]:
            host = self.hosts[at]
            if deadline is not None:
                left = deadline - asyncio.get_running_loop().time()
                if error is not None and left <= 0:
                    break
                timeout = min(timeout, max(left, 0.001))
            try:
                until = asyncio.get_running_loop().time() + timeout
                if self._credentials is not None:
                    host = await _with_login(host, self._credentials, timeout, until)
                connecting(host.peer)
                core = await _open(self._make, host, timeout, until, self._sock, self._connector)
                self._next = (at + 1) % count
                return core
            except errors.InvalidArgument:
                raise
            except errors.HarebellError as failed:
                error = failed
        assert error is not None  # there is at least one host
        raise error


async def _with_login(
    host: ConnectionParameters, credentials: Credentials, timeout: float, until: float
) -> ConnectionParameters:
    """The host with the credentials of the moment. ConnectionLost, caused by what the function raises.

    timeout  for the text: the seconds until `until`, in the loop's time
    """
    try:
        async with asyncio.timeout_at(until) as limit:
            given = await awaited(credentials())
    except Exception as error:  # the program's own
        if limit.expired():
            raise errors.DeadlineExceeded(
                f"{host.peer}: credentials() gave nothing within {shown(timeout)} s"
            ) from error
        raise errors.ConnectionLost(f"{host.peer}: credentials() failed: {error!r}") from error
    username, password = _login(given)
    return replace(host, username=username, password=password)


async def _open(
    make: Callable[[ConnectionParameters, asyncio.AbstractEventLoop], _C],
    parameters: ConnectionParameters,
    timeout: float,
    until: float,
    sock: socket.socket | None,
    connector: Dial | None,
) -> _C:
    loop = asyncio.get_running_loop()
    core = make(parameters, loop)
    context = parameters.ssl_context()
    name = (parameters.server_name or parameters.host) if context is not None else None
    try:
        async with asyncio.timeout_at(until):
            if connector is not None:
                sock = await _connected(connector, parameters)
            if sock is not None:
                await loop.create_connection(lambda: core, sock=sock, ssl=context, server_hostname=name)
            else:
                await loop.create_connection(
                    lambda: core, parameters.host, parameters.port, ssl=context, server_hostname=name
                )
            await core.opened
    except TimeoutError as error:
        core.dismiss()
        raise errors.DeadlineExceeded(
            f"{parameters.peer}: no connection within {shown(timeout)} s, {core.stage}"
        ) from error
    except (OSError, UnicodeError) as error:  # a refused TLS certificate too, and a host that DNS could not have
        core.dismiss()
        hint = ": no TLS on this port? use amqp://" if getattr(error, "reason", None) in NO_TLS else ""
        raise errors.ConnectionLost(f"{parameters.peer} cannot be reached: {error}{hint}") from error
    except BaseException:
        core.dismiss()
        raise
    if core.reason is not None:
        raise copy_of(core.reason) from core.reason.__cause__
    return core


async def _connected(connector: Dial, parameters: ConnectionParameters) -> socket.socket:
    """The socket that the program makes. ConnectionLost, caused by what it raises."""
    try:
        sock = await awaited(connector(parameters.host, parameters.port))
    except (OSError, errors.HarebellError):
        raise
    except Exception as error:  # the program's own
        raise errors.ConnectionLost(f"{parameters.peer}: dial() failed: {error!r}") from error
    if not isinstance(sock, socket.socket):
        raise errors.InvalidArgument(f"dial() gave {sock!r}: a connected socket is needed")
    sock.setblocking(False)
    return sock
