"""Limits of the broker, virtual hosts and users: the numbers of connections, channels, consumers and queues.

A number below 0, or a missing one, is no limit; 0 refuses everything. A limit applies to new objects: those that exist
stay. Texts, codes and the order of the checks are RabbitMQ's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from dataclasses import replace
from typing import Final, Protocol

from harebell.broker.auth import Users
from harebell.broker.clients import Connection, Tenancy
from harebell.config import Limits
from harebell.errors import InvalidArgument, NotAllowed, NotFound, PreconditionFailed
from harebell.routing.table_values import Table, erlang_term

__all__ = [
    "USER_LIMITS",
    "VHOST_LIMITS",
    "channel_refusal",
    "check_connection",
    "check_consumers",
    "check_new_queues",
    "check_queue",
    "check_user_limits",
    "check_vhost_limits",
    "set_user_limits",
]

VHOST_LIMITS: Final = frozenset({"max-connections", "max-queues"})
USER_LIMITS: Final = frozenset({"max-connections", "max-channels"})


class Population(Protocol):
    """The part of a node that limits count."""

    limits: Limits
    users: Users

    @property
    def connections(self) -> Collection[Connection]: ...


class LimitedVhost(Tenancy, Protocol):
    """A virtual host with the limits that operators set for it."""

    @property
    def limits(self) -> Table: ...
    @property
    def queues(self) -> Sized: ...


def check_vhost_limits(limits: Table) -> None:
    """Raise InvalidArgument, with RabbitMQ's text, unless these can be the limits of a virtual host."""
    problem = _problem(limits, VHOST_LIMITS, "limits")
    if problem:
        raise InvalidArgument(f"Validation failed\n\n{problem}\n")


def check_user_limits(limits: Table) -> None:
    """Raise InvalidArgument, with RabbitMQ's text, unless these can be the limits of a user."""
    problem = _problem(limits, USER_LIMITS, "user-limits")
    if problem:
        raise InvalidArgument(problem)


def set_user_limits(users: Users, name: str, limits: Table) -> None:
    """Give a user these limits; its other limits stay.

    Raises NotFound for an unknown user, InvalidArgument for an invalid limit.
    """
    check_user_limits(limits)
    user = users.users.get(name)
    if user is None:
        raise NotFound(f"no user '{name}'")
    users.put(replace(user, limits={**(user.limits or {}), **limits}))


def _problem(limits: Table, known: frozenset[str], called: str) -> str | None:
    unknown = [f"{{{erlang_term(name)},{erlang_term(limits[name])}}}" for name in limits if name not in known]
    if unknown:
        return f"Unrecognised terms [{','.join(unknown)}] in {called}"
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{name} should be a number, actually was {erlang_term(value)}"
    return None


def check_connection(node: Population, connection: Connection, vhost: LimitedVhost) -> None:
    """Raise NotAllowed when the broker, the virtual host or the user already has its limit of connections."""
    most = node.limits.max_connections
    if most is not None and _count(True for _ in _open(node)) >= most:
        raise NotAllowed(f"connection refused: node connection limit ({most}) is reached")
    limit = _limit(vhost.limits, "max-connections")
    if limit is not None and _count(each.vhost is vhost for each in _open(node)) >= limit:
        raise NotAllowed(
            f"access to vhost '{vhost.name}' refused for user '{connection.user}': "
            f"connection limit ({limit}) is reached"
        )
    limit = _limit(_user_limits(node, connection), "max-connections")
    if limit is not None and _count(each.user == connection.user for each in _open(node)) >= limit:
        raise NotAllowed(f"connection refused for user '{connection.user}': user connection limit ({limit}) is reached")


def channel_refusal(node: Population, connection: Connection) -> NotAllowed | None:
    """The refusal of one more channel, when the user already has its limit of them on all connections; else None."""
    limit = _limit(_user_limits(node, connection), "max-channels")
    if limit is None:
        return None
    if sum(len(each.channels) for each in _open(node) if each.user == connection.user) < limit:
        return None
    return NotAllowed(
        f"number of channels opened for user '{connection.user}' "
        f"has reached the maximum allowed user limit of ({limit})"
    )


def check_consumers(limits: Limits, count: int) -> None:
    """Raise NotAllowed when a channel with `count` consumers already has its limit of them."""
    most = limits.max_consumers_per_channel
    if most is not None and count >= most:
        raise NotAllowed(f"reached maximum ({most}) of consumers per channel")


def check_queue(vhost: LimitedVhost, name: str) -> None:
    """Raise PreconditionFailed when the virtual host has its limit of queues; `name` is that of the new queue."""
    limit = _limit(vhost.limits, "max-queues")
    if limit is not None and len(vhost.queues) >= limit:
        raise PreconditionFailed(
            f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({limit}) is reached"
        )


def check_new_queues(vhost: LimitedVhost, count: int) -> None:
    """Raise InvalidArgument when `count` new queues, those of one definitions file, exceed the virtual host's limit."""
    limit, now = _limit(vhost.limits, "max-queues"), len(vhost.queues)
    if limit is not None and count and now + count > limit:
        raise InvalidArgument(
            f'Adding {count} queue(s) to virtual host "{vhost.name}" would exceed the limit of {limit} queue(s).\n\n'
            f"This virtual host currently has {now} queue(s) defined.\n\nImport aborted!"
        )


def _limit(limits: Table, name: str) -> int | None:
    value = limits.get(name)
    return value if isinstance(value, int) and value >= 0 else None


def _user_limits(node: Population, connection: Connection) -> Table:
    user = node.users.users.get(connection.user)
    return (user.limits if user is not None else None) or {}


def _open(node: Population) -> Iterable[Connection]:
    return (each for each in node.connections if each.is_open)


def _count(wanted: Iterable[bool]) -> int:
    return sum(wanted)
