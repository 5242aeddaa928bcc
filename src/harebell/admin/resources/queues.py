"""Queues: lists, one queue, declare, change, delete, purge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from harebell.admin.answers import Answer, bad_request, not_found
from harebell.admin.history.ranges import ranges_of
from harebell.admin.http.requests import Request, boolean, field
from harebell.admin.listing import Listing
from harebell.admin.resources.moves import check_conditions, delete_kept, purge_kept
from harebell.admin.resources.objects import NO_CONTENT, Operator, alone, created, gathered, new_name, queue_of
from harebell.admin.shapes.queues import queue, queue_alone
from harebell.broker.queues.base import Queue
from harebell.broker.queues.changes import changed_arguments
from harebell.broker.vhost import VirtualHost
from harebell.routing.steps import Steps

__all__ = ["actions", "change", "declare", "delete", "list_all", "list_of_vhost", "purge", "show"]


class Row(NamedTuple):
    """A queue with its virtual host."""

    vhost: VirtualHost
    queue: Queue


def list_all(request: Request) -> Steps[Answer]:
    return (yield from _list(request, request.user.seen()))


def list_of_vhost(request: Request) -> Steps[Answer]:
    return (yield from _list(request, [request.vhost()]))


def _list(request: Request, vhosts: list[VirtualHost]) -> Steps[Answer]:
    context, ranges = request.context, ranges_of(request.query)
    if not request.flag("disable_stats"):
        yield from context.counts.refreshing()
    rows = list[Row]()
    for vhost in vhosts:
        there = tuple(vhost.queues.values())
        rows += yield from gathered(Row(vhost, each) for each in there if not each.deleted)
    unacked = context.counts.unacked
    totals: dict[str, Callable[[Row], Any]] = {
        "messages_ready": lambda row: row.queue.message_count,
        "messages_unacknowledged": lambda row: unacked[row.queue],
        "messages": lambda row: row.queue.message_count + unacked[row.queue],
    }
    shape: Callable[[Row], dict[str, Any]] = lambda row: queue(context, row.vhost, row.queue, ranges)  # noqa: E731
    if request.flag("disable_stats"):
        about = {**QUICK, **totals} if request.flag("enable_queue_totals") else QUICK
        shape = lambda row: {name: take(row) for name, take in about.items()}  # noqa: E731
    listing: Listing[Row] = Listing(
        shape=shape,
        order=lambda row: (row.vhost.name, row.queue.name),
        name=lambda row: row.queue.name,
        quick={**QUICK, **totals},
    )
    return (yield from listing.answer(request, rows))


QUICK: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: row.queue.name,
    "vhost": lambda row: row.vhost.name,
    "type": lambda row: row.queue.type,
    "durable": lambda row: row.queue.durable,
    "auto_delete": lambda row: row.queue.auto_delete,
    "exclusive": lambda row: row.queue.exclusive,
    "arguments": lambda row: row.queue.arguments,
    "consumers": lambda row: len(row.queue.consumers),
    "state": lambda row: "running",
}
"""The columns that cost little."""


def show(request: Request) -> Steps[Answer]:
    it = queue_of(request)
    yield from request.context.counts.refreshing()
    return alone(request, queue_alone(request.context, request.vhost(), it, ranges_of(request.query)))


def declare(request: Request) -> Answer:
    """Declare a queue, as queue.declare does; it is durable only if the body says so."""
    vhost, name, body = request.vhost(), new_name("queue", request.names["queue"]), request.object()
    arguments = table(body, "arguments")
    new = name not in vhost.queues
    request.user.access(vhost).declare_queue(name, arguments, new=new, server_named=False)
    vhost.declare_queue(
        Operator(request.user.name),
        name,
        durable=boolean(body, "durable"),
        exclusive=False,
        auto_delete=boolean(body, "auto_delete"),
        arguments=arguments,
    )
    return created(new)


def table(body: dict[str, Any], name: str) -> dict[str, Any]:
    """A field of the body that is a table; an empty list means an empty one, as some clients write it."""
    value = body.get(name)
    if value in (None, []):
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} must be an object")
    return value


def change(request: Request) -> Answer:
    """Change arguments of a queue in place: those in the body; null removes one."""
    vhost, it = request.vhost(), queue_of(request)
    arguments = table(request.object(), "arguments")
    access = request.user.access(vhost)
    access.declare_queue(it.name, {}, new=False, server_named=True)
    access.dead_letter(it.name, changed_arguments(it, arguments))
    vhost.change_queue(it.name, arguments, Operator(request.user.name))
    return alone(request, {"name": it.name, "vhost": vhost.name, "arguments": it.arguments})


def delete(request: Request) -> Steps[Answer]:
    """Delete it; with `keep`, move its messages into a queue that is there for so many seconds before."""
    if "keep" in request.query:
        return (yield from delete_kept(request))
    vhost, name = request.vhost(), request.names["queue"]
    if name not in vhost.queues:
        raise not_found()
    request.user.access(vhost).delete_queue(name)
    it = vhost.queue(name, Operator(request.user.name))
    check_conditions(request, it)
    yield from vhost.deleting_queue(it, user=request.user.name)
    return NO_CONTENT


def purge(request: Request) -> Steps[Answer]:
    """Drop the ready messages; with `keep`, move them into a queue that is there for so many seconds."""
    if "keep" in request.query:
        return (yield from purge_kept(request))
    vhost, it = request.vhost(), queue_of(request)
    request.user.access(vhost).read_queue("purge", it.name)
    it.check_access(Operator(request.user.name))
    yield from it.purging()
    return NO_CONTENT


def actions(request: Request) -> Answer:
    """RabbitMQ's actions on mirrored queues: there is nothing to synchronise here."""
    queue_of(request)
    action = field(request.object(), "action", str)
    if action not in ("sync", "cancel_sync"):
        raise bad_request(f"unknown action '{action}'")
    return NO_CONTENT
