"""Bindings: lists, one binding by its key, bind, unbind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, cast
from urllib.parse import quote

from harebell.admin.answers import Answer, Refused, not_found, to_json
from harebell.admin.http.requests import Request, field
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import (
    NO_CONTENT,
    Operator,
    alone,
    exchange_name,
    exchange_of,
    gathered,
    nameable,
    queue_of,
)
from harebell.admin.resources.queues import table
from harebell.admin.shapes.exchanges import binding
from harebell.admin.shapes.names import properties_key
from harebell.broker.vhost import VirtualHost
from harebell.protocol.v091 import Table
from harebell.routing import Binding, Destination, to_exchange, to_queue
from harebell.routing.steps import Steps
from harebell.routing.wire_limits import check_key

__all__ = [
    "bind", "list_all", "list_between", "list_of_destination", "list_of_queue", "list_of_source", "list_of_vhost",
    "show", "unbind",
]  # fmt: skip

ENDS: Final = {"q": to_queue, "e": to_exchange}


class Row(NamedTuple):
    """A binding with the name of its virtual host."""

    vhost: str
    binding: Binding


LISTING: Final[Listing[Row]] = Listing(
    shape=lambda row: binding(row.vhost, row.binding),
    order=lambda row: (row.vhost, row.binding.source, row.binding.destination.name, row.binding.binding_key),
    name=lambda row: row.binding.destination.name,
)


def list_all(request: Request) -> Steps[Answer]:
    rows = list[Row]()
    for vhost in request.user.seen():
        rows += yield from gathered(Row(vhost.name, each) for each in vhost.router.bindings())
    return (yield from LISTING.answer(request, rows))


def list_of_vhost(request: Request) -> Steps[Answer]:
    return (yield from _list(request, request.vhost().router.bindings()))


def list_of_queue(request: Request) -> Steps[Answer]:
    return (yield from _list(request, _to(request.vhost(), to_queue(request.names["queue"]))))


def list_of_source(request: Request) -> Steps[Answer]:
    router, name = request.vhost().router, exchange_name(request.names["exchange"])
    return (yield from _list(request, router.exchange(name).bindings() if router.has_exchange(name) else ()))


def list_of_destination(request: Request) -> Steps[Answer]:
    return (yield from _list(request, _to(request.vhost(), to_exchange(exchange_name(request.names["exchange"])))))


def list_between(request: Request) -> Steps[Answer]:
    """The bindings between two ends; none where one of them is missing, as with RabbitMQ."""
    try:
        vhost, source, destination = _between(request)
    except Refused:
        if request.names["kind"] not in ENDS:
            raise
        return to_json([])
    return (yield from _list(request, [each for each in _to(vhost, destination) if each.source == source]))


def _list(request: Request, bindings: Iterable[Binding]) -> Steps[Answer]:
    vhost = request.names["vhost"]
    rows = yield from gathered(Row(vhost, each) for each in bindings)
    return (yield from LISTING.answer(request, rows))


def _to(vhost: VirtualHost, destination: Destination) -> tuple[Binding, ...]:
    """The bindings to a destination, with the one of the default exchange."""
    implicit = [Binding("", destination, destination.name, {})] if destination.kind == "queue" else []
    return (*implicit, *vhost.router.bindings_to(destination))


def _between(request: Request) -> tuple[VirtualHost, str, Destination]:
    """The virtual host, the source and the destination in the path. Raises Refused where one is missing."""
    source = exchange_of(request, "source").name
    make = ENDS.get(request.names["kind"])
    if make is None:
        raise not_found()
    if make is to_queue:
        return request.vhost(), source, to_queue(queue_of(request, "destination").name)
    return request.vhost(), source, to_exchange(exchange_of(request, "destination").name)


def show(request: Request) -> Answer:
    vhost, found = _named(request)
    return alone(request, binding(vhost.name, found))


def _named(request: Request) -> tuple[VirtualHost, Binding]:
    vhost, source, destination = _between(request)
    for each in _to(vhost, destination):
        if each.source == source and properties_key(each) in (request.names["props"], request.names["props"] or "~"):
            return vhost, each
    raise not_found()


def bind(request: Request) -> Answer:
    """Bind; the answer's Location is that of the binding, relative to the list between both ends.

    Its last part is the binding's properties_key, which is encoded already, encoded once more as a part of a path.
    """
    vhost, body = request.vhost(), request.object()
    make = ENDS.get(request.names["kind"])
    if make is None:
        raise not_found()
    source = nameable("exchange", exchange_name(request.names["source"]), vhost.name)
    name = nameable("queue" if make is to_queue else "exchange", request.names["destination"], vhost.name)
    destination = make(exchange_name(name) if make is to_exchange else name)
    key, arguments = field(body, "routing_key", str, ""), table(body, "arguments")
    check_key(key, "routing_key")
    request.user.access(vhost).bind("bind", source, destination, key)
    queue = vhost.queues.get(name) if make is to_queue else None
    if queue is not None:
        queue.check_access(Operator(request.user.name))
    vhost.bind(source, destination, key, arguments, user=request.user.name)
    props = properties_key(Binding(source, destination, key, arguments))
    return Answer(201, headers={"location": "/".join(quote(part, safe="") for part in (name, props))})


def unbind(request: Request) -> Answer:
    vhost, found = _named(request)
    request.user.access(vhost).bind("unbind", found.source, found.destination, found.binding_key)
    queue = vhost.queues.get(found.destination.name) if found.destination.kind == "queue" else None
    if queue is not None:
        queue.check_access(Operator(request.user.name))
    arguments = cast("Table", dict(found.arguments))
    vhost.unbind(found.source, found.destination, found.binding_key, arguments, user=request.user.name)
    return NO_CONTENT
