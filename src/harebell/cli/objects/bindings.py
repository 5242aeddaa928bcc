"""`harebell bindings`: list them, bind and unbind."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.failures import Missing
from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_rows
from harebell.cli.objects.lookup import Arguments, InVhost, Vhost, find, known_from, listed_in, need_one, pairs
from harebell.cli.terminal.output import say
from harebell.cli.validators import maybe_empty

__all__ = ["declare", "delete", "listed"]

Source = Annotated[str, Parameter(help="The exchange that messages come from.")]
Destination = Annotated[str, Parameter(help="The queue, or with --to-exchange the exchange, that they go to.")]
Key = Annotated[str, Parameter(validator=maybe_empty, help="The binding key.")]
ToExchange = Annotated[bool, Parameter(negative=(), help="The destination is an exchange.")]

COLUMNS: Final = ("vhost", "source", "destination", "destination_type", "routing_key", "arguments")


def listed(
    *,
    source: Annotated[
        str | None, Parameter(validator=maybe_empty, help="Only from this exchange; '' is the default one.")
    ] = None,
    destination: Annotated[str | None, Parameter(help="Only to the queue or exchange of this name.")] = None,
    vhost: InVhost = None,
    view: View | None = None,
    target: HttpTarget | None = None,
) -> int:
    """List bindings; those of the default exchange, which each queue has, have an empty source."""
    with connect_to(target) as api:
        if source:
            need_one(api, ("exchange",), source, vhost)
        if destination is not None:
            need_one(api, ("queue", "exchange"), destination, vhost)
        return show_rows(
            lambda: [
                each
                for each in listed_in(api, "bindings", vhost)
                if source in (None, each["source"]) and destination in (None, each["destination"])
            ],
            COLUMNS,
            view,
            without=known_from(vhost),
        )


def declare(
    source: Source,
    destination: Destination,
    routing_key: Key = "",
    *,
    to_exchange: ToExchange = False,
    argument: Arguments = (),
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Bind a queue or an exchange to an exchange."""
    body = {"routing_key": routing_key, "arguments": pairs(argument, "--argument")}
    with connect_to(target) as api:
        find(api, "exchange", source, vhost)
        find(api, "exchange" if to_exchange else "queue", destination, vhost)
        api.post("bindings", vhost, "e", source, "e" if to_exchange else "q", destination, body=body)
    return say(f"'{destination}' is bound to exchange '{source}' with '{routing_key}' in vhost '{vhost}'")


def delete(
    source: Source,
    destination: Destination,
    routing_key: Key = "",
    *,
    to_exchange: ToExchange = False,
    argument: Arguments = (),
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Remove a binding: the one with this key and these arguments."""
    arguments = pairs(argument, "--argument")
    with connect_to(target) as api:
        find(api, "exchange", source, vhost)
        find(api, "exchange" if to_exchange else "queue", destination, vhost)
        path = ("bindings", vhost, "e", source, "e" if to_exchange else "q", destination)
        there = api.get(*path)
        for each in there:
            if each["routing_key"] == routing_key and (each["arguments"] or {}) == arguments:
                api.delete(*path, each["properties_key"])
                return say(f"'{destination}' is unbound from exchange '{source}' with '{routing_key}'")
    keys = ", ".join(f"'{each['routing_key']}'" for each in there) or "none"
    raise Missing(
        f"'{destination}' is not bound to exchange '{source}' with '{routing_key}' and these arguments; keys: {keys}"
    )
