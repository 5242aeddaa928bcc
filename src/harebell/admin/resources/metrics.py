"""Metrics for Prometheus: the sums, a sample for each object, or the tables that are asked for."""

from __future__ import annotations

from harebell.admin.answers import Answer, bad_request
from harebell.admin.http.requests import Request
from harebell.admin.metrics.exposition import MEDIA, Page
from harebell.admin.metrics.families import TABLES, Objects, detailed, per_object, totals
from harebell.broker.patterns import PATTERNS
from harebell.routing.steps import Steps

__all__ = ["aggregated", "chosen", "of_objects"]


def aggregated(request: Request) -> Steps[Answer]:
    return (yield from _answer((yield from totals(request.context))))


def of_objects(request: Request) -> Steps[Answer]:
    return (yield from _answer((yield from per_object(request.context))))


def chosen(request: Request) -> Steps[Answer]:
    """The tables of the parameters `family`; of the virtual hosts `vhost`, and of queues that match `queue`."""
    tables = list(dict.fromkeys(request.all("family")))
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        raise bad_request(f"unknown family '{unknown[0]}': there are {', '.join(TABLES)}")
    names, vhosts = request.all("vhost"), request.node.vhosts
    chosen = [vhosts[name] for name in dict.fromkeys(names) if name in vhosts] if names else list(vhosts.values())
    patterns, matches = request.all("queue"), None
    if len(patterns) > 1:
        raise bad_request("there is more than one parameter queue")
    if patterns:
        if (problem := PATTERNS.problem(patterns[0])) is not None:
            raise bad_request(f"the pattern of queue cannot be used: {problem}")
        matches = PATTERNS.search(patterns[0])
    return (yield from _answer((yield from detailed(request.context, tables, Objects(chosen, matches)))))


def _answer(page: Page) -> Steps[Answer]:
    return Answer(200, (yield from page.encoding()), media=MEDIA)
