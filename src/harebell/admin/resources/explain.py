"""Where a message with this key and these headers would go, and why: nothing is published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from harebell.admin.answers import Answer, Refused
from harebell.admin.http.endpoint import NOT_AUTHORISED
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.messages import properties_of
from harebell.admin.resources.objects import alone, exchange_of
from harebell.admin.shapes.exchanges import binding
from harebell.broker.auth import Access
from harebell.broker.forwarding import hashed_properties, whole_message
from harebell.broker.operations.publishing import check_publication
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError
from harebell.protocol.v091 import Properties
from harebell.routing import Binding, Exchange, cc_bcc
from harebell.routing.exchanges.reasons import reason
from harebell.routing.explain import Reached, Step, explaining
from harebell.routing.steps import Steps
from harebell.routing.table_values import Table
from harebell.routing.wire_limits import check_key

__all__ = ["explain"]

MOST_SHOWN: Final = 1_000  # bindings of one exchange
STEP: Final = 64  # bindings, by keys, whose reasons are found in one step


def explain(request: Request) -> Steps[Answer]:
    """The exchanges and bindings that a message would follow, and its queues; CC and BCC are among its headers.

    Of each exchange that does not delay the message, `misses` bindings that do not match are shown too. `user` is the
    one that publishes, whose permissions are checked; one other than who asks is for administrators.
    """
    vhost, exchange = request.vhost(), exchange_of(request).name
    key, given = request.query.get("routing_key", ""), request.object_in("properties")
    headers = request.object_in("headers")
    misses = request.whole_number_in("misses", 0, most=MOST_SHOWN)
    properties = properties_of({**given, "headers": {**field(given, "headers", dict, {}), **headers}})
    check_key(key, "routing_key")
    headers = dict(properties.headers or {})
    payload = request.query.get("payload", "").encode()
    permission = _permission(request, vhost, exchange, key, properties, len(payload))
    whole = whole_message(properties, b"")
    found = yield from explaining(
        vhost.router,
        exchange,
        (key, *cc_bcc(headers)),
        headers,
        {**hashed_properties(properties), **whole["properties"]},  # type: ignore[dict-item]  # a table
        payload,
    )
    steps = list[dict[str, Any]]()
    for step in found.steps:
        steps.append((yield from _shown(vhost, step, found.routing_keys, headers, misses)))
    queues = list[dict[str, Any]]()
    for number, each in enumerate(found.queues, 1):
        queues.append(_queue(vhost, each))
        if not number % STEP:
            yield
    return alone(
        request,
        {
            "vhost": vhost.name,
            "exchange": found.exchange,
            "routing_keys": found.routing_keys,
            "permission": permission,
            "steps": steps,
            "queues": queues,
        },
    )


def _permission(
    request: Request, vhost: VirtualHost, exchange: str, key: str, properties: Properties, size: int
) -> dict[str, Any]:
    """Whether the user may publish the message, and the broker's reason if not."""
    name, node = request.query.get("user", request.user.name), request.node
    if name != request.user.name and not request.user.administers:
        raise Refused(401, NOT_AUTHORISED, "Not administrator user: what another user may do is not told")
    found = {"user": name, "allowed": True, "reason": ""}
    if name not in node.users.users:
        return {**found, "allowed": False, "reason": f"there is no user '{name}'"}
    access = Access(node.users, name, vhost.name, vhost.router)
    try:
        check_publication(access, exchange, key, properties, size, max_size=node.limits.max_message_size)
    except AmqpError as error:
        found |= {"allowed": False, "reason": str(error)}
    return found


def _queue(vhost: VirtualHost, reached: Reached) -> dict[str, Any]:
    """A queue that is reached, with the policies and limits in force there."""
    found: dict[str, Any] = {"name": reached.queue, "certain": reached.certain}
    it = vhost.queues.get(reached.queue)
    if it is None:
        return found
    policy, operator_policy = vhost.policies.in_force(it.name, it.settings.queue_type)
    found |= {
        "type": it.type,
        "messages_ready": it.message_count,
        "consumers": len(it.consumers),
        "policy": None if policy is None else policy.name,
        "operator_policy": None if operator_policy is None else operator_policy.name,
    }
    limits = ("max_length", "max_length_bytes", "overflow", "message_ttl", "dead_letter_exchange")
    settings = {name: getattr(it.settings, name) for name in limits}
    return found | {"limits": {name: value for name, value in settings.items() if value is not None}}


def _shown(vhost: VirtualHost, step: Step, keys: Sequence[str], headers: Table, misses: int) -> Steps[dict[str, Any]]:
    """A step. Of more than MOST_SHOWN bindings that match only the first ones are shown; `matched` counts all."""
    at = vhost.router.exchange(step.exchange) if vhost.router.has_exchange(step.exchange) else None
    pause = max(1, STEP // len(keys))
    matches = list[dict[str, Any]]()
    for number, (each, again) in enumerate(step.hops[:MOST_SHOWN], 1):
        why = "" if at is None else reason(at, each, keys, headers, matches=True)
        matches.append({**binding(vhost.name, each), "again": again, "reason": why})
        if not number % pause:
            yield
    found: dict[str, Any] = {
        "exchange": step.exchange,
        "type": step.type,
        "certain": step.certain,
        "outcome": step.outcome,
        "bindings": step.bindings,
        "matched": len(step.hops),
        "matches": matches,
    }
    if misses and at is not None and step.outcome != "delayed":
        found["misses"] = []
        for number, each in enumerate(islice(_others(at, step), misses), 1):
            shown = {**binding(vhost.name, each), "reason": reason(at, each, keys, headers, matches=False)}
            found["misses"].append(shown)
            if not number % pause:
                yield
    yield
    if step.chosen_by:
        found["chosen_by"] = step.chosen_by
    if step.alternate is not None:
        found["alternate"], found["alternate_exists"] = step.alternate, step.alternate_exists
    if step.delay:
        found["delay"] = step.delay
    return found


def _others(at: Exchange, step: Step) -> Iterator[Binding]:
    """The bindings of the exchange that do not match."""
    matched = {hop.binding.identity for hop in step.hops}
    return (each for each in at.bindings() if each.identity not in matched)
