"""The stream of events: rows of objects with their rates, and changes, as `live.feed` has them."""

from __future__ import annotations

from typing import Final

from harebell.admin.answers import Stream, bad_request
from harebell.admin.http.requests import Request
from harebell.admin.live.feed import CHANGES

__all__ = ["stream"]

MEDIA: Final = "text/event-stream; charset=utf-8"


def stream(request: Request) -> Stream:
    """Events without an end, of the topics in the parameter `topics`: changes, unless it names others."""
    context = request.context
    topics = tuple(dict.fromkeys(request.query.get("topics", CHANGES).split(",")))
    for name in topics:
        if name not in context.feed.topics:
            raise bad_request(f"topics are of {', '.join(context.feed.topics)}, not '{name}'")
    return Stream(context.feed.stream(request.user, topics, context.gate.watch(request.user)), MEDIA)
