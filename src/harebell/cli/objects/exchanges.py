"""`harebell exchanges`: list them, show, declare and delete one."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_one, show_rows
from harebell.cli.objects.lookup import Arguments, AsJson, InVhost, Vhost, find, known_from, listed_in, pairs, trying
from harebell.cli.terminal.output import say
from harebell.cli.validators import maybe_empty

__all__ = ["declare", "delete", "listed", "shown"]

Name = Annotated[str, Parameter(help="The exchange.")]

COLUMNS: Final = (
    "vhost", "name", "type", "durable", "internal", "message_stats.publish_in_details.rate",
    "message_stats.publish_out_details.rate",
)  # fmt: skip
DEFAULT: Final = "amq.default"
"""The default exchange, whose name is empty, in paths."""


def listed(*, vhost: InVhost = None, view: View | None = None, target: HttpTarget | None = None) -> int:
    """List exchanges; the default exchange has an empty name."""
    with connect_to(target) as api:
        return show_rows(lambda: listed_in(api, "exchanges", vhost), COLUMNS, view, without=known_from(vhost))


def shown(
    name: Annotated[str, Parameter(validator=maybe_empty, help="The exchange.")],
    *,
    vhost: Vhost = "/",
    json: AsJson = False,
    target: HttpTarget | None = None,
) -> int:
    """Show an exchange: its type, arguments, policy and counts. '' is the default exchange."""
    with connect_to(target) as api:
        return show_one(find(api, "exchange", name or DEFAULT, vhost), as_json=json)


def declare(
    name: Name,
    *,
    type: Annotated[str, Parameter(help="direct, fanout, topic, headers, or another type of the broker.")] = "direct",
    transient: Annotated[bool, Parameter(negative=(), help="Gone after a restart of the broker.")] = False,
    auto_delete: Annotated[bool, Parameter(negative=(), help="Deleted with its last binding.")] = False,
    internal: Annotated[bool, Parameter(negative=(), help="Clients cannot publish to it.")] = False,
    argument: Arguments = (),
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Declare an exchange. One that exists with other properties is refused, and stays as it is."""
    body = {
        "type": type, "durable": not transient, "auto_delete": auto_delete, "internal": internal,
        "arguments": pairs(argument, "--argument"),
    }  # fmt: skip
    with connect_to(target) as api:
        trying(api, "vhost", vhost, None, lambda: api.put("exchanges", vhost, name, body=body))
    return say(f"exchange '{name}' in vhost '{vhost}' is declared")


def delete(
    name: Name,
    *,
    if_unused: Annotated[bool, Parameter(negative=(), help="Only if it has no bindings.")] = False,
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Delete an exchange with its bindings."""
    with connect_to(target) as api:
        query = {"if-unused": "true"} if if_unused else {}
        trying(api, "exchange", name, vhost, lambda: api.delete("exchanges", vhost, name, query=query))
    return say(f"exchange '{name}' in vhost '{vhost}' is deleted")
