"""The permissions of one user in one virtual host: each operation of a channel, and the permissions that it needs.

    operation                                         configure   write         read
    ------------------------------------------------  ----------  ------------  -------------
    declare, delete a queue or an exchange            itself
      a new queue with a dead-letter exchange                     the exchange  the queue
      a new exchange with an alternate                            alternate     the exchange
    bind, unbind                                                  destination   source
    publish                                                       the exchange
    consume, get, purge                                                         the queue

RabbitMQ's rules, order and texts (3.10, probed):

- The default exchange has the name amq.default. A name that the server made is checked like any other.
- A passive declaration needs no permission, nor does a consumer of direct replies.
- Permissions are checked before existence, so that a user without permission does not learn what exists.
- At a topic exchange, a user with a topic permission for it also needs that for each routing key to publish with (those
  of CC and BCC too, as from RabbitMQ 4 on), and for each key to bind with. {username} and {vhost} in its pattern are
  replaced by those of the connection, literally: their characters have no meaning in the pattern.

A publisher is checked once for each exchange and key, not for each message; a change of permissions makes publishers
check again. A check raises AccessRefused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from harebell.broker.auth.users import Users, found
from harebell.errors import AccessRefused
from harebell.routing import Destination, Router
from harebell.routing.exchanges.exchange import Exchange
from harebell.routing.naming import check_new_name
from harebell.routing.table_values import Table

__all__ = ["Access"]

Kind = Literal["queue", "exchange"]


class Access:
    """The access checks of one connection. `user` and `vhost` are names."""

    def __init__(self, users: Users, user: str, vhost: str, router: Router) -> None:
        self._users = users
        self._router = router
        self.user = user
        self.vhost = vhost

    @property
    def impersonates(self) -> bool:
        """Whether the user may publish with another user's user-id."""
        return self._users.has_tag(self.user, "impersonator")

    # -- operations ----------------------------------------------------------------------------------------------

    def declare_queue(self, name: str, arguments: Table, *, new: bool, server_named: bool) -> None:
        if new and not server_named:
            check_new_name("queue", name)
        self.configure("queue", name)
        dead_letters = arguments.get("x-dead-letter-exchange")
        if new and isinstance(dead_letters, str):
            self.read("queue", name)
            self.write("exchange", dead_letters)

    def declare_exchange(self, name: str, type: str, arguments: Table) -> None:
        self._router.check_declaration(name, type)
        self.configure("exchange", name)
        alternate = arguments.get("alternate-exchange")
        if not self._router.has_exchange(name) and isinstance(alternate, str):
            check_new_name("exchange", name)
            self.read("exchange", name)
            self.write("exchange", alternate)

    def delete_exchange(self, name: str) -> None:
        self._router.check_deletion(name)
        self.configure("exchange", name)

    def bind(self, source: str, destination: Destination, key: str) -> None:
        """Check a bind or an unbind."""
        self.write(destination.kind, destination.name)
        self._router.check_ends(source, destination)
        self.read("exchange", source)
        if self._router.has_exchange(source):
            self._topic("read", self._router.exchange(source), (key,))

    def publish(self, exchange: str, key: str) -> None:
        """Check a publication. Raises NotFound for an unknown exchange too, and AccessRefused for an internal one."""
        self.write("exchange", exchange)
        self._topic("write", self._router.check_publish(exchange), (key,))

    def publish_copies(self, exchange: str, keys: Sequence[str]) -> None:
        """Check the keys of CC and BCC, at an exchange that `publish` allowed."""
        self._topic("write", self._router.exchange(exchange), keys)

    # -- permissions ---------------------------------------------------------------------------------------------

    def configure(self, kind: Kind, name: str) -> None:
        permission = self._users.permissions.get((self.vhost, self.user))
        self._check(permission.configure if permission is not None else None, kind, name)

    def write(self, kind: Kind, name: str) -> None:
        permission = self._users.permissions.get((self.vhost, self.user))
        self._check(permission.write if permission is not None else None, kind, name)

    def read(self, kind: Kind, name: str) -> None:
        permission = self._users.permissions.get((self.vhost, self.user))
        self._check(permission.read if permission is not None else None, kind, name)

    def _check(self, pattern: str | None, kind: Kind, name: str) -> None:
        name = name or "amq.default"
        if pattern is None or not found(pattern, name):
            raise AccessRefused(f"access to {kind} '{name}' in vhost '{self.vhost}' refused for user '{self.user}'")

    def _topic(self, what: Literal["write", "read"], exchange: Exchange, keys: Sequence[str]) -> None:
        permissions = self._users.topic_permissions
        if not permissions or exchange.type != "topic":
            return
        permission = permissions.get((self.vhost, self.user, exchange.name))
        if permission is None:
            return
        pattern = permission.write if what == "write" else permission.read
        for variable, value in (("{username}", self.user), ("{vhost}", self.vhost)):
            pattern = pattern.replace(variable, re.escape(value))
        for key in keys:
            if not found(pattern, key):
                raise AccessRefused(
                    f"access to topic '{key}' in exchange '{exchange.name}' in vhost '{self.vhost}' "
                    f"refused for user '{self.user}'"
                )
