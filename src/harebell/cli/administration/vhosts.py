"""`harebell vhosts`: the virtual hosts of a broker."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from harebell.cli.administration.requests import Target, View, ask, say, show
from harebell.cli.validators import LIMIT, maybe_empty
from harebell.errors import InvalidArgument

__all__ = ["add", "delete", "listed", "set_limits"]

Name = Annotated[str, Parameter(help="The virtual host.")]


def listed(*, view: View | None = None, target: Target | None = None) -> int:
    """List virtual hosts, their limits, and how much is in them."""
    columns = ("name", "description", "tags", "default_queue_type", "limits", "queues", "messages")
    return show(lambda: ask(target, "list-vhosts"), columns, view)


def add(
    name: Name,
    *,
    description: Annotated[
        str | None, Parameter(validator=maybe_empty, help="The purpose of the virtual host.")
    ] = None,
    tag: Annotated[tuple[str, ...], Parameter(help="Any word; repeatable.")] = (),
    default_queue_type: Annotated[
        str | None, Parameter(help="classic, quorum or stream: for declarations without a queue type.")
    ] = None,
    target: Target | None = None,
) -> int:
    """Add a virtual host. No user may open it before `harebell permissions set`.

    Over the HTTP API, of RabbitMQ too, the user that asks may open it at once.
    """
    ask(target, "add-vhost", name=name, description=description, tags=list(tag), default_queue_type=default_queue_type)
    return say(f"vhost '{name}' is added; who may open it: harebell permissions set USER --vhost {name}")


def delete(
    name: Name,
    *,
    yes: Annotated[bool, Parameter(negative=(), help="Yes, with all queues and messages in it.")] = False,
    target: Target | None = None,
) -> int:
    """Delete a virtual host with everything in it, and close its connections. Needs --yes if it has queues."""
    if not yes:
        found = [vhost for vhost in ask(target, "list-vhosts") if vhost["name"] == name]
        if found and found[0]["queues"]:
            there = f"{found[0]['queues']} queues with {found[0]['messages']} messages"
            raise InvalidArgument(f"vhost '{name}' has {there}: add --yes if they may go")
    ask(target, "delete-vhost", name=name)
    return say(f"vhost '{name}' is deleted")


def set_limits(
    name: Name,
    *,
    max_connections: Annotated[
        int | None, Parameter(help="Connections at a time; -1: no limit.", validator=LIMIT)
    ] = None,
    max_queues: Annotated[int | None, Parameter(help="Queues at a time; -1: no limit.", validator=LIMIT)] = None,
    target: Target | None = None,
) -> int:
    """Limit a virtual host. A limit that is left out stays as it is; existing connections and queues stay too."""
    limits = {
        key: value
        for key, value in (("max-connections", max_connections), ("max-queues", max_queues))
        if value is not None
    }
    if not limits:
        raise InvalidArgument("no limit is given: --max-connections, --max-queues or both")
    ask(target, "set-vhost-limits", name=name, limits=limits)
    return say(f"vhost '{name}' is limited: {', '.join(f'{key}={value}' for key, value in limits.items())}")
