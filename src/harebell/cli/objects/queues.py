"""`harebell queues`: list them, show, declare and delete one."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_one, show_rows
from harebell.cli.objects.lookup import Arguments, AsJson, InVhost, Vhost, find, known_from, listed_in, pairs, trying
from harebell.cli.terminal.output import say
from harebell.errors import InvalidArgument

__all__ = ["declare", "delete", "listed", "shown"]

Name = Annotated[str, Parameter(help="The queue.")]

COLUMNS: Final = (
    "vhost", "name", "type", "messages_ready", "messages_unacknowledged", "consumers",
    "message_stats.publish_details.rate", "message_stats.deliver_get_details.rate",
)  # fmt: skip


def listed(*, vhost: InVhost = None, view: View | None = None, target: HttpTarget | None = None) -> int:
    """List queues, their messages and rates."""
    with connect_to(target) as api:
        return show_rows(lambda: listed_in(api, "queues", vhost), COLUMNS, view, without=known_from(vhost))


def shown(name: Name, *, vhost: Vhost = "/", json: AsJson = False, target: HttpTarget | None = None) -> int:
    """Show a queue: its arguments, policies, counts and consumers."""
    with connect_to(target) as api:
        return show_one(find(api, "queue", name, vhost), as_json=json)


def declare(
    name: Name,
    *,
    type: Annotated[str | None, Parameter(help="classic, quorum or stream; default: the virtual host's.")] = None,
    transient: Annotated[bool, Parameter(negative=(), help="Gone after a restart of the broker.")] = False,
    auto_delete: Annotated[bool, Parameter(negative=(), help="Deleted with its last consumer.")] = False,
    argument: Arguments = (),
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Declare a queue. One that exists with other properties is refused, and stays as it is."""
    arguments = pairs(argument, "--argument")
    if type is not None:
        if arguments.get("x-queue-type", type) != type:
            raise InvalidArgument(
                f"--type {type} and --argument x-queue-type={arguments['x-queue-type']}: leave one out"
            )
        arguments["x-queue-type"] = type
    body = {"durable": not transient, "auto_delete": auto_delete, "arguments": arguments}
    with connect_to(target) as api:
        trying(api, "vhost", vhost, None, lambda: api.put("queues", vhost, name, body=body))
    return say(f"queue '{name}' in vhost '{vhost}' is declared")


def delete(
    name: Name,
    *,
    if_empty: Annotated[bool, Parameter(negative=(), help="Only if it has no ready messages.")] = False,
    if_unused: Annotated[bool, Parameter(negative=(), help="Only if it has no consumers.")] = False,
    yes: Annotated[bool, Parameter(negative=(), help="Yes, with its messages.")] = False,
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Delete a queue. Needs --yes if it has messages."""
    with connect_to(target) as api:
        messages = find(api, "queue", name, vhost).get("messages") or 0
        if messages and not yes and not if_empty:
            raise InvalidArgument(
                f"queue '{name}' in vhost '{vhost}' has {messages} messages: add --yes if they may go"
            )
        flags = (("if-empty", if_empty), ("if-unused", if_unused))
        query = {flag: "true" for flag, wanted in flags if wanted}
        trying(api, "queue", name, vhost, lambda: api.delete("queues", vhost, name, query=query))
    return say(f"queue '{name}' in vhost '{vhost}' is deleted")
