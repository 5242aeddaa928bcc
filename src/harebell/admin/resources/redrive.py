"""Dead letters sent back: from the queue that has them to those in which they died last."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from harebell.admin.answers import Answer, bad_request, to_json
from harebell.admin.http.requests import Request, boolean, field
from harebell.admin.resources.objects import Operator, number, queue_of, wait_safe
from harebell.broker.message import Held
from harebell.broker.operations.messages import examining, moving
from harebell.broker.queues.base import Queue
from harebell.errors import PreconditionFailed
from harebell.routing.dead_letter import deaths
from harebell.routing.steps import Steps

__all__ = ["redrive"]

LIMIT: Final = 100  # letters of one request, and ...
MOST: Final = 10_000  # ... at most


class _Letter(NamedTuple):
    position: int
    target: str


def redrive(request: Request) -> Steps[Answer]:
    """Move letters to the end of the queues in which they died last; with `dry_run` only say which would go where.

    `limit` is the number of letters; `reason` and `from` choose them by their last death.
    """
    body = request.object()
    limit = number(body, "limit", least=1) if "limit" in body else LIMIT
    dry_run = boolean(body, "dry_run")
    reason, source = field(body, "reason", str, ""), field(body, "from", str, "")
    unknown = body.keys() - {"limit", "dry_run", "reason", "from"}
    if unknown:
        raise bad_request(f"unknown field '{min(unknown)}'")
    it, vhost = queue_of(request), request.vhost()
    access = request.user.access(vhost)
    access.read_queue("get", it.name)
    it.check_access(Operator(request.user.name))
    if it.type == "stream":
        raise bad_request(f"{it} is a stream: its messages stay")
    letters, left = yield from _letters(it, min(limit, MOST), reason, source)
    for name in dict.fromkeys(letter.target for letter in letters):
        target = vhost.queues.get(name)
        if target is not None:
            access.publish("", name)
            target.check_access(Operator(request.user.name))
    moved = Counter[str]()
    for letter in letters:
        target = vhost.queues.get(letter.target)
        if target is None or target.deleted:
            left["queue is gone"] += 1
        elif dry_run:
            moved[letter.target] += 1
        else:
            try:
                moved[letter.target] += yield from moving(it, letter.position, target)
            except PreconditionFailed:
                left["queue is full"] += 1
            yield
    if not dry_run:
        yield from wait_safe(request.node)
    return to_json({"dry_run": dry_run, "count": moved.total(), "queues": +moved, "left": left})


def _letters(it: Queue, limit: int, reason: str, source: str) -> Steps[tuple[list[_Letter], Counter[str]]]:
    """The first letters that are wanted, and why others before them stay where they are."""
    found, left = list[_Letter](), Counter[str]()

    def look(held: Held) -> bool:
        history = deaths(held.message.content.decode_properties().headers or {})
        if not history:
            left["no dead letter"] += 1
        elif (reason and history[0].reason != reason) or (source and history[0].queue != source):
            left["not chosen"] += 1
        elif history[0].queue == it.name:
            left["died in this queue"] += 1
        else:
            found.append(_Letter(held.position, history[0].queue))
        return len(found) < limit

    yield from examining(it, look)
    return found, left
