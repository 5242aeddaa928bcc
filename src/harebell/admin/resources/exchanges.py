"""Exchanges: lists, one exchange, declare, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from harebell.admin.answers import Answer, bad_request, not_found
from harebell.admin.history.ranges import ranges_of
from harebell.admin.http.requests import Request, boolean, field
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import (
    NO_CONTENT,
    alone,
    created,
    exchange_name,
    exchange_of,
    gathered,
    new_name,
)
from harebell.admin.resources.queues import table
from harebell.admin.shapes.exchanges import exchange
from harebell.broker.vhost import VirtualHost
from harebell.routing import Exchange
from harebell.routing.steps import Steps

__all__ = ["declare", "delete", "list_all", "list_of_vhost", "show"]


class Row(NamedTuple):
    """An exchange with its virtual host."""

    vhost: VirtualHost
    exchange: Exchange


def list_all(request: Request) -> Steps[Answer]:
    return (yield from _list(request, request.user.seen()))


def list_of_vhost(request: Request) -> Steps[Answer]:
    return (yield from _list(request, [request.vhost()]))


def _list(request: Request, vhosts: list[VirtualHost]) -> Steps[Answer]:
    context, ranges = request.context, ranges_of(request.query)
    yield from context.counts.refreshing()
    rows = list[Row]()
    for vhost in vhosts:
        there = tuple(vhost.router.exchanges)
        rows += yield from gathered(Row(vhost, each) for each in there)
    listing: Listing[Row] = Listing(
        shape=lambda row: exchange(context, row.vhost, row.exchange, ranges),
        order=lambda row: (row.vhost.name, row.exchange.name),
        name=lambda row: row.exchange.name,
        quick=QUICK,
    )
    return (yield from listing.answer(request, rows))


QUICK: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: row.exchange.name,
    "vhost": lambda row: row.vhost.name,
    "type": lambda row: row.exchange.type,
    "durable": lambda row: row.exchange.durable,
    "auto_delete": lambda row: row.exchange.auto_delete,
    "internal": lambda row: row.exchange.internal,
    "arguments": lambda row: row.exchange.arguments,
}


def show(request: Request) -> Steps[Answer]:
    it = exchange_of(request)
    yield from request.context.counts.refreshing()
    found = exchange(request.context, request.vhost(), it, ranges_of(request.query))
    return alone(request, {**found, "incoming": [], "outgoing": []})  # of RabbitMQ's rates mode "detailed"


def declare(request: Request) -> Answer:
    vhost, body = request.vhost(), request.object()
    name = new_name("exchange", exchange_name(request.names["exchange"]))
    kind, arguments = field(body, "type", str, "direct"), table(body, "arguments")
    if kind not in vhost.router.types:
        raise bad_request(f"unknown exchange type '{kind}'")
    new = not vhost.router.has_exchange(name)
    request.user.access(vhost).declare_exchange(name, kind, arguments)
    vhost.declare_exchange(
        name,
        kind,
        passive=False,
        durable=boolean(body, "durable"),
        auto_delete=boolean(body, "auto_delete"),
        internal=boolean(body, "internal"),
        arguments=arguments,
        user=request.user.name,
    )
    return created(new)


def delete(request: Request) -> Steps[Answer]:
    vhost, name = request.vhost(), exchange_name(request.names["exchange"])
    if not vhost.router.has_exchange(name):
        raise not_found()
    request.user.access(vhost).delete_exchange(name)
    if request.flag("if-unused"):
        vhost.check_unused(name)
    yield from vhost.deleting_exchange(name, user=request.user.name)
    return NO_CONTENT
