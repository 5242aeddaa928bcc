"""`harebell channels`: what a channel layer leaves on its broker."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from harebell.channels.names import Names, non_local
from harebell.cli.terminal.consoles import add_row, new_console
from harebell.cli.terminal.output import say_json
from harebell.cli.validators import Number
from harebell.client.blocking import connect
from harebell.client.messages import Delivery
from harebell.errors import InvalidArgument, NotFound

__all__ = ["dropped"]


def dropped(
    url: Annotated[
        str, Parameter(env_var="HAREBELL_URL", help="The broker; the variable keeps a password off the command line.")
    ] = "amqp://guest:guest@127.0.0.1:5672/",
    *,
    prefix: Annotated[str, Parameter(help="The layer's prefix.")] = "asgi",
    count: Annotated[int, Parameter(help="At most so many, the oldest first.", validator=Number(gte=0))] = 1000,
    json: Annotated[bool, Parameter(negative=(), help="As lines of JSON.")] = False,
) -> int:
    """List the messages that the broker dropped unread in the last day. Removes none of them."""
    names = Names(prefix)
    with connect(url) as connection, connection.channel() as channel:
        rows: list[dict[str, Any]] = []
        try:
            for _ in range(count):  # closing the channel requeues unacknowledged messages in their order
                delivery = channel.get(names.dropped)
                if delivery is None:
                    break
                rows.append(_row(names, delivery))
        except NotFound as error:
            text = f"no channel layer with prefix '{prefix}' has been at {connection.parameters.peer} lately"
            raise InvalidArgument(f"{text}: --prefix names another one") from error
    if json:
        for row in rows:
            say_json(row)
        return 0
    table = Table("when", "channel", "why", "bytes", title=f"dropped: {len(rows)}", title_justify="left")
    for row in rows:
        add_row(table, row["when"], row["channel"], row["why"], f"{row['bytes']:,}")
    new_console(highlight=True).print(table)
    return 0


def _row(names: Names, delivery: Delivery) -> dict[str, Any]:
    headers = delivery.headers
    queue, deaths = str(headers.get("x-first-death-queue", "")), headers.get("x-death")
    death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    marked = names.marked(queue)
    if marked is not None:
        channel = f"{marked[1]} in group {marked[0]}"
    else:
        channel = names.channel_of("queue", queue) or queue
        if channel == non_local(channel) and channel.endswith("!"):
            channel += str(headers.get("asgi_channel", ""))
    return {
        "when": str(death.get("time", "")),
        "channel": channel,
        "why": "membership expired" if marked is not None else str(headers.get("x-first-death-reason", "")),
        "bytes": delivery.body_size,
    }
