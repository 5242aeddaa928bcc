"""The embeddable broker: a node, its listener, and their life.

    async with Broker() as broker:
        connection = await harebell.connect(broker.url)

The broker listens from the beginning of the block to its end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from harebell.broker.auth.administration import UserAdministration
from harebell.broker.net.descriptors import last_for_connections
from harebell.broker.net.tls import Tls
from harebell.broker.net.transport import SocketTransport
from harebell.broker.node import DEFAULT_LIMITS, Node
from harebell.broker.operations.alarms import Machine, Watermarks
from harebell.broker.operations.definitions import export_definitions, import_definitions
from harebell.broker.operations.limits import set_user_limits
from harebell.broker.operations.parameters import Component
from harebell.broker.operations.statistics import statistics
from harebell.broker.queues.decorators import DecoratorFactory
from harebell.broker.store.data_folder import LastStop, hold_folder, mark_recovered, mark_running, mark_stopped
from harebell.broker.vhost import VirtualHost
from harebell.config import DEFAULT_MECHANISMS, Limits
from harebell.errors import HarebellError, InvalidArgument, NotFound, NotImplemented as NotImplemented540
from harebell.protocol.v091 import FieldValue
from harebell.routing import definitions as records
from harebell.routing.policies import ApplyTo, Policy

__all__ = ["Broker"]

# When the broker stops, under 5 s together: for the disk to have what was published, for clients to answer
# connection.close, and for their sockets to go when they did not.
DRAIN_SECONDS: Final = 2.0
GOODBYE_SECONDS: Final = 1.5
ABORT_SECONDS: Final = 1.0
BACKLOG: Final = 1024

log = logging.getLogger("harebell.broker")


class Broker(UserAdministration):
    """An AMQP 0-9-1 broker in this process.

    host            address to listen on; the default takes connections of this machine only
    port            TCP port; 0 takes a free one, which `port` and `url` name once it has started; None listens on
                    none, and `open_socket` and TLS are the only ways in
    data            folder of what is kept on disk (what is declared, set and added, and stream queues with their
                    messages); None: a temporary one that goes with the broker
    sync            False: neither publisher confirms nor declarations wait until the disk has what they are about
    tls             listen for amqps as well, with this certificate
    tls_port        TCP port for that; 0 takes a free one, which `tls_port` and `tls_url` name
    mechanisms      SASL mechanisms to offer, of PLAIN, AMQPLAIN, SCRAM-SHA-256, EXTERNAL (to clients with a
                    certificate) and ANONYMOUS; all but the last when left out
    anonymous_user  who ANONYMOUS logs in, without a password
    definitions     a RabbitMQ definitions file, or the object in it: applied by `start`, before anybody can connect;
                    see `import_definitions`, whose errors `start` then raises too
    limits          what clients may use, and when publishers are blocked; `set_limits` changes them
    events          True: tell on the exchange amq.rabbitmq.event what happens (queues, connections, policies, ...)
    components      what acts on parameters, by the name of their component: {"shovel": harebell.bridge.Shovels()}

    One user at first, guest with password guest, who may connect from this machine. Raises OSError when the address is
    taken or the data folder cannot be used, BlockingIOError when another broker holds it, InvalidArgument for TLS files
    that cannot be used and for an unknown mechanism.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
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
    ) -> None:
        self.host = host
        self.port = port
        self.tls_port = tls_port
        self.tls = tls
        self._tls_servers: list[asyncio.Server] = []
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
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock: TextIO | None = None
        self._node: Node | None = None
        self._server: asyncio.Server | None = None
        self._transports: set[SocketTransport] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._armed_for: int | None = None
        self._idle = asyncio.Event()  # set when the last transport has gone
        self._hurried = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL that clients on this machine connect to. RuntimeError when it listens on no port."""
        if self.port is None:
            raise RuntimeError("this broker listens on no port: connect with sock=await broker.open_socket()")
        return f"amqp://guest:guest@{self._url_host}:{self.port}/"

    @property
    def tls_url(self) -> str:
        """The same over TLS. RuntimeError when it speaks none."""
        if self.tls is None:
            raise RuntimeError("this broker speaks no TLS: give it tls=Tls(certificate, key)")
        return f"amqps://guest:guest@{self._url_host}:{self.tls_port}/"

    @property
    def _url_host(self) -> str:
        return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)

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
        self.node.settle()

    def clear_policy(self, name: str, *, vhost: str = "/", operator: bool = False) -> bool:
        """Take a policy out of force; whether there was one of that name."""
        there = self._vhost(vhost).policies.clear(name, operator=operator)
        self.node.settle()
        return there

    def import_definitions(
        self, source: str | Path | Mapping[str, object], *, vhost: str | None = None
    ) -> tuple[str, ...]:
        """Apply a RabbitMQ definitions file (its path, or the object in it); what it asks for in vain, as texts.

        All of it or, when something of it cannot be, nothing. Nothing is deleted; queues and exchanges that exist stay
        as they are. With a `vhost`, the exchanges, queues, bindings, policies and parameters of the file go into that
        virtual host, and nothing else is looked at.

        Raises OSError when the file cannot be read, InvalidArgument for what is wrong in it, NotImplemented for
        settings that this broker does not have, NotFound when there is no such `vhost`.
        """
        if isinstance(source, Mapping):
            remarks = import_definitions(self.node, records.parse_definitions(source, vhost=vhost), vhost)
            self.node.settle()
            return remarks
        try:
            definitions = records.parse_definitions(Path(source).read_bytes(), vhost=vhost)
            remarks = import_definitions(self.node, definitions, vhost)
            self.node.settle()
            return remarks
        except InvalidArgument as error:
            raise InvalidArgument(f"definitions file {source}: {error}") from None
        except NotImplemented540 as error:
            raise NotImplemented540(f"definitions file {source}: {error.detail}") from None

    def export_definitions(self, *, vhost: str | None = None) -> dict[str, object]:
        """What this broker is made of, as RabbitMQ's definitions file has it: an object for `json.dumps`.

        Virtual hosts, users with the hashes of their passwords, permissions, parameters, policies, queues that are not
        exclusive, exchanges and bindings, without messages. With a `vhost`, that one's part alone. Raises NotFound.
        """
        return records.emit_definitions(export_definitions(self.node, vhost), vhost=vhost)

    def add_vhost(
        self,
        name: str,
        *,
        description: str = "",
        tags: Iterable[str] = (),
        default_queue_type: str | None = None,
        user: str | None = "guest",
    ) -> None:
        """Make a virtual host, or describe anew the one that is there.

        default_queue_type   "classic", "quorum" or "stream": what a declaration without x-queue-type makes, where the
                             queue is durable, not exclusive and not auto-deleted (RabbitMQ's rule)
        user                 who gets all permissions in a new one; None: nobody

        Raises InvalidArgument for another queue type, NotFound for an unknown user.
        """
        node, new = self.node, name not in self.node.vhosts
        if user is not None and user not in node.users.users:
            raise NotFound(f"no user '{user}'")
        described = records.VirtualHost(name) if new else node.vhosts[name].definition
        node.add_vhost(
            replace(
                described,
                description=description,
                tags=tuple(tags),
                default_queue_type=default_queue_type,
                metadata=None,
            )
        )
        if new and user is not None:
            node.users.set_permission(records.Permission(name, user, ".*", ".*", ".*"))
        node.settle()

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host and all that is in it; its clients get 320 CONNECTION_FORCED. Raises NotFound."""
        self.node.delete_vhost(name)
        self.node.settle()

    def set_vhost_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit a virtual host: "max-connections", "max-queues". They take the place of those it has.

        0 refuses all, a number below 0 or none is no limit. What is there already stays. Raises InvalidArgument and
        NotFound.
        """
        self.node.parameters.set_limits(name, limits)
        self.node.settle()

    def set_user_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit a user, over all virtual hosts: "max-connections", "max-channels". Limits not named stay.

        0 refuses all, a number below 0 is no limit. What is there already stays. Raises InvalidArgument, NotFound.
        """
        set_user_limits(self.node.users, name, limits)
        self.node.settle()

    def change_queue(self, name: str, arguments: Mapping[str, FieldValue], *, vhost: str = "/") -> None:
        """Change optional arguments of a queue in place, with everything that is in it.

        `arguments` are those to set, as a declaration takes them; None takes one away. The others stay. Clients must
        declare the queue with its new arguments from then on. All of the change is made or nothing.

        NotFound for a queue or vhost that is missing; PreconditionFailed for what a declaration would refuse, for an
        argument that no queue knows, and for `x-queue-type`, which cannot be changed; AccessRefused for a single active
        consumer while one consumes exclusively.
        """
        self._vhost(vhost).change_queue(name, arguments)
        self.node.settle()

    def revoke_delayed(self, exchange: str, message_id: str, *, vhost: str = "/") -> int:
        """Take back the messages that a delayed exchange holds under this id; how many there were.

        The id is the message's header `x-delay-id`, or else its property message_id. NotFound for an exchange or vhost
        that is missing; PreconditionFailed for an exchange that delays nothing.
        """
        count = self._vhost(vhost).revoke_delayed(exchange, message_id)
        self.node.end_batch()
        return count

    def add_decorator(self, factory: DecoratorFactory) -> None:
        """Let `factory` decorate every queue: those that are there, and those to come.

        It is called with each queue and returns a `harebell.broker.queues.decorators.QueueDecorator`, or None for a
        queue that is none of its business. May be called before `start`.
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
                         exchanges: type, messages_delayed, message_stats (publish_in, publish_out)
                         queues: type, messages, messages_ready, messages_unacknowledged,
                         messages_delayed (that came back), messages_dlx (that died), consumers, message_stats,
                         and dropped: messages by reason (expired, maxlen, rejected, delivery_limit, discarded, refused)
        connections      name, user, vhost, state (running, flow, blocked, ...), recv_oct, recv_cnt, send_oct, send_cnt,
                         and channels: number, confirm, transactional, consumer_count, messages_unacknowledged,
                         messages_unconfirmed, messages_uncommitted, message_stats

        It looks at every unacknowledged message: ask every few seconds, not every few milliseconds.
        """
        return statistics(self.node)

    def set_parameter(self, component: str, name: str, value: object, *, vhost: str = "/") -> None:
        """Set a parameter, as `rabbitmqctl set_parameter` does; `value` is what its JSON would be.

        What acts on the component does so at once; without it the value is kept and exported. Raises InvalidArgument
        for a value that the component refuses, NotFound for a vhost that is missing.
        """
        self.node.parameters.set(records.Parameter(vhost, component, name, value))

    def clear_parameter(self, component: str, name: str, *, vhost: str = "/") -> bool:
        """Forget a parameter; whether there was one."""
        return self.node.parameters.clear(vhost, component, name)

    def parameter_status(self, component: str) -> list[dict[str, object]]:
        """What became of the component's parameters: of "shovel", state, counts and last error of each shovel.

        Raises NotFound when nothing here acts on that component.
        """
        actor = self.node.parameters.components.get(component)
        if actor is None:
            raise NotFound(f"nothing here acts on parameters of component '{component}'")
        return actor.status()

    def _vhost(self, name: str) -> VirtualHost:
        vhost = self.node.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        return vhost

    async def start(self) -> Self:
        """Recover the store, apply the definitions, and listen."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="harebell-")
        folder = Path(self._temporary.name if self._temporary else self._data or "")
        loop = asyncio.get_running_loop()
        try:
            self._lock = hold_folder(folder)
            temporary = self._temporary is not None
            node = self._node = Node(
                folder,
                loop.call_soon_threadsafe,
                temporary=temporary,
                last_stop=LastStop.CLEAN if temporary else mark_running(folder),
                sync=self._sync,
                events=self._events,
                limits=self._limits,
                components=self._components,
            )
            if not temporary and node.last_stop is LastStop.POWER_CUT:
                mark_recovered(folder)
            self._last_descriptor = last_for_connections()
            self._hurried.clear()
            for factory in self._decorators:
                node.add_decorator(factory)
            node.rearm = self._rearm
            node.logins.enable(self._mechanisms)
            node.logins.anonymous_user = self._anonymous_user
            if self._definitions is not None:
                self.import_definitions(self._definitions)
            Watermarks(node, Machine(folder)).start()
            self._rearm()
            if self.port is not None:
                self._server = await loop.create_server(
                    lambda: SocketTransport(node, self._made, self._lost), self.host, self.port, backlog=BACKLOG
                )
                self.port = self._server.sockets[0].getsockname()[1]
            if self.tls is not None:
                server = await loop.create_server(
                    lambda: SocketTransport(node, self._made, self._lost, self.tls), self.host, self.tls_port,
                    backlog=BACKLOG, ssl=self.tls.context(), ssl_handshake_timeout=node.limits.handshake_timeout,
                )  # fmt: skip
                self._tls_servers = [server]
                self.tls_port = server.sockets[0].getsockname()[1]
        except (OSError, HarebellError):
            await self.stop()
            raise
        return self

    async def reload_tls(self) -> None:
        """Read certificate, key and authorities again, for connections to come; open ones keep what they have.

        InvalidArgument when they cannot be used: then nothing has changed. RuntimeError without TLS.
        """
        tls, node, old = self.tls, self.node, self._tls_servers
        if tls is None:
            raise RuntimeError("this broker speaks no TLS: give it tls=Tls(certificate, key)")
        context = tls.context()
        self._tls_servers = [
            await asyncio.get_running_loop().create_server(
                lambda: SocketTransport(node, self._made, self._lost, tls),
                sock=socket.fromfd(listening.fileno(), listening.family, listening.type),
                backlog=BACKLOG, ssl=context, ssl_handshake_timeout=node.limits.handshake_timeout,
            )
            for server in old
            for listening in server.sockets  # the same sockets, so that nobody is turned away between
        ]  # fmt: skip
        for server in old:
            server.close()

    async def open_socket(self) -> socket.socket:
        """A socket connected to this broker without a port, for `harebell.connect(sock=await broker.open_socket())`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        node = self.node
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: SocketTransport(node, self._made, self._lost), ours
        )
        return theirs

    async def stop(self) -> None:
        """Let go of everything, in under five seconds whatever clients do, when the disk is not slower.

        Nobody is accepted any more and nothing more is read; confirms of what was published go out when the disk has
        it; connections are closed with 320 CONNECTION_FORCED; the store is synced and closed.
        """
        if self._server is not None:
            self._server.close()
        for server in self._tls_servers:
            server.close()
        self._tls_servers = []
        if self._node is not None:
            drained = asyncio.Event()
            self._node.drain(drained.set)
            await self._wait(drained, DRAIN_SECONDS)
            self._node.stop()
            if not await self._all_gone(GOODBYE_SECONDS):
                for transport in tuple(self._transports):
                    transport.abort()
                await self._all_gone(ABORT_SECONDS)
            if self._data is not None and self._node.failed is None:
                mark_stopped(Path(self._data))
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

    def hurry(self) -> None:
        """Have `stop` wait for no client any more; what is confirmed is safe all the same."""
        self._hurried.set()

    def set_limits(self, limits: Limits) -> None:
        """Other limits from now on. What was agreed with an open connection stays: sizes, channels, heartbeats."""
        self._limits = limits
        if self._node is not None:
            self._node.set_limits(limits)

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

    def _made(self, transport: SocketTransport, descriptor: int) -> bool:
        """Whether a new connection, whose socket has this number, may stay."""
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
        """Whether it happens in time, and before somebody is in a hurry."""
        waits = [asyncio.ensure_future(each.wait()) for each in (event, self._hurried)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return event.is_set()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
