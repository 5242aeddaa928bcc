"""The embeddable broker: a node, its listener, and their life.

    async with Broker() as broker:
        connection = await warren.connect(broker.url)
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from warren.broker.decorators import DecoratorFactory
from warren.broker.net.transport import SocketTransport
from warren.broker.node import Node
from warren.broker.statistics import statistics
from warren.broker.store.folder import hold_folder
from warren.broker.vhost import VirtualHost
from warren.errors import NotFound
from warren.routing.policies import ApplyTo, Policy

__all__ = ["Broker"]

GOODBYE_SECONDS: Final = 3.0  # for clients to answer connection.close when the broker stops
BACKLOG: Final = 1024


class Broker:
    """An AMQP 0-9-1 broker in this process.

    host   address to listen on; the default takes connections of this machine only
    port   TCP port; 0 takes a free one, which `port` and `url` name once it has started; None listens on none, and
           `open_socket` is the only way in
    data   folder of what is kept on disk (stream queues); None: a temporary one that goes with the broker
    sync   False: publisher confirms do not wait until the disk has the message
    events True: tell on the exchange amq.rabbitmq.event what happens (queues, connections, policies, ...)

    One user, guest with password guest, who may connect from this machine. Raises OSError when the address is taken or
    the data folder cannot be used, BlockingIOError when another broker holds it.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int | None = 0,
        *,
        data: str | Path | None = None,
        sync: bool = True,
        events: bool = False,
    ) -> None:
        self.host = host
        self.port = port
        self._data = data
        self._sync = sync
        self._events = events
        self._decorators: list[DecoratorFactory] = []
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock: TextIO | None = None
        self._node: Node | None = None
        self._server: asyncio.Server | None = None
        self._transports: set[SocketTransport] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._armed_for: int | None = None
        self._idle = asyncio.Event()  # set when the last transport has gone

    @property
    def url(self) -> str:
        """The URL that clients on this machine connect to. RuntimeError when it listens on no port."""
        if self.port is None:
            raise RuntimeError("this broker listens on no port: connect with sock=await broker.open_socket()")
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"amqp://guest:guest@{host}:{self.port}/"

    @property
    def node(self) -> Node:
        """The broker behind the listener. RuntimeError before `start`."""
        if self._node is None:
            raise RuntimeError("the broker is not started: use `async with Broker()` or await start()")
        return self._node

    def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, object],
        *,
        vhost: str = "/",
        apply_to: ApplyTo = "all",
        priority: float = 0,
        operator: bool = False,
    ) -> None:
        """Put a policy (or an operator policy) in force, as `rabbitmqctl set_policy` does.

        InvalidArgument when it is not valid, NotImplemented for settings that this broker does not have yet, NotFound
        for a vhost that is missing.
        """
        policy = Policy(vhost, name, pattern, dict(definition), apply_to, priority)
        self._vhost(vhost).policies.set(policy, operator=operator)

    def clear_policy(self, name: str, *, vhost: str = "/", operator: bool = False) -> bool:
        """Take a policy out of force; whether there was one of that name."""
        return self._vhost(vhost).policies.clear(name, operator=operator)

    def add_decorator(self, factory: DecoratorFactory) -> None:
        """Let `factory` decorate every queue: those that are there, and those to come.

        It is called with each queue and returns a `warren.broker.decorators.QueueDecorator`, or None for a queue that
        is none of its business. May be called before `start`.
        """
        self._decorators.append(factory)
        if self._node is not None:
            self._node.add_decorator(factory)

    def statistics(self) -> dict[str, Any]:
        """What the broker counts, with RabbitMQ's names, as plain dictionaries, lists, strings and integers.

        node             its name
        alarms           resources that it is low on
        message_stats    totals of all channels since the start: publish, confirm, return_unroutable, drop_unroutable,
                         deliver, deliver_no_ack, get, get_no_ack, deliver_get, get_empty, redeliver, ack
        churn            connection_created, connection_closed, channel_..., queue_declared, _created, _deleted
        object_totals    connections, channels, consumers, exchanges, queues
        queue_totals     messages, messages_ready, messages_unacknowledged
        vhosts           by name: tracing, message_stats, and by name
                         exchanges: type, message_stats (publish_in, publish_out)
                         queues: type, messages, messages_ready, messages_unacknowledged, consumers, message_stats,
                         and dropped: messages by reason (expired, maxlen, rejected, delivery_limit, discarded, refused)
        connections      name, user, vhost, state (running, flow, blocked, ...), recv_oct, recv_cnt, send_oct, send_cnt,
                         and channels: number, confirm, transactional, consumer_count, messages_unacknowledged,
                         messages_unconfirmed, messages_uncommitted, message_stats

        It looks at every unacknowledged message: ask every few seconds, not every few milliseconds.
        """
        return statistics(self.node)

    def _vhost(self, name: str) -> VirtualHost:
        vhost = self.node.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        return vhost

    async def start(self) -> Self:
        """Recover the store and listen."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="warren-")
        folder = Path(self._temporary.name if self._temporary else self._data or "")
        loop = asyncio.get_running_loop()
        try:
            self._lock = hold_folder(folder)
            node = self._node = Node(folder, loop.call_soon_threadsafe, sync=self._sync, events=self._events)
            for factory in self._decorators:
                node.add_decorator(factory)
            node.rearm = self._rearm
            if self.port is not None:
                self._server = await loop.create_server(
                    lambda: SocketTransport(node, self._made, self._lost), self.host, self.port, backlog=BACKLOG
                )
                self.port = self._server.sockets[0].getsockname()[1]
        except OSError:
            await self.stop()
            raise
        return self

    async def open_socket(self) -> socket.socket:
        """A socket connected to this broker without a port, for `warren.connect(sock=await broker.open_socket())`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        node = self.node
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: SocketTransport(node, self._made, self._lost), ours
        )
        return theirs

    async def stop(self) -> None:
        """Close the connections with 320 CONNECTION_FORCED, sync the store, and let go of everything."""
        if self._server is not None:
            self._server.close()
        if self._node is not None:
            self._node.stop()
            if not await self._all_gone(GOODBYE_SECONDS):
                for transport in tuple(self._transports):
                    transport.abort()
                await self._all_gone(GOODBYE_SECONDS)
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._armed_for = None
        self._server = self._node = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _rearm(self) -> None:
        """Have the loop call when the node's next deadline comes."""
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

    def _made(self, transport: SocketTransport) -> None:
        self._transports.add(transport)

    def _lost(self, transport: SocketTransport) -> None:
        self._transports.discard(transport)
        if not self._transports:
            self._idle.set()

    async def _all_gone(self, seconds: float) -> bool:
        self._idle.clear()
        if not self._transports:
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
