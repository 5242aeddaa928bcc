"""The asyncio face: a connection that comes back.

    async with harebell.connect("amqp://guest:guest@localhost/") as connection:
        async with connection.channel() as channel:
            ...

`connect` and `connection.channel` give something that can be awaited, or entered with `async with`, which also closes.
A call that is cancelled, or that has passed its deadline, leaves everything usable: its late answer is dropped.

How a connection comes back. What a program holds (Connection, Channel, Consumer) keeps its identity; underneath stands
one core per transport (`wire.AsyncCore`, `core.ChannelCore`), which dies with it and never comes back. When a core ends
without our doing,

1. it fails the requests that wait, orphans what is unconfirmed and unacknowledged, and tells the Connection;
2. the Connection starts one task, the only one, which dials until a core is open (`recovery.Backoff`, `dial.Dialer`);
3. the topology is declared again (`middleware.topology`, around the dialling);
4. each Channel gets a new ChannelCore (`lasting`): modes, prefetch, tables of deliveries and publications, so that
   public tags go on (each a file in `middleware`), and its subscriptions;
5. calls that were parked go on, and Recovered is told (`events`).

A second loss on the way makes the attempt a failed one. The hot path knows nothing of this: a core that is not usable
is not `active`, which publishing asks anyway, and has an empty table of unacknowledged tags, where acknowledging looks.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Final, Generic, Literal, Protocol, Self, TypeVar

from harebell import errors
from harebell.client import events as e
from harebell.client.channel import METHODS as CHANNEL_METHODS, Channel
from harebell.client.core.channel import ChannelCore
from harebell.client.core.connection import ConnectionCore
from harebell.client.core.slots import copy_of
from harebell.client.harness import ConnectionHarness
from harebell.client.middleware.hooks import ConnectionReconnectArgs
from harebell.client.middleware.registry import Attached, Middlewares, attached
from harebell.client.middleware.topology import TopologyReplay
from harebell.client.middleware.transports import WireConnection
from harebell.client.notifications import Transport
from harebell.client.patterns.openers import Faces
from harebell.client.recovery.channel import LastingChannel, opened
from harebell.client.recovery.policy import Recovery
from harebell.client.recovery.recorded_topology import Late, Topology
from harebell.client.recovery.redeclare import Replay
from harebell.client.statistics import ConnectionStatistics, Tally, connection_statistics
from harebell.client.transport.deadlines import EXPIRED
from harebell.client.transport.dialling import Credentials, Dialer
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.client.url import ConnectionParameters, parameters_of
from harebell.protocol.v091 import Table, methods as m

__all__ = ["Connection", "Opening", "connect"]

logger = logging.getLogger("harebell.client")

DEFAULT_RECOVERY = Recovery()

State = Literal["open", "reconnecting", "closed"]

# The methods that a middleware can stand around.
METHODS: Final = ("close", "update_secret", "notify_close", "notify_dial", "notify_disconnect")


class _Closing(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


_T = TypeVar("_T", bound=_Closing)


class Opening(Generic[_T]):
    """Something to be opened: `await` it and close the result yourself, or `async with` it."""

    def __init__(self, make: Callable[[], Awaitable[_T]]) -> None:
        self._make = make
        self._opened: _T | None = None

    def __await__(self) -> Generator[object, None, _T]:
        return self._make().__await__()

    async def __aenter__(self) -> _T:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)


class _NoCredentials(errors.ConnectionLost):
    """The credentials callable has failed; what it raised is the cause."""


def _nothing() -> None:
    """Nothing else happens at the loss of a connection: its channels are asked next."""


def connect(
    url: str | ConnectionParameters | Sequence[str | ConnectionParameters] = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
    credentials: Credentials | None = None,
    recovery: Recovery | None = DEFAULT_RECOVERY,
    middleware: Middlewares | None = None,
) -> Opening[Connection]:
    """A connection to a broker: `async with connect(url) as connection`, or `connection = await connect(url)`.

    url          amqp://user:password@host:port/vhost or amqps://..., with the query of `harebell.client.url`; several
                 of them are tried in turn
    timeout      seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                 included; 30 when the URL says nothing
    heartbeat    seconds; wins over the URL's; 0 takes what the broker proposes
    context      a TLS context of your own, for amqps; wins over the URL's files
    sock         a connected socket to use; the URL then gives all but the address, and the connection cannot come back
    credentials  called at each dial for (user name, password or token); may be a coroutine function
    recovery     how the connection comes back; None: it ends with its transport
    middleware   what stands around the calls and events of the connection and its channels, as it is registered now

    Raises (when awaited) InvalidArgument for a URL that cannot be understood, ConnectionLost when nobody answers there,
    AccessRefused for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded.
    """

    async def make() -> Connection:
        urls = [url] if isinstance(url, str | ConnectionParameters) else list(url)
        if not urls:
            raise errors.InvalidArgument("no URL was given: connect() needs at least one host")
        hosts = [parameters_of(one, timeout=timeout, heartbeat=heartbeat, context=context) for one in urls]
        stands = attached(middleware)
        kind = stands.connection.dressed(Connection, METHODS)
        connection = kind(Dialer(hosts, credentials, sock), recovery if sock is None else None, stands)
        await connection._first_dial()
        return connection

    return Opening(make)


class Connection(Transport, Faces):
    """A connection to a broker, over every transport that carries it. Made by `connect`.

    `faces` adds what stands above its channels: producer, consume, deliveries, rpc, serve, pools.
    """

    _core: AsyncCore

    def __init__(self, dialer: Dialer, recovery: Recovery | None, middleware: Attached) -> None:
        super().__init__(middleware.connection)
        self._middleware = middleware
        self._tell: Callable[[e.Event], None] = self._chains.event("event", self._put)
        self._dialer = dialer
        self._recovery = recovery
        self._loop = asyncio.get_running_loop()
        self._timeout = dialer.hosts[0].timeout
        feature = self._chains.providers.get("topology")
        self._topology = feature.table if isinstance(feature, TopologyReplay) else Topology()
        self._topology.scope = recovery.topology if recovery is not None else "none"
        self._channels: dict[LastingChannel, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reviving = False
        self._ended: errors.HarebellError | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._parked_calls: dict[asyncio.Future[object], None] = {}  # in their order: publishes keep it
        self._readers: weakref.WeakSet[e.Events] = weakref.WeakSet()
        self._last_error: BaseException | None = None
        self._dialed: AsyncCore | None = None  # by the attempt under way
        self._may_reconnect = asyncio.Event()  # cleared by a test that wants an outage
        self._may_reconnect.set()
        self._transports = 0
        self._before = Tally()  # of closed channels
        self._late: Late = {}
        self._awaiting: AsyncCore | None = None  # where somebody waits for these

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> ConnectionParameters:
        """Of the host that it is, or was last, connected to."""
        return self._core.parameters

    @property
    def state(self) -> State:
        if self._ended is not None:
            return "closed"
        return "reconnecting" if self._reviving else "open"

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now (connection.blocked); None when it does. Publishers wait meanwhile."""
        return self._core.blocked

    @property
    def is_open(self) -> bool:
        """Whether it can be used this moment; see `is_closed`."""
        return self.state == "open"

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good; False while it is reconnecting."""
        return self._ended is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or reconnecting."""
        return self._ended

    @property
    def server_properties(self) -> Table:
        """What the broker says about itself: product, version, capabilities."""
        return self._core.handshake.server_properties

    def events(self) -> e.Events:
        """What happens to the connection from now on: `async for event in connection.events()`."""
        reader = e.Events(self._loop, self._readers.discard)
        self._readers.add(reader)
        if self._ended is not None:
            reader.put(e.Closed(self._ended))
        return reader

    def statistics(self) -> ConnectionStatistics:
        """What the connection and its channels, closed ones too, have published and got so far, in numbers."""
        return connection_statistics(self)

    def test(self) -> ConnectionHarness:
        """What a test does to a connection: cut it, hold it down, count."""
        return ConnectionHarness(self)

    # -- calls -------------------------------------------------------------------------------------------------------

    def channel(self, *, timeout: float | None = None, middleware: Middlewares | None = None) -> Opening[Channel]:
        """A new channel: `async with connection.channel() as channel`, or `channel = await connection.channel()`.

        middleware  what stands around the calls and events of this channel, inside what `connect` was given; features
                    that it is `without` are taken out for this channel alone
        """

        async def make() -> Channel:
            chains = self._middleware.channel(middleware)
            seconds = self._timeout if timeout is None else timeout
            deadline = self._loop.time() + seconds
            while True:
                await self._usable("channel.open", deadline, seconds)
                connection = self._core
                slot = FutureSlot(m.ChannelOpen(), self._loop.create_future())
                core = connection.new_channel(slot, self._new_core)
                try:
                    await connection.reply(slot, deadline - self._loop.time(), core.abandon)
                except errors.HarebellError:
                    if connection.reason is not None and self._parks():
                        continue
                    raise
                if core.reason is None:
                    return chains.dressed(Channel, CHANNEL_METHODS)(self, connection, core, chains)

        return Opening(make)

    def _new_core(self, connection: ConnectionCore, number: int) -> ChannelCore:
        return ChannelCore(connection, number, renamed=self._topology.renamed)

    async def update_secret(self, secret: str, reason: str = "", *, timeout: float | None = None) -> None:
        """Give the broker a new password or token for this connection; later dials use it too."""
        seconds = self._timeout if timeout is None else timeout
        await self._usable("connection.update-secret", self._loop.time() + seconds, seconds)
        slot = FutureSlot(m.ConnectionUpdateSecret(secret.encode(), reason), self._loop.create_future())
        self._core.request(slot)
        await self._core.reply(slot, seconds)
        self._dialer.new_secret(secret)

    async def wait_closed(self) -> errors.HarebellError:
        """Wait until the connection has ended for good, and give the reason."""
        await asyncio.shield(self._over)
        await asyncio.shield(self._core.gone)
        assert self._ended is not None  # what `_over` says
        return self._ended

    async def close(self, *, timeout: float | None = None) -> None:
        """Say goodbye and close the transport. Closing twice, or a lost connection, is no error.

        A broker that does not answer within the timeout is left without its answer.
        """
        core, tasks = self._core, list(self._tasks)
        slot = self._say_goodbye()
        try:
            async with asyncio.timeout(self._timeout if timeout is None else timeout):
                if slot is not None:
                    await slot.future
                await asyncio.shield(core.gone)
                await asyncio.gather(*tasks, return_exceptions=True)
        except TimeoutError:
            core.abort()
        except BaseException:
            core.closed()
            raise

    def _say_goodbye(self) -> FutureSlot | None:
        """Close it, without waiting for the answer."""
        core = self._core
        slot: FutureSlot | None = None
        if core.open:
            slot = FutureSlot(m.ConnectionClose(), self._loop.create_future())
            core.close(slot)
        self._end(errors.ChannelClosed("the connection was closed by this client"))
        return slot

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            # Who is cancelled does not wait for the network: the goodbye is written, the transport closes after it.
            self._say_goodbye()
            self._core.closed()
            return
        await self.close()

    # -- coming back -------------------------------------------------------------------------------------------------

    async def _first_dial(self) -> None:
        recovery = self._recovery
        if recovery is None or recovery.first == "once":
            self._attach(await self._dial(self._timeout))
            return
        attempt, deadline = 0, self._loop.time() + self._timeout
        why: errors.HarebellError | None = None
        while True:
            try:
                core = await self._dial(max(deadline - self._loop.time(), 0.001))
            except errors.InvalidArgument:
                raise
            except errors.HarebellError as error:
                attempt += 1
                delay = recovery.backoff.delay(attempt)
                if why is None or not isinstance(error, errors.DeadlineExceeded):
                    why = error  # a last attempt that had no time says nothing about the broker
                if self._loop.time() + delay >= deadline:
                    raise why from None
                await asyncio.sleep(delay)
            else:
                self._attach(core)
                return

    async def _dial(self, seconds: float) -> AsyncCore:
        try:
            core = await self._dialer.dial(seconds, self._connecting)
        except Exception as error:  # whatever the credentials callable raises, too
            self._tell_dialed(self._dialer.peers, error)
            raise
        self._tell_dialed(core.parameters.peer, None)
        return core

    def _connecting(self, peer: str) -> None:
        self._emit(e.Connecting(peer))

    def _attach(self, core: AsyncCore) -> None:
        """This core is the connection now."""
        self._core = core
        self._transports += 1
        core.on_end = self._lost
        core.on_blocking = self._blocking_changed

    def _lost(self, reason: errors.HarebellError) -> None:
        """The core has ended without our doing; it asks the channels next."""
        if self._ended is not None:
            return
        if self._recovery is None:
            self._tell_disconnected(reason, False, _nothing)
            self._end(reason)
            return
        self._reviving = True
        self._last_error = reason
        self._spawn(self._revive(self._recovery, reason))
        self._tell_disconnected(reason, True, _nothing)

    async def _revive(self, recovery: Recovery, error: BaseException) -> None:
        """Dial and put everything back until that has worked."""
        attempt, began = 0, self._loop.time()
        while True:
            attempt += 1
            delay = recovery.backoff.delay(attempt)
            if recovery.give_up_after is not None and self._loop.time() + delay - began > recovery.give_up_after:
                gave_up = errors.RecoveryGaveUp(
                    f"no connection to {self._dialer.peers} for {recovery.give_up_after:g} s: {error}"
                )
                gave_up.__cause__ = error
                self._end(gave_up)
                return
            self._last_error = error
            self._emit(e.Reconnecting(attempt, delay, error))
            await asyncio.sleep(delay)
            await self._may_reconnect.wait()
            self._dialed = None
            try:
                await self._put_back(attempt, error)
                return
            except errors.HarebellError as failed:
                error = failed.__cause__ or failed if isinstance(failed, _NoCredentials) else failed
                if self._dialed is not None:
                    logger.warning("reconnected to %s, and lost it again: %s", self._dialed.parameters.peer, failed)
                    self._dialed.abort()
            except BaseException:
                if self._dialed is not None:
                    self._dialed.abort()
                raise

    async def _put_back(self, attempt: int, error: BaseException) -> None:
        async def innermost(args: ConnectionReconnectArgs) -> WireConnection:
            try:
                if self._dialed is not None:
                    self._dialed.abort()  # a middleware has called next twice
                core = self._dialed = await self._dial(self._timeout)
            except errors.HarebellError:
                raise
            except Exception as failed:
                raise _NoCredentials(f"the credentials cannot be had: {failed!r}") from failed
            self._emit(e.Open(core.parameters.peer))
            return WireConnection(core)

        args = ConnectionReconnectArgs(attempt, error, connection=self)
        wire = await opened(
            "connection_reconnect", self._chains.call("connection_reconnect", innermost)(args), WireConnection
        )
        core, skipped, self._late = wire.core, wire.skipped, wire.late
        for channel in list(self._channels):
            skipped += await channel._restore(core, self._late, error)
        if core.reason is not None:
            raise copy_of(core.reason)
        self._reviving = False
        self._attach(core)
        self._await_late(core)
        self._emit(e.Recovered(skipped))
        if core.blocked is not None:
            self._blocking_changed(core.blocked)
        self._changed()

    def _await_late(self, core: AsyncCore) -> None:
        if self._late and self._awaiting is not core:
            self._awaiting = core
            self._spawn(self._put_back_late(core))

    async def _put_back_late(self, core: AsyncCore) -> None:
        """Try again for the queues that were not to be had while the broker buried the dead connection."""
        assert self._recovery is not None  # nothing is put back without
        attempt = 0
        try:
            while self._late and core.reason is None:
                attempt += 1
                await asyncio.sleep(self._recovery.backoff.delay(attempt))
                tried = set(self._late)
                replay = Replay(core, self._topology)
                await replay.run(tried)
                self._late |= replay.late
                for queue in sorted(tried - replay.late.keys()):
                    await self._resume(queue, replay.skipped)
        except errors.HarebellError as error:
            if core.reason is None:
                logger.error("giving up on the queues %s: %s", ", ".join(sorted(self._late)), error)
                self._late.clear()
                self._changed()
        finally:
            if self._awaiting is core:
                self._awaiting = None

    async def _resume(self, queue: str, skipped: list[e.Skipped]) -> None:
        """The queue is there again: put its subscriptions back, then let the calls go on that wait for it."""
        gone_again: Late = {}
        for channel in list(self._channels):
            await channel._resume(queue, gone_again)
        self._late.pop(queue, None)
        if queue not in gone_again:
            for channel in list(self._channels):  # one that was itself being restored has left it out
                await channel._resume(queue, gone_again)
        self._late |= gone_again
        if queue not in gone_again:
            self._emit(e.QueueRecovered(queue, skipped))
        self._changed()

    def _end(self, reason: errors.HarebellError) -> None:
        """Closed for good."""
        if self._ended is not None:
            return
        self._ended = reason
        self._reviving = False
        try:
            current = asyncio.current_task()
        except RuntimeError:  # called by the loop itself
            current = None
        for task in self._tasks:
            if task is not current:
                task.cancel()
        for channel in list(self._channels):
            channel._end(reason)
        self._emit(e.Closed(reason))
        self._tell_closed(reason)
        if not self._over.done():
            self._over.set_result(None)
        self._changed()

    def _blocking_changed(self, reason: str | None) -> None:
        self._emit(e.Unblocked() if reason is None else e.Blocked(reason))

    # -- what its channels need --------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake of ours. Nobody else would notice, and every call would wait for its deadline.
            logger.critical("recovery failed", exc_info=error)
            self._end(errors.ConnectionLost(f"recovery failed: {error!r}"))
            self._core.abort()

    def _emit(self, event: e.Event) -> None:
        self._tell(event)

    def _put(self, event: e.Event) -> None:
        for reader in list(self._readers):
            reader.put(event)

    def _changed(self) -> None:
        """Parked calls look again."""
        parked, self._parked_calls = self._parked_calls, {}
        for waiter in parked:
            if not waiter.done():
                waiter.set_result(None)

    def _parks(self) -> bool:
        return self._ended is None and self._recovery is not None and self._recovery.calls == "park"

    async def _usable(self, what: str, deadline: float, seconds: float) -> None:
        """Wait until the connection is open. ChannelClosed, ConnectionLost (calls="fail"), DeadlineExceeded."""
        while self._ended is not None or self._reviving or self._core.reason is not None:
            if self._ended is not None:
                peer = self._core.parameters.peer
                raise errors.ChannelClosed(f"the connection to {peer} is closed: {self._ended}") from self._ended
            await self._park(what, deadline, seconds)

    async def _park(self, what: str, deadline: float, seconds: float, queue: str = "") -> None:
        """Wait until something has changed: for a connection, or for a queue that is late."""
        if not self._parks():
            raise errors.ConnectionLost(f"{what}: reconnecting to {self._dialer.peers}: {self._last_error}")
        # No asyncio.timeout: a thread may be the one who waits, and has no task.
        waiter: asyncio.Future[object] = self._loop.create_future()
        self._parked_calls[waiter] = None
        timer = self._loop.call_at(deadline, _expire, waiter)
        try:
            if await waiter is EXPIRED:
                missing, error = f"no connection to {self._dialer.peers}", self._last_error
                if queue in self._late:
                    missing, error = f"queue {queue!r} is not back", self._late[queue]
                raise errors.DeadlineExceeded(f"{what}: {missing} within {seconds:g} s: {error}") from error
        finally:
            timer.cancel()
            self._parked_calls.pop(waiter, None)


def _expire(waiter: asyncio.Future[object]) -> None:
    if not waiter.done():
        waiter.set_result(EXPIRED)
