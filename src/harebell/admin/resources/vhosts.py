"""Virtual hosts: lists, one of them, create, change, delete; and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harebell.admin.answers import Answer, not_found
from harebell.admin.history.ranges import ranges_of
from harebell.admin.http.requests import Request, boolean, field
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, alone, created, listed, number
from harebell.admin.resources.users import tags_of
from harebell.admin.shapes.vhosts import vhost
from harebell.broker.operations.firehose import set_tracing
from harebell.broker.vhost import VirtualHost
from harebell.routing import definitions as records
from harebell.routing.steps import Steps

__all__ = [
    "clear_limit", "delete", "limits", "limits_of", "list_all", "put", "set_limit", "show", "start",
]  # fmt: skip


def list_all(request: Request) -> Steps[Answer]:
    context, ranges = request.context, ranges_of(request.query)
    yield from context.counts.refreshing()
    listing: Listing[VirtualHost] = Listing(
        shape=lambda it: vhost(context, it, ranges), order=lambda it: it.name, name=lambda it: it.name
    )
    return (yield from listing.answer(request, request.user.seen()))


def show(request: Request) -> Steps[Answer]:
    it = request.vhost()
    yield from request.context.counts.refreshing()
    return alone(request, vhost(request.context, it, ranges_of(request.query)))


def put(request: Request) -> Answer:
    """Create a virtual host, in which its creator gets all permissions, or change one.

    A description and tags that the body does not have become empty, as with RabbitMQ; the type of queues stays.
    """
    node, name, body = request.node, request.names["vhost"], request.object()
    new = name not in node.vhosts
    definition = records.VirtualHost(name) if new else node.vhosts[name].definition
    changes: dict[str, Any] = {
        "description": field(body, "description", str, ""), "tags": tags_of(body.get("tags", [])), "metadata": None,
    }  # fmt: skip
    if "default_queue_type" in body:
        changes["default_queue_type"] = field(body, "default_queue_type", str, None)
    traced = not new and node.vhosts[name].trace is not None
    tracing = boolean(body, "tracing", traced)
    node.add_vhost(replace(definition, **changes))
    if new:
        node.users.set_permission(records.Permission(name, request.user.name, ".*", ".*", ".*"))
    if tracing is not traced:
        set_tracing(node, name, tracing)
    return created(new)


def delete(request: Request) -> Steps[Answer]:
    it = request.vhost()
    yield from request.node.deleting_vhost(it.name)
    return NO_CONTENT


def start(request: Request) -> Answer:
    """RabbitMQ starts a virtual host again that failed: here each of them runs."""
    request.vhost()
    if request.names["node"] != request.node.name:
        raise not_found()
    return NO_CONTENT


# -- limits


def limits(request: Request) -> Answer:
    found = [_limits(request, each.name) for each in request.user.seen()]
    return listed(request, [each for each in found if each["value"]])


def limits_of(request: Request) -> Answer:
    found = _limits(request, request.vhost().name)
    return listed(request, [found] if found["value"] else [])


def _limits(request: Request, name: str) -> dict[str, Any]:
    return {"vhost": name, "value": request.node.parameters.limits(name)}


def set_limit(request: Request) -> Answer:
    name = request.vhost().name
    now = dict(request.node.parameters.limits(name))
    request.node.parameters.set_limits(name, {**now, request.names["name"]: limit_of(request.object())})
    return NO_CONTENT


def limit_of(body: Mapping[str, Any]) -> int:
    return number(body, "value", least=-1)


def clear_limit(request: Request) -> Answer:
    parameters, name = request.node.parameters, request.vhost().name
    now = dict(parameters.limits(name))
    if now.pop(request.names["name"], None) is not None:
        if now:
            parameters.set_limits(name, now)
        else:
            parameters.clear(name, "vhost-limits", "limits")
    return NO_CONTENT
