"""Single messages of a queue: browse, which takes nothing out, and drop, copy or move one by its position."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from harebell.admin.answers import Answer, bad_request, not_found, to_json
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.messages import ENCODINGS, MOST_BYTES
from harebell.admin.resources.objects import NO_CONTENT, Operator, nameable, queue_of, wait_safe
from harebell.admin.shapes.messages import message
from harebell.broker.message import Held
from harebell.broker.operations.messages import browsing, copying, dropping, moving
from harebell.broker.queues.base import Queue
from harebell.errors import NotFound
from harebell.routing.selectors import BadSelector, parse_selector
from harebell.routing.steps import Steps

__all__ = ["browse", "copy", "drop", "move"]

LIMIT: Final = 50  # messages in one answer, and ...
MOST: Final = 500  # ... at most


def _readable(request: Request) -> Queue:
    """The queue in the path, which the user may read. Raises Refused, or the broker's error."""
    it = queue_of(request)
    request.user.access(request.vhost()).read_queue("get", it.name)
    it.check_access(Operator(request.user.name))
    return it


def browse(request: Request) -> Steps[Answer]:
    """Ready messages in the order of their delivery; nothing is taken, marked or counted."""
    offset, limit = request.whole_number_in("offset", 0), request.whole_number_in("limit", LIMIT, least=1, most=MOST)
    cut = request.whole_number_in("truncate", 0) if "truncate" in request.query else None
    encoding = request.query.get("encoding", "auto")
    if encoding not in ENCODINGS:
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    try:
        selector = parse_selector(request.query.get("filter", ""))
    except BadSelector as error:
        raise bad_request(f"filter: {error}") from None
    it = _readable(request)
    found = yield from browsing(it, offset=offset, limit=limit, most_bytes=MOST_BYTES, selector=selector)
    now = time.time_ns() // 1_000_000 - it.timers.now()
    items = [_shown(each, encoding, cut, now) for each in found.messages]
    return to_json({"items": items, "next_offset": found.next_offset})


def _shown(held: Held, encoding: str, cut: int | None, now: int) -> dict[str, Any]:
    found = message(held, 0, encoding, cut, redelivered=held.count > 0)
    del found["message_count"]
    found |= {"position": held.position, "priority": held.priority, "delivery_count": held.count}
    if held.deadline:
        found["expires"] = now + held.deadline
    return found


def drop(request: Request) -> Steps[Answer]:
    """Drop a ready message."""
    position, it = _position(request), _readable(request)
    if not (yield from dropping(it, position)):
        raise not_found()
    it.sync_settlements()
    yield from wait_safe(request.node)
    return NO_CONTENT


def copy(request: Request) -> Steps[Answer]:
    return (yield from _to_another(request, copying))


def move(request: Request) -> Steps[Answer]:
    return (yield from _to_another(request, moving))


def _to_another(request: Request, work: Callable[[Queue, int, Queue], Steps[bool]]) -> Steps[Answer]:
    """Copy or move a ready message; the answer comes when it is on the disk in its new queue."""
    vhost = request.vhost()
    name = nameable("queue", field(request.object(), "destination", str), vhost.name)
    position, it = _position(request), _readable(request)
    request.user.access(vhost).publish("", name)
    target = vhost.queues.get(name)
    if target is None or target.deleted:
        raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")
    target.check_access(Operator(request.user.name))
    if not (yield from work(it, position, target)):
        raise not_found()
    yield from wait_safe(request.node)
    return NO_CONTENT


def _position(request: Request) -> int:
    text = request.names["position"]
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise not_found()
    return int(text)
