"""The embeddable broker: a node, its listener, and their life.

    async with Broker() as broker:
        connection = await warren.connect(broker.url)
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from warren.broker.definitions import export_definitions, import_definitions
from warren.broker.limits import set_user_limits
from warren.broker.net.transport import SocketTransport
from warren.broker.node import Node
from warren.broker.parameters import Component
from warren.broker.store.folder import hold_folder
from warren.broker.vhost import VirtualHost
from warren.errors import InvalidArgument, NotFound, NotImplemented as NotImplemented540, WarrenError
from warren.routing import definitions as records
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
    definitions   a RabbitMQ definitions file, or the object in it: applied by `start`, before anybody can connect; see
                  `import_definitions`, whose errors `start` then raises too
    components    what acts on parameters, by the name of their component: {"shovel": warren.bridge.Shovels()}

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
        definitions: str | Path | Mapping[str, object] | None = None,
        components: Mapping[str, Component] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._data = data
        self._sync = sync
        self._definitions = definitions
        self._components = dict(components or {})
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
            return import_definitions(self.node, records.parse_definitions(source, vhost=vhost), vhost)
        try:
            definitions = records.parse_definitions(Path(source).read_bytes(), vhost=vhost)
            return import_definitions(self.node, definitions, vhost)
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

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host and all that is in it; its clients get 320 CONNECTION_FORCED. Raises NotFound."""
        self.node.delete_vhost(name)

    def set_vhost_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit a virtual host: "max-connections", "max-queues". They take the place of those it has.

        0 refuses all, a number below 0 or none is no limit. What is there already stays. Raises InvalidArgument and
        NotFound.
        """
        self.node.parameters.set_limits(name, limits)

    def set_user_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit a user, over all virtual hosts: "max-connections", "max-channels". Limits not named stay.

        0 refuses all, a number below 0 is no limit. What is there already stays. Raises InvalidArgument, NotFound.
        """
        set_user_limits(self.node.users, name, limits)

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
            self._temporary = tempfile.TemporaryDirectory(prefix="warren-")
        folder = Path(self._temporary.name if self._temporary else self._data or "")
        loop = asyncio.get_running_loop()
        try:
            self._lock = hold_folder(folder)
            node = self._node = Node(folder, loop.call_soon_threadsafe, sync=self._sync, components=self._components)
            node.rearm = self._rearm
            if self._definitions is not None:
                self.import_definitions(self._definitions)
            if self.port is not None:
                self._server = await loop.create_server(
                    lambda: SocketTransport(node, self._made, self._lost), self.host, self.port, backlog=BACKLOG
                )
                self.port = self._server.sockets[0].getsockname()[1]
        except (OSError, WarrenError):
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
