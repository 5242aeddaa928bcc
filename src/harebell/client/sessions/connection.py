"""A connection of AMQP 0-10 that comes back, and with it its sessions.

    async with harebell.sessions.connect("amqp://guest:guest@localhost/") as connection:
        async with connection.session("orders") as session:
            await session.publish(b"...", "", "work")

How it comes back: `recovery`, and `core` for a session.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, Self

from harebell import errors
from harebell.client import events as e
from harebell.client.opening import Opening
from harebell.client.recovery.policy import Backoff, check_backoff
from harebell.client.seconds import check_seconds, seconds_of
from harebell.client.sessions.core.transport import SessionTransport
from harebell.client.sessions.harness import ConnectionHarness
from harebell.client.sessions.recovery import SessionRecovery
from harebell.client.sessions.session import Session
from harebell.client.sessions.statistics import ConnectionStatistics
from harebell.client.transport.dialling import Credentials, Dial, Dialer
from harebell.client.url import ConnectionParameters, hosts_of
from harebell.protocol.v010 import Map
from harebell.protocol.v010.values import write_map

__all__ = ["Connection", "connect"]

logger = logging.getLogger("harebell.client")

DEFAULT_BACKOFF: Final = Backoff()
MOST_TIMEOUT: Final = 0xFFFF_FFFF  # seconds: the field has 32 bits
MOST_NAME: Final = 65_535  # bytes: session.name is a vbin16

State = Literal["open", "reconnecting", "closed"]


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
) -> Opening[Connection]:
    """A connection of AMQP 0-10: `async with connect(url) as connection`, or `connection = await connect(url)`.

    url            as for `harebell.connect`; several are tried in turn, and after a loss the other ones first
    timeout        seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                   included; 30 when the URL says nothing
    heartbeat      seconds, within the broker's limits; wins over the URL's; 0 takes the longest that the broker allows
    context        a TLS context of your own, for amqps; wins over the URL's files
    sock           a connected socket to use: the URL gives all but the address, and the connection does not come back
    dial           called with host and port at each dial, for a connected socket: through a proxy, a tunnel; may be a
                   coroutine function. TLS and the login are the client's
    dial_timeout   seconds for each host, login included; left out, `timeout` for a single one and 5 for each of several
    credentials    called at each dial for (user name, password or token); may be a coroutine function
    client_properties  what the client says about itself, beside its own product, version and platform, or in place of
                   them; the broker shows it
    locale         of the broker's texts; en_US when left out, and brokers have no other
    backoff        delays between the attempts to come back; None: the connection ends with its transport
    give_up_after  seconds without a connection after which it is closed with RecoveryGaveUp; None is never

    Raises (when awaited) InvalidArgument for a URL that cannot be understood, ConnectionLost when no broker answers,
    AccessRefused for a refused login, InvalidPath for a vhost that is missing, NotImplemented from a broker that does
    not speak AMQP 0-10, DeadlineExceeded.
    """

    async def make() -> Connection:
        hosts = hosts_of(
            url, timeout=timeout, heartbeat=heartbeat, context=context, client_properties=client_properties,
            locale=locale, write=write_map,
        )  # fmt: skip
        if backoff is not None:
            check_backoff(backoff)
        if give_up_after is not None:
            check_seconds(give_up_after, "give_up_after")
            if backoff is None:
                raise errors.InvalidArgument(f"give_up_after={give_up_after!r} needs a backoff: None never comes back")
        dialer = Dialer(SessionTransport, hosts, credentials, sock, dial, dial_timeout)
        recovery = SessionRecovery(dialer, backoff if sock is None else None, give_up_after)
        await recovery.first_dial()
        return Connection(recovery)

    return Opening(make, "harebell.sessions.connect(...)")


class Connection:
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    # `recovery` is the client's own, and no public API; so is what a session stands on, and a consumer.

    def __init__(self, recovery: SessionRecovery) -> None:
        self.recovery = recovery

    @property
    def state(self) -> State:
        if self.is_closed:
            return "closed"
        return "reconnecting" if self.recovery.reviving else "open"

    @property
    def is_open(self) -> bool:
        """Whether it can be used this moment; see `is_closed`."""
        return self.state == "open"

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good; False while it is reconnecting."""
        return self.recovery.reason is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or reconnecting."""
        return self.recovery.reason

    @property
    def parameters(self) -> ConnectionParameters:
        """Of the host that it is, or was last, connected to."""
        return self.recovery.transport.parameters

    @property
    def server_properties(self) -> Map:
        """What the broker says about itself: product, version."""
        return self.recovery.transport.handshake.server_properties

    def events(self) -> e.Events:
        """What happens to the connection from now on: `async for event in connection.events()`.

        Recovered says that the sessions are attached again, but for `skipped`, whose state the broker has lost.
        """
        return self.recovery.events()

    def statistics(self) -> ConnectionStatistics:
        """What the connection and its sessions, ended ones too, have published and got so far, in numbers."""
        recovery = self.recovery
        return ConnectionStatistics(**recovery.tally(), sessions=recovery.sessions, reconnects=recovery.transports - 1)

    def test(self) -> ConnectionHarness:
        """What a test does to a connection: cut it, keep it down, count."""
        return ConnectionHarness(self.recovery)

    def session(
        self, name: str | None = None, *, timeout: int = 300, force: bool = False, keep: bool = False
    ) -> Opening[Session]:
        """A session: `async with connection.session("orders") as session`, or `session = await connection.session()`.

        name     of the user's sessions in the virtual host; one that exists goes on, but for its subscriptions and
                 unsettled deliveries, which end and return. None makes a name
        timeout  seconds that the broker is to keep the session while it has no connection; `session.timeout` is what
                 it grants. 0: a lost connection is the end of it
        force    take the session from another connection that has it
        keep     leaving the `async with` block leaves the session at the broker, for its timeout

        Raises (when awaited) SessionDetached when another connection has the session, ResourceError when the broker
        takes no more of them, DeadlineExceeded.
        """
        if not 0 <= timeout <= MOST_TIMEOUT or timeout != int(timeout):
            raise errors.InvalidArgument(f"timeout is {timeout}: 0 to {MOST_TIMEOUT} whole seconds are possible")
        chosen = uuid.uuid4().hex if name is None else name
        if not 0 < len(chosen.encode()) <= MOST_NAME:
            raise errors.InvalidArgument(f"the name of a session has 1 to {MOST_NAME} bytes")

        async def make() -> Session:
            core = self.recovery.new_session(chosen, int(timeout), force=force)
            try:
                await core.opened(core.deadline(None))
            except BaseException:
                core.hang_up(keep=name is not None)  # one of that name may be another program's
                raise
            return Session(core, self.recovery, keep=keep)

        return Opening(make, "connection.session(...)")

    async def close(self, *, timeout: float | None = None) -> None:
        """Say goodbye and close the transport. Closing twice, or a lost connection, is no error.

        The broker keeps sessions that were not closed for their timeout. One that does not answer within the timeout is
        left without its answer.
        """
        if self.recovery.inherited:
            return
        seconds = seconds_of(timeout, self.recovery.timeout)
        transport = self.recovery.say_goodbye()
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(transport.gone)
        except TimeoutError:
            transport.abort()
        except BaseException:
            transport.closed()
            raise

    async def wait_closed(self) -> errors.HarebellError:
        """Wait until the connection has ended for good, and give the reason."""
        if not self.recovery.inherited:
            await asyncio.shield(self.recovery.over)
        assert self.closed_reason is not None  # what `over` says
        return self.closed_reason

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            self.recovery.hang_up()  # a cancelled task does not wait for the network
            return
        await self.close()
