"""`harebell connections`: list them, show and close one."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_one, show_rows
from harebell.cli.objects.lookup import AsJson, find, trying
from harebell.cli.terminal.output import say
from harebell.cli.validators import maybe_empty

__all__ = ["close", "listed", "shown"]

Name = Annotated[str, Parameter(help="The connection, as `list` names it: HOST:PORT -> HOST:PORT.")]

COLUMNS: Final = ("name", "user", "vhost", "state", "channels", "recv_oct_details.rate", "send_oct_details.rate")


def listed(*, view: View | None = None, target: HttpTarget | None = None) -> int:
    """List connections: the user's own, or all for a user with the tag monitoring."""
    with connect_to(target) as api:
        return show_rows(lambda: api.get("connections"), COLUMNS, view)


def shown(name: Name, *, json: AsJson = False, target: HttpTarget | None = None) -> int:
    """Show a connection: its client, limits, TLS and counts."""
    with connect_to(target) as api:
        return show_one(find(api, "connection", name), as_json=json)


def close(
    name: Name,
    *,
    reason: Annotated[str | None, Parameter(validator=maybe_empty, help="What the client reads as the reason.")] = None,
    target: HttpTarget | None = None,
) -> int:
    """Close a connection; its client may connect again."""
    headers = None if reason is None else {"X-Reason": " ".join(reason.encode("ascii", "replace").decode().split())}
    with connect_to(target) as api:
        trying(api, "connection", name, None, lambda: api.delete("connections", name, headers=headers))
    return say(f"connection '{name}' is closed")
