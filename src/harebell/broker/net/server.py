"""The embeddable broker: a node, its listeners, their start and stop.

    async with Broker() as broker:
        connection = await harebell.connect(broker.url)

The broker listens from the beginning of the block to its end.

It is its process's. A forked child has nothing of it: there its descriptors are closed, so that a child which lives on
holds neither the folder nor the port, its finalizers do nothing, and its methods raise, but for `stop`, which returns.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import socket
import ssl
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from harebell.broker.net.administration import Administration
from harebell.broker.net.descriptors import last_for_connections
from harebell.broker.net.listening import close_listeners, dialled_host, open_listeners, serve, shown_host
from harebell.broker.net.tls import Tls
from harebell.broker.net.tls_stream import TlsStream
from harebell.broker.net.transport import SocketTransport
from harebell.broker.node import DEFAULT_LIMITS, Node
from harebell.broker.operations.alarms import Machine, Watermarks
from harebell.broker.operations.startup import start_node
from harebell.broker.plugins import Plugin, Plugins
from harebell.broker.queues.base import DecoratorFactory
from harebell.broker.rules.parameters import Component
from harebell.broker.store.data_folder import (
    LastStop,
    hold_folder,
    last_stop,
    mark_recovered,
    mark_running,
    mark_stopped,
)
from harebell.broker.v010.sessions import Sessions
from harebell.config import DEFAULT_MECHANISMS, Limits
from harebell.errors import InvalidArgument, LocalProtocolError

__all__ = ["Broker"]

# Limits of the phases of a stop, under 5 s together: the disk syncs what was published, clients answer
# connection.close, and sockets of clients that did not answer are closed.
DRAIN_SECONDS: Final = 2.0
CLOSE_OK_SECONDS: Final = 1.5
ABORT_SECONDS: Final = 1.0

log = logging.getLogger("harebell.broker")


class Broker(Administration):
    """A broker for AMQP 0-9-1 and AMQP 0-10 in this process.

    host            address or name to listen on, or several; "localhost" is 127.0.0.1 and ::1, so that only this
                    machine can connect, and "*" all addresses; both take what the machine has of IPv4 and IPv6
    port            TCP port, on all of these; 0 takes a free one, which `port` and `url` name once it has started;
                    None: no TCP port, clients connect by `open_socket` or TLS
    data            folder of the durable state (declarations, settings, users, queues and streams with their
                    messages); None: a temporary one that is deleted when the broker stops
    sync            False: neither publisher confirms nor declarations wait for a sync of the disk
    tls             listen for amqps as well, with this certificate
    tls_port        TCP port for that; 0 takes a free one, which `tls_port` and `tls_url` name
    mechanisms      SASL mechanisms to offer, of PLAIN, AMQPLAIN, SCRAM-SHA-256, EXTERNAL (to clients with a
                    certificate) and ANONYMOUS; all but the last when left out
    anonymous_user  the user that ANONYMOUS logs in, without a password
    definitions     a RabbitMQ definitions file, or its object: applied by `start`, before clients can connect;
                    see `import_definitions`, whose errors `start` then raises too
    limits          the resources of clients, and when publishers are blocked; `set_limits` changes them
    events          True: publish events (queues, connections, policies, ...) to the exchange amq.rabbitmq.event
    components      objects that act on parameters, by component: {"shovel": harebell.bridge.Shovels()}
    plugins         exchange types and services of your own: `harebell.broker.Plugin` objects. A durable exchange of
                    such a type needs the plug-in at each later start: without it `start` raises CatalogError
    on_failed       called once, in the loop's thread, with the OSError when the store has failed: the disk refused a
                    write or a sync. The broker has closed all connections then, and lets none in. See `wait_failed`

    A new broker has one user, guest with password guest, who may connect from this machine. Raises OSError when a
    port is taken on one of the addresses, when the machine has no such address, and when the data folder cannot be
    used; BlockingIOError when another broker uses the folder; InvalidArgument for unusable TLS files, an unknown
    mechanism, and plug-ins with names that they may not have. In a forked child a broker that the parent has started
    raises LocalProtocolError, and `stop` does nothing.
    """

    def __init__(
        self,
        host: str | Sequence[str] = "localhost",
        port: int | None = 0,
        *,
        data: str | Path | None = None,
        sync: bool = True,
        definitions: str | Path | Mapping[str, object] | None = None,
        tls: Tls | None = None,
        tls_port: int = 0,
        mechanisms: Sequence[str] = DEFAULT_MECHANISMS,
        anonymous_user: str = "guest",
        events: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        components: Mapping[str, Component] | None = None,
        plugins: Sequence[Plugin] = (),
        on_failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self.hosts = (host,) if isinstance(host, str) else tuple(host)
        if not self.hosts:
            raise InvalidArgument("no host to listen on was given: port=None opens no port")
        self.port = port
        self.tls_port = tls_port
        self.tls = tls
        self._tls_context: ssl.SSLContext | None = None
        self._dialled = shown_host(dialled_host(self.hosts))
        self._mechanisms = tuple(mechanisms)
        self._anonymous_user = anonymous_user
        self._data = data
        self._sync = sync
        self._definitions = definitions
        self._events = events
        self._limits = limits
        self._last_descriptor = 0
        self._refusing = False
        self._decorators: list[DecoratorFactory] = []
        self._components = dict(components or {})
        self._plugins = Plugins(plugins)
        self._temporary: str | None = None
        self._remove: weakref.finalize[..., Self] | None = None  # that folder, when this object or the process ends
        self._inherited = False  # this process is a child of the one that started it
        self._lock: TextIO | None = None
        self._started = False  # from the beginning of `start` to the end of `stop`
        self._stopping: asyncio.Future[None] | None = None
        self._node: Node | None = None
        self._closed = False  # the node was stopped
        self._sessions: Sessions | None = None
        self._servers: list[tuple[asyncio.Server, bool]] = []  # each with whether it speaks TLS
        self._transports: set[SocketTransport] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._armed_for: int | None = None
        self._idle = asyncio.Event()  # set when the last transport has closed
        self._hurried = asyncio.Event()
        self._on_failed = on_failed
        self._failure: OSError | None = None
        self._failed = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL that clients on this machine connect to. RuntimeError when the broker listens on no port."""
        if self.port is None:
            raise RuntimeError("this broker listens on no port: connect with sock=await broker.open_socket()")
        return f"amqp://guest:guest@{self._dialled}:{self.port}/"

    @property
    def tls_url(self) -> str:
        """The amqps URL that clients on this machine connect to. RuntimeError without TLS."""
        if self.tls is None:
            raise RuntimeError("this broker speaks no TLS: give it tls=Tls(certificate, key)")
        return f"amqps://guest:guest@{self._dialled}:{self.tls_port}/"

    @property
    def listeners(self) -> tuple[tuple[str, str, int, bool], ...]:
        """The addresses that the broker listens on now: RabbitMQ's name of the protocol, address, port, and TLS."""
        self._check_process()
        found = []
        for server, tls in self._servers:
            host, port = server.sockets[0].getsockname()[:2]
            found.append(("amqp/ssl" if tls else "amqp", str(host), int(port), tls))
        return tuple(found)

    @property
    def folder(self) -> Path:
        """The folder of the stored data. RuntimeError before `start` when it is a temporary one."""
        if self._data is not None:
            return Path(self._data)
        if self._temporary is None:
            raise RuntimeError("the broker is not started: its folder is a temporary one")
        return Path(self._temporary)

    @property
    def node(self) -> Node:
        """The node behind the listeners. RuntimeError before `start`."""
        self._check_process()
        if self._node is None:
            raise RuntimeError("the broker is not started: use `async with Broker()` or await start()")
        return self._node

    @property
    def failure(self) -> OSError | None:
        """The error of a store that failed since the last start; None: it works."""
        return self._failure

    async def wait_failed(self) -> OSError:
        """Wait until the store has failed. Returns the error.

        Everything that was confirmed is on disk. `stop` the broker then; `start` recovers it when the disk works again.
        """
        self._check_process()
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    def _check_process(self) -> None:
        if self._inherited:
            raise LocalProtocolError(
                "this broker was started before a fork, in the parent process, which runs it: start another Broker in "
                "this process, or connect to its url"
            )

    def _forget_parent(self) -> None:
        """This process is a child of the one that started the broker: nothing done here may reach what the parent has.

        The descriptors are closed by putting others in their place: objects that are collected later close these, and
        asyncio's selector, which the parent has too, is not told. A block that the child leaves may let the loop run:
        what clients send then, and what is under way, changes nothing.
        """
        self._inherited = True
        if self._remove is not None:
            self._remove.detach()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._node is not None:
            self._node.batch.failed = OSError(errno.EPERM, "the store is the parent process's")  # nothing is written
        found = [listening.fileno() for server, _ in self._servers for listening in server.sockets]
        found += [transport.forget() for transport in self._transports]
        if self._lock is not None:
            found.append(self._lock.fileno())
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in found:
            if descriptor >= 0:
                os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    def _store_failed(self, error: OSError) -> None:
        self._failure = error
        self._failed.set()
        if self._on_failed is not None:
            self._on_failed(error)

    def add_decorator(self, factory: DecoratorFactory) -> None:
        """Let `factory` decorate every queue, those that exist and later ones.

        It is called with each queue and returns a `harebell.broker.QueueDecorator`, or None to leave the queue as it
        is. It may be added before `start`.
        """
        self._check_process()
        self._decorators.append(factory)
        if self._node is not None:
            self._node.add_decorator(factory)

    async def start(self) -> Self:
        """Recover the store, apply the definitions, and listen. Given up or failed, it leaves nothing behind.

        RuntimeError, and nothing changes, when this broker is started already.
        """
        self._check_process()
        if self._started:
            raise RuntimeError("this broker is started: `stop` it before it starts again, or make another Broker")
        self._started = True
        _running.add(self)
        try:
            if self._data is None:
                self._temporary = tempfile.mkdtemp(prefix="harebell-")
                self._remove = weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
            folder = Path(self._temporary or self._data or "")
            self._failure = None
            self._failed.clear()
            loop = asyncio.get_running_loop()
            self._lock = hold_folder(folder)
            temporary = self._temporary is not None
            node = self._node = start_node(
                folder,
                loop.call_soon_threadsafe,
                temporary=temporary,
                last_stop=LastStop.CLEAN if temporary else last_stop(folder),
                before_changes=lambda: None if temporary else mark_running(folder),
                sync=self._sync,
                events=self._events,
                limits=self._limits,
                components=self._components,
                plugins=self._plugins,
            )
            if not temporary and node.last_stop is LastStop.POWER_CUT:
                mark_recovered(folder)
            self._sessions = Sessions(node)
            node.when_failed = self._store_failed
            self._last_descriptor = last_for_connections()
            self._hurried.clear()
            for factory in self._decorators:
                node.add_decorator(factory)
            node.batch.rearm = self._rearm
            node.logins.enable(self._mechanisms)
            node.logins.anonymous_user = self._anonymous_user
            if self._definitions is not None:
                self.import_definitions(self._definitions)
            Watermarks(node, Machine(folder)).start()
            self._rearm()
            if self.port is not None:
                self.port = await self._listen(node, self.port, self._plain)
            if self.tls is not None:
                self._tls_context = self.tls.context()
                self.tls_port = await self._listen(node, self.tls_port, self._encrypted)
        except BaseException:
            await self.stop()
            raise
        return self

    async def reload_tls(self) -> None:
        """Read certificate, key and authorities again, for new connections; open ones stay as they are.

        Raises InvalidArgument when they cannot be used: then nothing has changed. RuntimeError without TLS.
        """
        self._check_process()
        if self.tls is None:
            raise RuntimeError("this broker speaks no TLS: give it tls=Tls(certificate, key)")
        self._tls_context = self.tls.context()

    async def _listen(self, node: Node, port: int, protocol: Callable[[Node], asyncio.Protocol]) -> int:
        """Listen on all addresses. Returns the port."""
        sockets = await open_listeners(self.hosts, port)
        self._dialled = shown_host(dialled_host(self.hosts, sockets[0]))
        bound: int = sockets[0].getsockname()[1]

        def check() -> None:
            if self._node is not node:
                raise RuntimeError("the broker was stopped while it started")

        def made(server: asyncio.Server) -> None:
            self._servers.append((server, protocol == self._encrypted))
            check()

        await serve(sockets, lambda: protocol(node), made)
        check()
        return bound

    def _plain(self, node: Node) -> SocketTransport:
        return SocketTransport(node, self._kept(), self._made, self._lost)

    def _encrypted(self, node: Node) -> TlsStream:
        assert self._tls_context is not None
        return TlsStream(self._tls_context, SocketTransport(node, self._kept(), self._made, self._lost, self.tls))

    def _kept(self) -> Sessions:
        assert self._sessions is not None
        return self._sessions

    async def open_socket(self) -> socket.socket:
        """A socket connected to this broker without a port, for `harebell.connect(sock=await broker.open_socket())`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        node = self.node
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._plain(node), ours)
        return theirs

    async def stop(self) -> None:
        """Stop the broker, in under five seconds whatever clients do, unless the disk is slower.

        It accepts no connection and reads no input any more; confirms go out when the disk has the messages;
        connections are closed with 320 CONNECTION_FORCED; the store is synced and closed.

        When this is cancelled it waits for no client any more, and stops the broker all the same.
        """
        if self._inherited:
            return
        if self._stopping is not None:  # another task stops it
            await asyncio.wait([self._stopping])
            return
        stopping = self._stopping = asyncio.get_running_loop().create_future()
        try:
            await self._say_goodbye()
        finally:
            self._stopping = None
            stopping.set_result(None)
            self._end()

    async def _say_goodbye(self) -> None:
        """What a stop waits for; `_end` does without waiting what is left of it."""
        await close_listeners([server for server, _ in self._servers])
        self._servers = []
        for transport in tuple(self._transports):
            if transport.in_handshake:
                transport.abort()
        if self._node is not None:
            drained = asyncio.Event()
            self._node.drain(drained.set)
            await self._wait(drained, DRAIN_SECONDS)
            self._close_node()
            if not await self._all_gone(CLOSE_OK_SECONDS):
                for transport in tuple(self._transports):
                    transport.abort()
                await self._all_gone(ABORT_SECONDS)

    def _close_node(self) -> None:
        """Close the connections, sync and close the store: once."""
        node = self._node
        if node is None or self._closed:
            return
        self._closed = True
        sessions, self._sessions = self._sessions, None
        try:
            if sessions is not None:
                sessions.close()
        finally:
            node.stop()
        if self._data is not None and node.batch.failed is None:
            mark_stopped(Path(self._data))

    def _end(self) -> None:
        """Let go of all that a start took."""
        try:
            for server, _ in self._servers:
                server.close()
            self._servers = []
            self._close_node()
            for transport in tuple(self._transports):
                transport.abort()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._armed_for = None
            self._node = None
            self._closed = self._started = False
            if self._lock is not None:
                self._lock.close()
                self._lock = None
            if self._remove is not None:
                self._remove()
            self._temporary = self._remove = None
            _running.discard(self)

    def hurry(self) -> None:
        """Make `stop` wait for no client any more; confirmed messages are safe all the same."""
        self._hurried.set()

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits. Sizes, channels and heartbeats that an open connection has negotiated stay."""
        self._check_process()
        self._limits = limits
        if self._node is not None:
            self._node.set_limits(limits)

    def _rearm(self) -> None:
        """Set the loop's timer to the node's next deadline."""
        node = self.node
        deadline = node.timers.next_deadline
        if deadline == self._armed_for:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._armed_for = deadline
        if deadline is not None:
            delay = (deadline - node.timers.now()) / 1000
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, delay), self._ring)

    def _ring(self) -> None:
        self._alarm = self._armed_for = None
        self.node.run_timers()

    def _made(self, transport: SocketTransport, descriptor: int) -> bool:
        """Whether a new connection, whose socket has this descriptor, may stay."""
        self._transports.add(transport)
        full = descriptor > self._last_descriptor
        if full and not self._refusing:
            log.error(
                "connections are refused: file descriptors run out (this one is %d, those above %d are kept for the "
                "store); allow more with `ulimit -n` or LimitNOFILE=", descriptor, self._last_descriptor,
            )  # fmt: skip
        self._refusing = full
        return not full

    def _lost(self, transport: SocketTransport) -> None:
        self._transports.discard(transport)
        if not self._transports:
            self._idle.set()

    async def _all_gone(self, seconds: float) -> bool:
        self._idle.clear()
        return not self._transports or await self._wait(self._idle, seconds)

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Whether the event happens within the time, and before `hurry` is called."""
        waits = [asyncio.ensure_future(each.wait()) for each in (event, self._hurried)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return event.is_set()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


_running: Final[weakref.WeakSet[Broker]] = weakref.WeakSet()


def _forked() -> None:
    inherited = list(_running)
    _running.clear()
    for broker in inherited:
        broker._forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
