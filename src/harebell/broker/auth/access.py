"""The access checks of one user in one virtual host: each operation of a client, by the table of `acts`.

RabbitMQ's rules, order and texts (3.10, probed):

- The default exchange has the name amq.default. A name that the server made is checked like any other.
- A passive declaration needs no permission, nor does a consumer of direct replies.
- Permissions are checked before existence, so that a user without permission does not learn what exists.
- At a topic exchange, a user with a topic permission for it also needs that for each routing key to publish with (those
  of CC and BCC too, as from RabbitMQ 4 on), and for each key to bind with. {username} and {vhost} in its pattern are
  replaced by those of the connection, literally: their characters have no meaning in the pattern.

Beyond RabbitMQ, for the services of the system exchange:

- New arguments of a queue are checked as a new declaration with the arguments that result.
- An answer is a publication of the user's own, through the default exchange.
- A list has what the user may read.
- A queue that keeps what was purged is checked as the queue in which it was.

A publisher is checked once for each exchange and key, not for each message; a change of permissions makes publishers
check again. A check raises AccessRefused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from harebell.broker.auth.acts import ACTS, Right
from harebell.broker.auth.refusals import Refusal
from harebell.broker.auth.users import Users, found, topic_pattern
from harebell.errors import AccessRefused, InvalidArgument
from harebell.routing import Destination, Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange import Exchange
from harebell.routing.naming import check_new_name, kept_from
from harebell.routing.qpid_arguments import as_x_arguments
from harebell.routing.table_values import Table

__all__ = ["Access"]


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
        if not server_named:
            check_new_name("queue", name)  # a queue that the server named too: its name can be used, not declared
        self._allow("declare-queue", queue=to_queue(name))
        if new:
            self.dead_letter(name, arguments)

    def keep_queue(self, name: str) -> None:
        """Check a queue that is to keep what is in the queue of this name (`kept_name`)."""
        self._allow("declare-queue", queue=to_queue(name))

    def dead_letter(self, name: str, arguments: Table) -> None:
        """Check the dead-letter exchange among the arguments that a queue is to have, if there is one."""
        meant = as_x_arguments(arguments)
        exchanges = [meant.get(argument) for argument in ("x-dead-letter-exchange", "x-orphan-exchange")]
        for exchange in dict.fromkeys(each for each in exchanges if isinstance(each, str)):
            self._allow("dead-letter", queue=to_queue(name), dead_letter_exchange=to_exchange(exchange))

    def delete_queue(self, name: str) -> None:
        self._allow("delete-queue", queue=to_queue(name))

    def read_queue(self, act: Literal["purge", "get", "consume"], name: str) -> None:
        self._allow(act, queue=to_queue(name))

    def declare_exchange(self, name: str, type: str, arguments: Table) -> None:
        self._router.check_declaration(name, type)
        self._allow("declare-exchange", exchange=to_exchange(name))
        alternate = arguments.get("alternate-exchange")
        if not self._router.has_exchange(name) and isinstance(alternate, str):
            check_new_name("exchange", name)
            self._allow("use-alternate", exchange=to_exchange(name), alternate=to_exchange(alternate))

    def delete_exchange(self, name: str) -> None:
        self._router.check_deletion(name)
        self._allow("delete-exchange", exchange=to_exchange(name))

    def bind(self, act: Literal["bind", "unbind"], source: str, destination: Destination, key: str) -> None:
        self._allow(act, destination=destination)
        self._router.check_ends(source, destination)
        self._allow(act, source=to_exchange(source))
        if self._router.has_exchange(source):
            self._allow_keys(act, self._router.exchange(source), (key,))

    def publish(self, exchange: str, key: str) -> None:
        """Check a publication. Raises NotFound for an unknown exchange too, and AccessRefused for an internal one."""
        self._allow("publish", exchange=to_exchange(exchange))
        self._allow_keys("publish", self._router.check_publish(exchange), (key,))

    def publish_copies(self, exchange: str, keys: Sequence[str]) -> None:
        """Check the keys of CC and BCC, at an exchange that `publish` allowed."""
        self._allow_keys("publish", self._router.exchange(exchange), keys)

    # -- lists ---------------------------------------------------------------------------------------------------

    def sees_queue(self, name: str) -> bool:
        """Whether a list for the user may have the queue."""
        return self._allows("see-queue", queue=to_queue(name))

    def see_queue(self, name: str) -> None:
        """Check that the user may be told of the queue."""
        self._allow("see-queue", queue=to_queue(name))

    def sees_exchange(self, name: str) -> bool:
        return self._allows("see-exchange", exchange=to_exchange(name))

    def sees_binding(self, source: str, destination: Destination) -> bool:
        return self._allows("see-binding", source=to_exchange(source), destination=destination)

    # -- services of plug-ins ------------------------------------------------------------------------------------

    def check(self, act: str, resources: Mapping[str, str | Destination], routing_key: str | None = None) -> None:
        """Check any act of the table, with its resources by the parts that they play.

        Raises InvalidArgument for an unknown act, for resources that are not those of the act, and for a routing key
        that is missing or not needed.
        """
        needs = ACTS.get(act)
        if needs is None:
            raise InvalidArgument(f"there is no act '{act}'; acts are {', '.join(ACTS)}")
        parts = dict.fromkeys(need.of for need in needs)
        if set(resources) != set(parts):
            given = ", ".join(resources) or "nothing"
            raise InvalidArgument(f"the act '{act}' is about {' and '.join(parts)}, not {given}")
        if any(need.keys for need in needs) is not (routing_key is not None):
            takes = "takes no" if routing_key is not None else "needs a"
            raise InvalidArgument(f"the act '{act}' {takes} routing_key")
        named = {part: _resource(part, name) for part, name in resources.items()}
        self._allow(act, **named)
        for need in needs:
            if need.keys and routing_key is not None and self._router.has_exchange(named[need.of].name):
                self._allow_keys(act, self._router.exchange(named[need.of].name), (routing_key,))

    # -- permissions ---------------------------------------------------------------------------------------------

    def _allow(self, act: str, **resources: Destination) -> None:
        """Raise AccessRefused for the first need of the act that a resource named here does not meet."""
        for need in ACTS[act]:
            resource = resources.get(need.of)
            if resource is not None and not self._has(need.right, resource):
                name = _checked_name(resource)
                self._users.refusals.note(Refusal(self.user, self.vhost, act, need.right, resource.kind, name))
                raise AccessRefused(
                    f"{need.right} access to {resource.kind} '{name}' in vhost '{self.vhost}' "
                    f"refused for user '{self.user}'"
                )

    def _allows(self, act: str, **resources: Destination) -> bool:
        return all(self._has(need.right, resources[need.of]) for need in ACTS[act])

    def _has(self, right: Right, resource: Destination) -> bool:
        permission = self._users.permissions.get((self.vhost, self.user))
        return permission is not None and found(getattr(permission, right), _checked_name(resource))

    def _allow_keys(self, act: str, exchange: Exchange, keys: Sequence[str]) -> None:
        """Raise AccessRefused for the first of the keys that the user's topic permission for the exchange refuses."""
        permissions = self._users.topic_permissions
        if not permissions or exchange.type != "topic":
            return
        permission = permissions.get((self.vhost, self.user, exchange.name))
        if permission is None:
            return
        for need in ACTS[act]:
            if need.keys:
                pattern = topic_pattern(permission, permission.write if need.right == "write" else permission.read)
                for key in keys:
                    if not found(pattern, key):
                        self._users.refusals.note(
                            Refusal(self.user, self.vhost, act, need.right, "topic", key, exchange.name)
                        )
                        raise AccessRefused(
                            f"{need.right} access to topic '{key}' in exchange '{exchange.name}' "
                            f"in vhost '{self.vhost}' refused for user '{self.user}'"
                        )


def _resource(part: str, given: str | Destination) -> Destination:
    if isinstance(given, Destination):
        return given
    if part == "destination":
        raise InvalidArgument("the destination of a binding is given by to_queue or to_exchange")
    return to_queue(given) if part == "queue" else to_exchange(given)


def _checked_name(resource: Destination) -> str:
    if resource.kind == "queue":
        return kept_from(resource.name) or resource.name
    return resource.name or "amq.default"
