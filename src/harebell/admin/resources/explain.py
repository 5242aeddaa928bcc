"""Where a message with this key and these headers would go, and why: nothing is published."""

from __future__ import annotations

from typing import Any, Final

from harebell.admin.answers import Answer
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.messages import properties_of
from harebell.admin.resources.objects import alone, exchange_of
from harebell.admin.shapes.exchanges import binding
from harebell.broker.forwarding import hashed_properties, whole_message
from harebell.routing import cc_bcc
from harebell.routing.explain import Step, explaining
from harebell.routing.steps import Steps
from harebell.routing.wire_limits import check_key

__all__ = ["explain"]

MOST_SHOWN: Final = 1_000  # bindings of one exchange


def explain(request: Request) -> Steps[Answer]:
    """The exchanges and bindings that a message would follow, and its queues; CC and BCC are among its headers."""
    vhost, exchange = request.vhost(), exchange_of(request).name
    key, given = request.query.get("routing_key", ""), request.object_in("properties")
    headers = request.object_in("headers")
    properties = properties_of({**given, "headers": {**field(given, "headers", dict, {}), **headers}})
    check_key(key, "routing_key")
    headers = dict(properties.headers or {})
    whole = whole_message(properties, b"")
    found = yield from explaining(
        vhost.router,
        exchange,
        (key, *cc_bcc(headers)),
        headers,
        {**hashed_properties(properties), **whole["properties"]},  # type: ignore[dict-item]  # a table
        request.query.get("payload", "").encode(),
    )
    steps = list[dict[str, Any]]()
    for step in found.steps:
        steps.append(_shown(vhost.name, step))
        yield
    return alone(
        request,
        {
            "vhost": vhost.name,
            "exchange": found.exchange,
            "routing_keys": found.routing_keys,
            "steps": steps,
            "queues": [{"name": name, "certain": certain} for name, certain in found.queues],
        },
    )


def _shown(vhost: str, step: Step) -> dict[str, Any]:
    """A step. Of more than MOST_SHOWN bindings that match only the first ones are shown; `matched` counts all."""
    found: dict[str, Any] = {
        "exchange": step.exchange,
        "type": step.type,
        "certain": step.certain,
        "outcome": step.outcome,
        "bindings": step.bindings,
        "matched": len(step.hops),
        "matches": [{**binding(vhost, each), "again": again} for each, again in step.hops[:MOST_SHOWN]],
    }
    if step.chosen_by:
        found["chosen_by"] = step.chosen_by
    if step.alternate is not None:
        found["alternate"], found["alternate_exists"] = step.alternate, step.alternate_exists
    if step.delay:
        found["delay"] = step.delay
    return found
