"""The user of a request: its tags, and what they let it see.

    administrator   everything
    monitoring      all virtual hosts, connections and nodes
    policymaker     policies and parameters of its virtual hosts
    management      its virtual hosts (those that it has permissions in) and its own connections

Each tag includes `management`; `administrator` includes all. A user without any of them may use AMQP, not this API.
"""

from __future__ import annotations

from typing import Final

from harebell.broker.auth import Access
from harebell.broker.node import Node
from harebell.broker.vhost import VirtualHost

__all__ = ["TAGS", "User"]

TAGS: Final = ("administrator", "monitoring", "policymaker", "management")


class User:
    """A user that has logged in. `session` is that of a console; None: it sent its password with the request."""

    __slots__ = ("_node", "host", "name", "session")

    def __init__(self, node: Node, name: str, host: str, session: str | None = None) -> None:
        self._node = node
        self.name = name
        self.host = host
        self.session = session

    @property
    def tags(self) -> tuple[str, ...]:
        user = self._node.users.users.get(self.name)
        return () if user is None else user.tags

    @property
    def administers(self) -> bool:
        return "administrator" in self.tags

    @property
    def monitors(self) -> bool:
        """Whether it sees all virtual hosts, and the connections of others."""
        tags = self.tags
        return "monitoring" in tags or "administrator" in tags

    @property
    def makes_policies(self) -> bool:
        tags = self.tags
        return "policymaker" in tags or "administrator" in tags

    @property
    def manages(self) -> bool:
        """Whether it may use the API at all."""
        return any(tag in TAGS for tag in self.tags)

    def enters(self, vhost: str) -> bool:
        """Whether it has permissions in the virtual host."""
        return (vhost, self.name) in self._node.users.permissions

    def sees(self, vhost: str) -> bool:
        """Whether its lists have the virtual host."""
        return self.monitors or self.enters(vhost)

    def entered(self) -> list[str]:
        """The names of the virtual hosts that it has permissions in."""
        return [name for name in self._node.vhosts if self.enters(name)]

    def seen(self) -> list[VirtualHost]:
        """The virtual hosts in its lists, by name."""
        vhosts = self._node.vhosts
        return [vhosts[name] for name in sorted(vhosts) if self.sees(name)]

    def access(self, vhost: VirtualHost) -> Access:
        """The checks of its permissions in a virtual host, those of AMQP."""
        return Access(self._node.users, self.name, vhost.name, vhost.router)
