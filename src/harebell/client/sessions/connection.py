"""A connection of AMQP 0-10 that comes back, and with it its sessions.

    async with harebell.sessions.connect("amqp://guest:guest@localhost/") as connection:
        async with connection.session("orders") as session:
            await session.publish(b"...", "", "work")

One task dials after a loss, and attaches the sessions to the new transport; they do the rest themselves (`core`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Literal, Self

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.opening import Opening
from harebell.client.recovery.policy import Backoff, Pauses
from harebell.client.sessions.core import SessionCore
from harebell.client.sessions.session import Session
from harebell.client.sessions.transport import SessionTransport
from harebell.client.transport.deadlines import Deadlines
from harebell.client.transport.dialling import Credentials, Dialer
from harebell.client.url import ConnectionParameters, parameters_of
from harebell.protocol.v010 import Map

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
    credentials: Credentials | None = None,
    backoff: Backoff | None = DEFAULT_BACKOFF,
    give_up_after: float | None = None,
) -> Opening[Connection]:
    """A connection of AMQP 0-10: `async with connect(url) as connection`, or `connection = await connect(url)`.

    url            as for `harebell.connect`; several are tried in turn
    timeout        seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                   included; 30 when the URL says nothing
    heartbeat      seconds, within the broker's limits; wins over the URL's; 0 takes the longest that the broker allows
    context        a TLS context of your own, for amqps; wins over the URL's files
    credentials    called at each dial for (user name, password or token); may be a coroutine function
    backoff        delays between the attempts to come back; None: the connection ends with its transport
    give_up_after  seconds without a connection after which it is closed with RecoveryGaveUp; None is never

    Raises (when awaited) InvalidArgument for a URL that cannot be understood, ConnectionLost when no broker answers,
    AccessRefused for a refused login, InvalidPath for a vhost that is missing, NotImplemented from a broker that does
    not speak AMQP 0-10, DeadlineExceeded.
    """

    async def make() -> Connection:
        urls = [url] if isinstance(url, str | ConnectionParameters) else list(url)
        if not urls:
            raise errors.InvalidArgument("no URL was given: connect() needs at least one host")
        if give_up_after is not None and (backoff is None or give_up_after < 0):
            raise errors.InvalidArgument(f"give_up_after={give_up_after!r}: seconds, 0 or more, and a backoff")
        hosts = [parameters_of(one, timeout=timeout, heartbeat=heartbeat, context=context) for one in urls]
        connection = Connection(Dialer(SessionTransport, hosts, credentials), backoff, give_up_after)
        await connection.open()
        return connection

    return Opening(make)


class Connection:
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    # What has no docstring here is for its sessions: `core.Home`.

    def __init__(self, dialer: Dialer[SessionTransport], backoff: Backoff | None, give_up_after: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)
        self.timeout = dialer.hosts[0].timeout
        self._dialer = dialer
        self._backoff = backoff
        self._pauses = None if backoff is None else Pauses(backoff)
        self._give_up_after = give_up_after
        self._transport: SessionTransport | None = None  # the present one, or the last
        self._cores: dict[str, SessionCore] = {}
        self._reviving: asyncio.Task[None] | None = None
        self._later: dict[SessionCore, asyncio.TimerHandle] = {}
        self._reason: errors.HarebellError | None = None
        self._over: asyncio.Future[None] = self.loop.create_future()

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def peers(self) -> str:
        return self._dialer.peers

    @property
    def state(self) -> State:
        if self._reason is not None:
            return "closed"
        return "reconnecting" if self._reviving is not None else "open"

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good; False while it is reconnecting."""
        return self._reason is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or reconnecting."""
        return self._reason

    @property
    def parameters(self) -> ConnectionParameters:
        """Of the host that it is, or was last, connected to."""
        return self._dialer.hosts[0] if self._transport is None else self._transport.parameters

    @property
    def server_properties(self) -> Map:
        """What the broker says about itself: product, version."""
        return {} if self._transport is None else self._transport.handshake.server_properties

    # -- opening and coming back -------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Dial for the first time: once, to each host."""
        self._carry(await self._dialer.dial(self.timeout, _dialling))

    def _carry(self, transport: SessionTransport) -> None:
        """Go on with an open transport."""
        self._transport = transport
        transport.on_end = self._lost
        if self._pauses is not None:
            self._pauses.succeeded(self.loop.time())
        for core in tuple(self._cores.values()):
            self._attach(core)

    def _lost(self, reason: errors.HarebellError) -> None:
        if self._reason is not None:
            return
        if self._pauses is None:
            self._end(reason)
            return
        if self._reviving is None:
            logger.warning("connection to %s lost: %s", self.parameters.peer, reason)
            self._reviving = self.loop.create_task(self._revive(self._pauses, reason))
            self._reviving.add_done_callback(self._revived)

    async def _revive(self, pauses: Pauses, error: BaseException) -> None:
        """Dial again and again until that was successful."""
        began = self.loop.time()
        while True:
            delay = pauses.next(self.loop.time())
            if self._give_up_after is not None and self.loop.time() + delay - began > self._give_up_after:
                gave_up = errors.RecoveryGaveUp(f"no connection to {self.peers} for {self._give_up_after:g} s: {error}")
                gave_up.__cause__ = error
                self._end(gave_up)
                return
            await asyncio.sleep(delay)
            try:
                transport = await self._dialer.dial(self.timeout, _dialling)
            except errors.HarebellError as failed:
                error = failed
                continue
            except Exception as failed:  # the program's credentials
                logger.warning("the credentials for %s cannot be had: %r", self.peers, failed)
                error = failed
                continue
            if transport.reason is not None:
                error = transport.reason
                continue
            self._reviving = None
            self._carry(transport)
            return

    def _revived(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake in the recovery itself. Without this, every call would wait for its deadline.
            logger.critical("recovery failed", exc_info=error)
            self._end(errors.ConnectionLost(f"recovery failed: {error!r}"))

    # -- sessions ----------------------------------------------------------------------------------------------------

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
        if not 0 <= timeout <= MOST_TIMEOUT:
            raise errors.InvalidArgument(f"timeout is {timeout}: 0 to {MOST_TIMEOUT} seconds are possible")
        chosen = uuid.uuid4().hex if name is None else name
        if not 0 < len(chosen.encode()) <= MOST_NAME:
            raise errors.InvalidArgument(f"the name of a session has 1 to {MOST_NAME} bytes")

        async def make() -> Session:
            if self._reason is not None:
                raise errors.ChannelClosed(f"the connection is closed: {self._reason}") from self._reason
            if chosen in self._cores:
                raise errors.InvalidArgument(f"this connection has a session '{chosen}' already")
            core = SessionCore(self, chosen, timeout, force=force)
            self._cores[chosen] = core
            if self._reviving is None:
                self._attach(core)
            try:
                await core.opened(core.deadline(None))
            except BaseException:
                core.hang_up(keep=False)
                raise
            return Session(core, keep=keep)

        return Opening(make)

    def _attach(self, core: SessionCore) -> None:
        """Attach a session to a free channel of the present transport."""
        self._cancel_later(core)
        transport = self._transport
        if transport is None or transport.reason is not None or core.reason is not None:
            return
        for channel in range(transport.engine.channel_max):
            if channel not in transport.channels and channel not in transport.engine.attachments:
                core.attach(transport, channel)
                return
        core.end(errors.ResourceError(f"the connection has {transport.engine.channel_max} sessions, and takes no more"))

    def attach_later(self, core: SessionCore) -> None:
        pauses = Pauses(self._backoff or DEFAULT_BACKOFF, free=0)
        self._later[core] = self.loop.call_later(pauses.next(self.loop.time()), self._attach, core)

    def _cancel_later(self, core: SessionCore) -> None:
        timer = self._later.pop(core, None)
        if timer is not None:
            timer.cancel()

    def forget(self, core: SessionCore) -> None:
        self._cancel_later(core)
        if self._cores.get(core.name) is core:
            del self._cores[core.name]

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, *, timeout: float | None = None) -> None:
        """Say goodbye and close the transport. Closing twice, or a lost connection, is no error.

        The broker keeps sessions that were not closed for their timeout. One that does not answer within the timeout is
        left without its answer.
        """
        transport = self._say_goodbye()
        if transport is None:
            return
        try:
            async with asyncio.timeout(self.timeout if timeout is None else timeout):
                await asyncio.shield(transport.gone)
        except TimeoutError:
            transport.abort()
        except BaseException:
            transport.closed()
            raise

    def _say_goodbye(self) -> SessionTransport | None:
        if self._transport is not None:
            self._transport.close()
        self._end(errors.ChannelClosed("the connection was closed by this client"))
        return self._transport

    async def wait_closed(self) -> errors.HarebellError:
        """Wait until the connection has ended for good, and give the reason."""
        await asyncio.shield(self._over)
        assert self._reason is not None  # what `_over` says
        return self._reason

    def _end(self, reason: errors.HarebellError) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        if self._reviving is not None and self._reviving is not asyncio.current_task():
            self._reviving.cancel()
        for core in tuple(self._cores.values()):
            core.end(copy_of(reason))
        self.deadlines.close()
        if not self._over.done():
            self._over.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            transport = self._say_goodbye()
            if transport is not None:
                transport.closed()  # a cancelled task does not wait for the network
            return
        await self.close()


def _dialling(peer: str) -> None:
    """Nobody is told which host is dialled."""
