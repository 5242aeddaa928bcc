"""All messages of a queue moved into another one, and purges and deletions that can be undone because they do that.

With `keep` the messages go into a queue of their own, which is deleted when nobody has used it for so many seconds. No
policy applies there: they stay what they are.
Until then a move back undoes the purge; after a deletion the queue is declared and bound again before, as the answer
says that it was.
"""

from __future__ import annotations

import time
from typing import Final

from harebell.admin.answers import Answer, bad_request, to_json
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.objects import Operator, nameable, number, queue_of, wait_safe
from harebell.broker.operations.definitions import json_table
from harebell.broker.operations.messages import moving_all, withdrawing
from harebell.broker.queues.base import Queue
from harebell.errors import NotFound, PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.routing import to_queue
from harebell.routing.naming import kept_name
from harebell.routing.steps import Steps

__all__ = ["check_conditions", "delete_kept", "move_all", "purge_kept"]

LONGEST_KEEP: Final = 7 * 24 * 3600  # seconds


def move_all(request: Request) -> Steps[Answer]:
    """Move ready messages to the end of another queue, all that are there now or at most `limit`, as they are."""
    body = request.object()
    vhost = request.vhost()
    name = nameable("queue", field(body, "destination", str), vhost.name)
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
    moved = yield from moving_all(it, target, it.message_count if limit is None else limit)
    yield from wait_safe(request.node)
    return to_json({"count": moved})


def purge_kept(request: Request) -> Steps[Answer]:
    """Empty a queue into a new one, which is named in the answer."""
    kept, moved = yield from _keeping(request, _readable(request), all_of_them=False)
    yield from wait_safe(request.node)
    return to_json({"queue": kept.name, "count": moved})


def delete_kept(request: Request) -> Steps[Answer]:
    """Delete a queue after its messages were moved into a new one; the answer has what it takes to make it again.

    Conditions are checked before. Messages that consumers have are lost, as in any deletion.
    """
    vhost, it = request.vhost(), _readable(request)
    access = request.user.access(vhost)
    access.delete_queue(it.name)
    check_conditions(request, it)
    bindings = [
        {"source": each.source, "routing_key": each.binding_key, "arguments": json_table(each.arguments)}
        for each in vhost.router.bindings_to(to_queue(it.name))
    ]
    definition = {"durable": it.durable, "auto_delete": it.auto_delete, "arguments": json_table(it.arguments)}
    kept, moved = yield from _keeping(request, it, all_of_them=True)
    yield from vhost.deleting_queue(it, user=request.user.name)
    yield from wait_safe(request.node)
    return to_json({"queue": kept.name, "count": moved, "definition": definition, "bindings": bindings})


def check_conditions(request: Request, it: Queue) -> None:
    """Raise PreconditionFailed unless the conditions of a deletion hold: if-empty and if-unused."""
    if request.flag("if-empty") and not it.is_empty:
        raise PreconditionFailed(f"{it} not empty")
    if request.flag("if-unused") and len(it.consumers):
        raise PreconditionFailed(f"{it} in use")


def _keeping(request: Request, it: Queue, *, all_of_them: bool) -> Steps[tuple[Queue, int]]:
    """The new queue that has the messages now, and how many there are."""
    seconds = request.whole_number_in("keep", 0, least=1)
    if seconds > LONGEST_KEEP:
        raise bad_request(f"keep is a number of seconds up to {LONGEST_KEEP}, a week")
    vhost = request.vhost()
    name = kept_name(it.name, time.time_ns() // 1_000_000)
    arguments: Table = {"x-expires": seconds * 1000, "x-queue-type": "classic"}
    access = request.user.access(vhost)
    access.keep_queue(it.name)
    access.publish("", name)
    kept = vhost.declare_queue(
        Operator(request.user.name), name, durable=it.durable, exclusive=False, auto_delete=False, arguments=arguments,
        server_named=True,
    )  # fmt: skip
    moved = yield from withdrawing(it, kept, all_of_them=all_of_them)
    return kept, moved


def _readable(request: Request) -> Queue:
    it = queue_of(request)
    request.user.access(request.vhost()).read_queue("purge", it.name)
    it.check_access(Operator(request.user.name))
    if it.type == "stream":
        raise bad_request(f"{it} is a stream: its messages stay")
    return it
