"""`harebell permissions`: what users may do in a virtual host, and with which routing keys at a topic exchange."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from harebell.cli.administration.requests import Target, Vhost, View, ask, say, show
from harebell.cli.http_api.failures import missing
from harebell.cli.validators import maybe_empty

__all__ = ["clear", "clear_topic", "list_topic", "listed", "set_", "set_topic"]

User = Annotated[str, Parameter(help="The user.")]
Exchange = Annotated[str, Parameter(help="The topic exchange.")]
OfUser = Annotated[str | None, Parameter(help="Only of this user.")]
InVhost = Annotated[str | None, Parameter(help="Only in this virtual host.")]


def listed(
    *, user: OfUser = None, vhost: InVhost = None, view: View | None = None, target: Target | None = None
) -> int:
    """List permissions."""
    columns = ("vhost", "user", "configure", "write", "read")
    _need(target, user, vhost)
    return show(lambda: ask(target, "list-permissions", user=user, vhost=vhost), columns, view)


def set_(
    user: User,
    *,
    configure: Annotated[
        str, Parameter(validator=maybe_empty, help="Names that the user may declare and delete.")
    ] = ".*",
    write: Annotated[str, Parameter(validator=maybe_empty, help="Names that the user may publish and bind to.")] = ".*",
    read: Annotated[
        str, Parameter(validator=maybe_empty, help="Names that the user may consume and bind from.")
    ] = ".*",
    vhost: Vhost = "/",
    target: Target | None = None,
) -> int:
    """Give a user permissions in a virtual host. Patterns are regular expressions, searched for in names; "": none."""
    ask(target, "set-permission", vhost=vhost, user=user, configure=configure, write=write, read=read)
    return say(f"user '{user}' has permissions in vhost '{vhost}'")


def clear(user: User, *, vhost: Vhost = "/", target: Target | None = None) -> int:
    """Remove a user's permissions in a virtual host, which the user can then no longer open."""
    ask(target, "clear-permission", vhost=vhost, user=user)
    return say(f"user '{user}' has no permissions in vhost '{vhost}'")


def list_topic(
    *, user: OfUser = None, vhost: InVhost = None, view: View | None = None, target: Target | None = None
) -> int:
    """List topic permissions."""
    columns = ("vhost", "user", "exchange", "write", "read")
    _need(target, user, vhost)
    return show(lambda: ask(target, "list-topic-permissions", user=user, vhost=vhost), columns, view)


def set_topic(
    user: User,
    exchange: Exchange,
    *,
    write: Annotated[str, Parameter(validator=maybe_empty, help="Routing keys that the user may publish with.")] = ".*",
    read: Annotated[str, Parameter(validator=maybe_empty, help="Routing keys that the user may bind with.")] = ".*",
    vhost: Vhost = "/",
    target: Target | None = None,
) -> int:
    """Restrict a user's routing keys at a topic exchange. {username} and {vhost} stand for the user's own."""
    ask(target, "set-topic-permission", vhost=vhost, user=user, exchange=exchange, write=write, read=read)
    return say(f"user '{user}' has topic permissions at exchange '{exchange}' in vhost '{vhost}'")


def clear_topic(
    user: User,
    exchange: Annotated[str | None, Parameter(help="The topic exchange; left out: all of them.")] = None,
    *,
    vhost: Vhost = "/",
    target: Target | None = None,
) -> int:
    """Remove topic permissions: routing keys are no longer checked."""
    ask(target, "clear-topic-permission", vhost=vhost, user=user, exchange=exchange)
    where = f"at exchange '{exchange}'" if exchange is not None else "at any exchange"
    return say(f"user '{user}' has no topic permissions {where} in vhost '{vhost}'")


def _need(target: Target | None, user: str | None, vhost: str | None) -> None:
    """Raise Missing for a user or a virtual host that does not exist: an empty list would say that it has none."""
    for noun, name in (("user", user), ("vhost", vhost)):
        if name is not None:
            known = [each["name"] for each in ask(target, f"list-{noun}s")]
            if name not in known:
                raise missing(f"{noun} '{name}'", name, known, f"harebell {noun}s list")
