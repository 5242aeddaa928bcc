"""Requests in the audit log: those that were refused, and those that change something without an event.

The changes with events are recorded by the node. Reasons may quote the body, so that of a request with secrets in its
body only the word of the error is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harebell.admin.answers import Refused
from harebell.admin.http.requests import Request
from harebell.broker.audit import Origin

__all__ = ["EVENTLESS", "record"]

EVENTLESS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("DELETE", "/api/connections/{connection}"): ("connection", "closed"),
    ("DELETE", "/api/connections/username/{user}"): ("user", "connections.closed"),
    ("DELETE", "/api/queues/{vhost}/{queue}/contents"): ("queue", "purged"),
    ("DELETE", "/api/queues/{vhost}/{queue}/messages/{position}"): ("queue", "message.deleted"),
    ("POST", "/api/queues/{vhost}/{queue}/messages/{position}/copy"): ("queue", "message.copied"),
    ("POST", "/api/queues/{vhost}/{queue}/messages/{position}/move"): ("queue", "message.moved"),
    ("POST", "/api/queues/{vhost}/{queue}/move"): ("queue", "messages.moved"),
    ("POST", "/api/queues/{vhost}/{queue}/redrive"): ("queue", "redriven"),
    ("DELETE", "/api/exchanges/{vhost}/{exchange}/delayed/{number}"): ("exchange", "delayed.deleted"),
    ("DELETE", "/api/exchanges/{vhost}/{exchange}/delayed/ids/{id}"): ("exchange", "delayed.deleted"),
    ("POST", "/api/definitions"): ("definitions", "imported"),
    ("POST", "/api/all-configuration"): ("definitions", "imported"),
    ("POST", "/api/definitions/{vhost}"): ("definitions", "imported"),
    ("PUT", "/api/consumers/{vhost}/{channel}/{consumer}/prefetch"): ("consumer", "prefetch.set"),
    ("DELETE", "/api/reset"): ("history", "forgotten"),
    ("DELETE", "/api/reset/{node}"): ("history", "forgotten"),
    ("DELETE", "/api/auth/attempts/{node}"): ("login", "attempts.forgotten"),
    ("DELETE", "/api/shovels/vhost/{vhost}/{name}/restart"): ("shovel", "restarted"),
}
"""The kind and the act of each request that has no event."""
NOTED: Final = frozenset(
    {
        ("POST", "/api/definitions"),
        ("POST", "/api/all-configuration"),
        ("POST", "/api/definitions/{vhost}"),
    }
)
"""Those of them that the broker records itself, once they are done."""
NO_CHANGES: Final = (
    "/publish", "/get", "/actions", "/login", "/logout", "/rebalance/queues", "/start/{node}", "/enable",
)  # fmt: skip
"""How the paths end whose requests are no acts."""
SECRET: Final = frozenset({"users", "definitions", "all-configuration", "parameters", "global-parameters", "shovels"})
KINDS: Final = {"queues": "queue", "exchanges": "exchange", "bindings": "binding", "vhosts": "vhost", "users": "user",
    "permissions": "permission", "topic-permissions": "topic.permission", "parameters": "parameter",
    "policies": "policy", "global-parameters": "parameter", "connections": "connection", "vhost-limits": "vhost",
    "user-limits": "user", "shovels": "parameter", "cluster-name": "parameter"}  # fmt: skip
ASKED: Final = {"PUT": "set", "DELETE": "deleted", "POST": "created", "PATCH": "set"}
NAMED: Final = ("connection", "queue", "exchange", "name", "consumer", "source", "user", "vhost")


def record(request: Request, refused: Refused | None) -> None:
    """Record the request if it was refused, or has no event."""
    pattern, names = request.pattern, request.names
    if pattern.endswith(NO_CHANGES):
        return
    asked = (request.method, pattern)
    known = EVENTLESS.get(asked)
    if (refused is None and (known is None or asked in NOTED)) or _only_asks(request):
        return
    noun = pattern.split("/")[2]
    kind, act = known or (KINDS.get(noun, noun), ASKED[request.method])
    name = next((names[each] for each in NAMED if each in names), "")
    reason = "" if refused is None else refused.error if noun in SECRET else refused.text or refused.error
    _add(request, Origin(request.user.name, request.user.host, "http"), names.get("vhost", ""), kind, name, act, reason)


def _only_asks(request: Request) -> bool:
    """Whether the request wants to know what it would change."""
    if request.pattern.endswith("/redrive"):
        try:
            return b"dry_run" in request.body and bool(request.object().get("dry_run"))
        except Refused:
            return False
    return (request.method, request.pattern) in NOTED and request.flag("plan")


def _add(request: Request, origin: Origin, vhost: str, kind: str, name: str, act: str, reason: str) -> None:
    events = request.node.events
    events.origin = origin
    try:
        events.act(vhost, kind, name, act, refused=reason)
    finally:
        events.origin = None
