"""Users and permissions as a program manages them: the part of the public Broker that is about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harebell.broker.auth.passwords import SCRYPT
from harebell.broker.auth.users import make_user
from harebell.errors import NotFound
from harebell.routing.definitions import Permission, TopicPermission

if TYPE_CHECKING:
    from harebell.broker.node import Node

__all__ = ["UserAdministration"]


class UserAdministration:
    """Call these in the broker's own thread, once it has started. Changes hold at once, open connections included.

    They are on disk when the call returns. OSError when the disk refuses: the broker has closed its connections then.
    """

    @property
    def node(self) -> Node:
        raise NotImplementedError

    def add_user(
        self, name: str, password: str | None, *, tags: Sequence[str] = (), hashing_algorithm: str = SCRYPT
    ) -> None:
        """Add a user, or give the one of that name this password and these tags. It may do nothing yet.

        password           None: it cannot log in with a password (a user of EXTERNAL, by a certificate)
        tags               "administrator", "monitoring", "policymaker", "management": what it may manage;
                           "impersonator": it may publish with any user-id
        hashing_algorithm  how the password is kept; "rabbit_password_hashing_sha256" for users whose definitions are
                           to go to a RabbitMQ, which does not know scrypt

        Takes some 50 ms with scrypt. InvalidArgument for an empty password or an unknown algorithm.
        """
        self.node.users.put(make_user(name, password, tuple(tags), hashing_algorithm))
        self.node.settle()

    def remove_user(self, name: str) -> bool:
        """Remove the user, its permissions and its connections (320); whether there was one."""
        there = name in self.node.users.users
        self.node.users.remove(name)
        self.node.settle()
        return there

    def set_permissions(
        self, user: str, configure: str = ".*", write: str = ".*", read: str = ".*", *, vhost: str = "/"
    ) -> None:
        """Let the user into the vhost, to do this with what the patterns find: regular expressions for names.

        An empty pattern allows nothing, ".*" everything; the default exchange is "amq.default". NotFound for a user or
        a vhost that is missing, InvalidArgument for a pattern that is none.
        """
        self._check_vhost(vhost)
        self.node.users.set_permission(Permission(vhost, user, configure, write, read))
        self.node.settle()

    def clear_permissions(self, user: str, *, vhost: str = "/") -> None:
        """Let the user into the vhost no more. Connections stay, and everything they ask for is refused."""
        self.node.users.clear_permission(vhost, user)
        self.node.settle()

    def set_topic_permissions(self, user: str, exchange: str, write: str, read: str, *, vhost: str = "/") -> None:
        """Narrow what the user may do at a topic exchange to the routing keys that the patterns find.

        `write` is for publishing, `read` for binding; "{username}" and "{vhost}" stand for the connection's. Errors as
        `set_permissions`.
        """
        self._check_vhost(vhost)
        self.node.users.set_topic_permission(TopicPermission(vhost, user, exchange, write, read))
        self.node.settle()

    def clear_topic_permissions(self, user: str, exchange: str | None = None, *, vhost: str = "/") -> None:
        """For that exchange, or for all of the vhost."""
        self.node.users.clear_topic_permission(vhost, user, exchange)
        self.node.settle()

    def _check_vhost(self, name: str) -> None:
        if name not in self.node.vhosts:
            raise NotFound(f"no vhost '{name}'")
