"""The blocking API: a connection of AMQP 0-10. What it does is done by the asyncio connection, on the I/O thread.

Calls that only forward are generated (`forwarded_connection`).
"""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from harebell.client import sessions as asyncio_api
from harebell.client.blocking.callbacks import in_a_thread
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.events import Events
from harebell.client.blocking.sessions.forwarded_connection import ForwardedConnection
from harebell.client.blocking.sessions.harness import ConnectionHarness
from harebell.client.blocking.sessions.session import Session
from harebell.client.blocking.thread import io_thread
from harebell.client.recovery.policy import Backoff
from harebell.client.sessions.connection import DEFAULT_BACKOFF
from harebell.client.transport.dialling import Credentials, Dial, check_credentials, check_dial
from harebell.client.url import ConnectionParameters

__all__ = ["Connection", "connect"]


def connect(
    url: str | ConnectionParameters | Sequence[str | ConnectionParameters] = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
    dial: Dial | None = None,
    dial_timeout: float | None = None,
    credentials: Credentials | None = None,
    client_properties: Mapping[str, object] | None = None,
    locale: str | None = None,
    backoff: Backoff | None = DEFAULT_BACKOFF,
    give_up_after: float | None = None,
) -> Connection:
    """An open connection of AMQP 0-10, to be used as a context manager or closed by the caller, by any thread.

    url            as for `harebell.connect`; several are tried in turn, and after a loss the other ones first
    timeout        seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                   included; 30 when the URL says nothing
    heartbeat      seconds, within the broker's limits; wins over the URL's; 0 takes the longest that the broker allows
    context        a TLS context of your own, for amqps; wins over the URL's files
    sock           a connected socket to use: the URL gives all but the address, and the connection does not come back
    dial           called with host and port at each dial, in some thread, for a connected socket: through a proxy, a
                   tunnel. TLS and the login are the client's
    dial_timeout   seconds for each host, login included; left out, `timeout` for a single one and 5 for each of several
    credentials    called at each dial, in some thread, for (user name, password or token)
    client_properties  what the client says about itself, beside its own product, version and platform, or in place of
                   them; the broker shows it
    locale         of the broker's texts; en_US when left out, and brokers have no other
    backoff        delays between the attempts to come back; None: the connection ends with its transport
    give_up_after  seconds without a connection after which it is closed with RecoveryGaveUp; None is never

    Raises InvalidArgument for a URL that cannot be understood, ConnectionLost when no broker answers, AccessRefused for
    a refused login, InvalidPath for a vhost that is missing, NotImplemented from a broker without AMQP 0-10,
    DeadlineExceeded; LocalProtocolError inside a running event loop.
    """
    io = io_thread()
    check_dial(dial)  # here, because in_a_thread makes a function of any arguments
    check_credentials(credentials)

    async def opened() -> asyncio_api.Connection:
        inner = await asyncio_api.connect(
            url,
            timeout=timeout,
            heartbeat=heartbeat,
            context=context,
            sock=sock,
            dial=None if dial is None else in_a_thread(io, dial),
            dial_timeout=dial_timeout,
            credentials=None if credentials is None else in_a_thread(io, credentials),
            client_properties=client_properties,
            locale=locale,
            backoff=backoff,
            give_up_after=give_up_after,
        )
        io.connections.add(inner)
        return inner

    return Connection(io, io.run_or_undo(_hang_up, opened))


def _hang_up(inner: asyncio_api.Connection) -> None:
    """Close it without waiting for the broker's answer."""
    inner.recovery.hang_up()


@documented_by(asyncio_api.Connection)
class Connection(ForwardedConnection):
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    def events(self) -> Events:
        """What happens to the connection from now on: `for event in connection.events()`.

        Recovered says that the sessions are attached again, but for `skipped`, whose state the broker has lost.
        """
        with self.io.turn:
            return Events(self, self.io, self.inner.events())

    def test(self) -> ConnectionHarness:
        return ConnectionHarness(self.io, self.inner.test())

    def session(
        self, name: str | None = None, *, timeout: int = 300, force: bool = False, keep: bool = False
    ) -> Session:
        """A session, to be used as a context manager or closed by the caller.

        name     of the user's sessions in the virtual host; one that exists goes on, but for its subscriptions and
                 unsettled deliveries, which end and return. None makes a name
        timeout  seconds that the broker is to keep the session while it has no connection; `session.timeout` is what
                 it grants. 0: a lost connection is the end of it
        force    take the session from another connection that has it
        keep     leaving the `with` block leaves the session at the broker, for its timeout

        Raises SessionDetached when another connection has the session, ResourceError when the broker takes no more of
        them, DeadlineExceeded.
        """

        async def opened() -> asyncio_api.Session:
            return await self.inner.session(name, timeout=timeout, force=force, keep=keep)

        def leave(inner: asyncio_api.Session) -> None:
            inner.core.hang_up(keep=name is not None)  # one of that name may be another program's

        return Session(self, self.io.run_or_undo(leave, opened))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # An interrupted program does not wait for the network: close is written, then the transport closes.
            with self.io.turn:
                self.io.loop.call_soon(_hang_up, self.inner)
            return
        self.close()

    def __del__(self) -> None:
        if self.io.usable and not self.inner.is_closed:
            warnings.warn(f"unclosed connection to {self.parameters.peer}", ResourceWarning, source=self, stacklevel=1)
            self.io.loop.call_soon_threadsafe(_hang_up, self.inner)
