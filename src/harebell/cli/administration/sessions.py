"""`harebell sessions`: the sessions of AMQP 0-10 in a broker."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from harebell.cli.administration.requests import AsJson, Target, Vhost, View, ask, say, show
from harebell.cli.http_api.failures import missing
from harebell.cli.listing import show_one
from harebell.cli.terminal.output import say_json
from harebell.errors import InvalidArgument

__all__ = ["end", "listed", "shown"]

Name = Annotated[str, Parameter(help="The session; bytes that are not UTF-8 as `list` writes them.")]
User = Annotated[str | None, Parameter(help="Whose session it is; needed where several users have one of that name.")]


def listed(*, view: View | None = None, target: Target | None = None) -> int:
    """List the sessions, with and without a connection. `left` are the seconds that one without a connection has."""
    columns = ("session", "user", "vhost", "connection", "timeout", "left", "subscriptions", "unacked", "bytes")
    whole = view is not None and view.json

    def fetch() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(target, "list-sessions")
        return found if whole else [{**each, "subscriptions": len(each["subscriptions"])} for each in found]

    return show(fetch, columns, view)


def shown(
    name: Name, *, user: User = None, vhost: Vhost = "/", json: AsJson = False, target: Target | None = None
) -> int:
    """Show one session: its connection, the queues that it is subscribed to, and what it holds."""
    session = _find(target, name, user, vhost)
    return say_json([session], indent=2) if json else show_one(session, as_json=False)


def end(name: Name, *, user: User = None, vhost: Vhost = "/", target: Target | None = None) -> int:
    """End a session: what it held returns to the queues, and a client that is attached gets an error."""
    user = _find(target, name, user, vhost)["user"]
    ask(target, "end-session", session=name, user=user, vhost=vhost)
    return say(f"session '{name}' of user '{user}' is ended")


def _find(target: Target | None, name: str, user: str | None, vhost: str) -> dict[str, Any]:
    sessions = ask(target, "list-sessions")
    found: list[dict[str, Any]] = [
        each for each in sessions if (each["session"], each["vhost"]) == (name, vhost) and user in (None, each["user"])
    ]
    if len(found) > 1:
        raise InvalidArgument(f"several users have a session '{name}': add --user {found[0]['user']}, or another one")
    if not found:
        here = [each["session"] for each in sessions if each["vhost"] == vhost]
        raise missing(f"session '{name}' in vhost '{vhost}'", name, here, "harebell sessions list")
    return found[0]
