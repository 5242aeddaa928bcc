"""The part of a handshake that its dialect does not change: the client's end of the socket, and the virtual host."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from harebell.broker.auth import Access, Login
from harebell.broker.clients import Connection
from harebell.broker.node import Node
from harebell.broker.rules.limits import check_connection
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError, InternalError, NotAllowed

__all__ = ["BaseHandshake", "OpeningConnection", "Peer"]


class Peer(Protocol):
    """The client's end of the socket. `certificate_user` is the name in its verified TLS certificate."""

    peer: str
    peer_host: str
    certificate_user: str | None


class OpeningConnection(Connection, Protocol):
    """The connection whose handshake this is."""

    node: Node

    @property
    def is_opening(self) -> bool: ...
    def enter(self, vhost: VirtualHost, access: Access) -> None:
        """End the handshake."""

    def read_on(self) -> None:
        """Process what the client sent ahead of the broker's last answer."""


C = TypeVar("C", bound=OpeningConnection)


class BaseHandshake(Generic[C]):
    """The handshake of one connection, but for what its dialect says."""

    def __init__(self, connection: C, peer: Peer) -> None:
        self.connection, self._peer = connection, peer
        self.node = connection.node
        self.login: Login | None = None

    @property
    def peer(self) -> str:
        return self._peer.peer

    @property
    def peer_host(self) -> str:
        return self._peer.peer_host

    @property
    def certificate_user(self) -> str | None:
        return self._peer.certificate_user

    def enter(self, name: str, unknown: type[AmqpError]) -> None:
        """Enter the virtual host. Raises NotAllowed, InternalError, or `unknown` where there is none of that name."""
        connection, node = self.connection, self.node
        vhost = node.vhosts.get(name)
        if vhost is None:
            raise unknown(f"vhost {name} not found")
        check_connection(node, connection, vhost)
        if node.batch.failed is not None:
            raise InternalError(f"the broker's store failed: {node.batch.failed.strerror}")
        if (name, connection.user) not in node.users.permissions:
            raise NotAllowed(f"access to vhost '{name}' refused for user '{connection.user}'")
        connection.enter(vhost, Access(node.users, connection.user, name, vhost.router))
