"""Messages: publish one to an exchange, get some from a queue, as RabbitMQ's console does."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from harebell.admin.answers import Answer, bad_request, to_json
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.objects import Operator, exchange_name, number, wait_safe
from harebell.admin.shapes.messages import message
from harebell.broker.operations.messages import Outcome, getting
from harebell.broker.operations.publishing import publishing
from harebell.errors import NotFound
from harebell.protocol.v091 import Properties
from harebell.routing.steps import Steps

__all__ = ["get", "properties_of", "publish"]

MODES: Final[Mapping[str, Outcome]] = {
    "ack_requeue_true": "requeue",
    "ack_requeue_false": "ack",
    "reject_requeue_true": "reject_requeue",
    "reject_requeue_false": "reject",
}
ENCODINGS: Final = ("auto", "base64")
MOST_GOT: Final = 10_000  # messages in one answer, and ...
MOST_BYTES: Final = 64 << 20  # ... bytes of their bodies
TEXTS: Final = frozenset(
    {
        "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
        "app_id",
    }
)  # fmt: skip
NUMBERS: Final = {"delivery_mode": 255, "priority": 255, "timestamp": (1 << 63) - 1}


def publish(request: Request) -> Steps[Answer]:
    """Publish one message; the answer comes when it is on the disk in every durable queue that it was routed to."""
    vhost, body = request.vhost(), request.object()
    exchange = exchange_name(request.names["exchange"])
    properties = properties_of(field(body, "properties", (dict, list)))
    routing_key, payload = field(body, "routing_key", str), field(body, "payload", str)
    encoding = field(body, "payload_encoding", str)
    if not vhost.router.has_exchange(exchange):
        raise NotFound(f"no exchange '{exchange}' in vhost '{vhost.name}'")
    done = yield from publishing(
        vhost,
        request.user.access(vhost),
        exchange,
        routing_key,
        properties,
        _decoded(payload, encoding),
        max_size=request.node.limits.max_message_size,
        origin="HTTP API",
    )
    if done.stored:
        yield from wait_safe(request.node)
    return to_json({"routed": done.routed and done.accepted})


def _decoded(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"unsupported_encoding: payload_encoding is 'string' or 'base64', not '{encoding}'")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("not_base64: the payload") from None


def properties_of(given: Mapping[str, Any] | list[Any]) -> Properties:
    """The properties of a message, from JSON; unknown ones have no meaning. Raises Refused for one of a wrong type."""
    if not isinstance(given, dict):
        if given:
            raise bad_request("properties must be an object")
        return Properties()
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name == "headers":
            if value and not isinstance(value, dict):
                raise bad_request("not_a_table: headers")
            found[name] = value or {}
        elif name in TEXTS:
            if not isinstance(value, str):
                raise bad_request(f"not_a_string: {name}")
            found[name] = value
        elif name in NUMBERS:
            found[name] = _number(name, value)
    return Properties(**found)


def _number(name: str, value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBERS[name]:
        raise bad_request(f"not_int: {name}")
    if name != "timestamp":
        return value
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        return value


def get(request: Request) -> Steps[Answer]:
    """Get messages, and acknowledge them or give them back, by `ackmode`. A `count` of 0 gets none."""
    vhost, body = request.vhost(), request.object()
    mode, encoding = field(body, "ackmode", str), field(body, "encoding", str)
    count = number(body, "count", least=0)
    cut = number(body, "truncate", least=0) if "truncate" in body else None
    outcome = MODES.get(mode)
    if outcome is None:
        raise bad_request(f"ackmode is one of {', '.join(MODES)}, not '{mode}'")
    if encoding not in ENCODINGS:
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    it = vhost.queues.get(request.names["queue"])
    if it is None:
        raise NotFound(f"no queue '{request.names['queue']}' in vhost '{vhost.name}'")
    request.user.access(vhost).read_queue("get", it.name)
    it.check_access(Operator(request.user.name))
    while not it.drop_expired():
        yield
    got = yield from getting(vhost, it, min(count, MOST_GOT), outcome, most_bytes=MOST_BYTES)
    again = outcome in ("requeue", "reject_requeue")  # they have been counted as given back since
    return to_json([message(held, left, encoding, cut, redelivered=held.count > again) for held, left in got])
