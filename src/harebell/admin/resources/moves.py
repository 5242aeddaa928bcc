"""All messages of a queue moved into another one, and a purge that can be undone because it does that.

A purge with `keep` moves the messages into a queue of its own, which is deleted when nobody has used it for so many
seconds. Until then a move back undoes the purge.
"""

from __future__ import annotations

import time
from typing import Final

from harebell.admin.answers import Answer, bad_request, to_json
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.objects import Operator, number, queue_of, wait_safe
from harebell.broker.operations.messages import moving_all
from harebell.broker.queues.base import Queue
from harebell.errors import NotFound
from harebell.protocol.v091 import Table
from harebell.routing.steps import Steps

__all__ = ["move_all", "purge_kept"]

LONGEST_KEEP: Final = 7 * 24 * 3600  # seconds
LONGEST_NAME: Final = 255  # bytes


def move_all(request: Request) -> Steps[Answer]:
    """Move ready messages to the end of another queue, all that are there now or at most `limit`, as they are."""
    body = request.object()
    vhost, name = request.vhost(), field(body, "destination", str)
    limit = number(body, "limit", least=1) if "limit" in body else None
    if unknown := body.keys() - {"destination", "limit"}:
        raise bad_request(f"unknown field '{min(unknown)}'")
    it = _readable(request)
    request.user.access(vhost).publish("", name)
    target = vhost.queues.get(name)
    if target is None or target.deleted:
        raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")
    target.check_access(Operator(request.user.name))
    if target is it:
        raise bad_request(f"'{name}' is the queue itself")
    moved = yield from moving_all(it, target, limit)
    yield from wait_safe(request.node)
    return to_json({"count": moved})


def purge_kept(request: Request) -> Steps[Answer]:
    """Empty a queue into a new one, which is named in the answer."""
    seconds = request.whole_number_in("keep", 0, least=1)
    if seconds > LONGEST_KEEP:
        raise bad_request(f"keep is a number of seconds up to {LONGEST_KEEP}, a week")
    vhost, it = request.vhost(), _readable(request)
    made = f".purged.{time.time_ns() // 1_000_000}"
    name = it.name.encode()[: LONGEST_NAME - len(made)].decode("utf-8", "ignore") + made
    arguments: Table = {"x-expires": seconds * 1000}
    access = request.user.access(vhost)
    access.declare_queue(name, arguments, new=True, server_named=False)
    access.publish("", name)
    kept = vhost.declare_queue(
        Operator(request.user.name), name, durable=it.durable, exclusive=False, auto_delete=False, arguments=arguments
    )
    moved = yield from moving_all(it, kept)
    yield from wait_safe(request.node)
    return to_json({"queue": name, "count": moved})


def _readable(request: Request) -> Queue:
    it = queue_of(request)
    request.user.access(request.vhost()).read_queue("purge", it.name)
    it.check_access(Operator(request.user.name))
    if it.type == "stream":
        raise bad_request(f"{it} is a stream: its messages stay")
    return it
