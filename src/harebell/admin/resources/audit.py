"""The audit log: its records, newest first, for those who may see them."""

from __future__ import annotations

from typing import Any, Final

from harebell.admin.answers import Answer, bad_request
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.admin.live.acts import record, sees
from harebell.broker.audit import Act
from harebell.routing.steps import Steps

__all__ = ["listed"]

STEP: Final = 512  # records looked at in one step
EXACT: Final = ("user", "vhost", "kind", "act", "outcome")

LISTING: Final[Listing[Act]] = Listing(shape=record, order=lambda it: -it.number, name=lambda it: it.name)


def listed(request: Request) -> Steps[Answer]:
    """The records that the parameters leave. Raises Refused for a time that is no number."""
    query, user = request.query, request.user
    since, until = _time(query, "since", 0), _time(query, "until", 1 << 62)
    wanted = [(each, query[each]) for each in EXACT if each in query]
    name = "" if "page" in query else query.get("name", "").lower()
    found = list[Act]()
    for number, it in enumerate(tuple(request.node.events.audit.acts)):
        if not number % STEP:
            yield
        if since <= it.at <= until and name in it.name.lower() and sees(user, it):
            if all(getattr(it, field) == value for field, value in wanted):
                found.append(it)
    return (yield from LISTING.answer(request, found))


def _time(query: Any, name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise bad_request(f"{name} is a time in milliseconds since 1970, not '{text[:40]}'")
    return int(text)
