"""The node: overview, facts, memory, health checks, and what RabbitMQ tells of itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from harebell.admin.about import rabbitmq_version
from harebell.admin.answers import Answer, Refused, bad_request, not_found, to_json
from harebell.admin.certificates import expires_at
from harebell.admin.history.ranges import ranges_of
from harebell.admin.http.endpoint import NOT_AUTHORISED
from harebell.admin.http.requests import Request, field
from harebell.admin.resources.objects import NO_CONTENT, Operator, alone, listed, wait_safe
from harebell.admin.shapes.node import node, overview
from harebell.broker.operations.messages import getting
from harebell.broker.operations.publishing import publishing
from harebell.errors import AccessRefused
from harebell.protocol.v091 import Properties
from harebell.routing.definitions import GlobalParameter
from harebell.routing.steps import Steps

__all__ = [
    "alarms", "aliveness", "certificate_expiration", "cluster_name", "deprecated_features", "extensions",
    "feature_flags", "healthy", "in_service", "legacy_health_check", "memory", "nodes", "only_node", "port_listener",
    "protocol_listener", "put_cluster_name", "ready", "rebalance", "reset", "show_node", "show_overview", "version",
    "virtual_hosts",
]  # fmt: skip

ALIVENESS: Final = "aliveness-test"  # RabbitMQ's queue for it
UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}
PROTOCOLS: Final = {
    "amqp": "amqp", "amqp091": "amqp", "amqp0.9.1": "amqp", "amqp-0-9-1": "amqp", "amqps": "amqp/ssl",
    "amqp/ssl": "amqp/ssl", "http": "http", "https": "https", "http/prometheus": "http/prometheus",
}  # fmt: skip
FLAGS: Final = (
    ("drop_unroutable_metric", "Unroutable publications that are dropped are counted"),
    ("empty_basic_get_metric", "basic.get on an empty queue is counted"),
    ("implicit_default_bindings", "The default exchange's bindings are implicit"),
    ("maintenance_mode_status", "The node can be drained"),
    ("quorum_queue", "Queues of type quorum can be declared"),
    ("stream_filtering", "Streams can be filtered"),
    ("stream_queue", "Queues of type stream can be declared"),
    ("user_limits", "Users can be limited"),
    ("virtual_host_metadata", "Virtual hosts have descriptions and tags"),
)


def show_overview(request: Request) -> Steps[Answer]:
    yield from request.context.counts.refreshing()
    user = request.user
    found = overview(request.context, user.seen(), ranges_of(request.query), whole=user.monitors)
    return alone(request, found)


def nodes(request: Request) -> Answer:
    return listed(request, [node(request.context, ranges_of(request.query))])


def show_node(request: Request) -> Answer:
    _check_node(request)
    return alone(request, node(request.context, ranges_of(request.query)))


def _check_node(request: Request) -> None:
    if request.names["node"] != request.node.name:
        raise not_found()


def memory(request: Request) -> Steps[Answer]:
    """The memory of the process by part, in bytes, or in percent for "relative"."""
    _check_node(request)
    parts = yield from request.context.memory()
    total = sum(parts.values())
    if request.pattern.endswith("relative"):
        shares = {name: round(size * 100 / total) if total else 0 for name, size in parts.items()}
        return alone(request, {"memory": {**shares, "total": 100}})
    totals = {"rss": total, "allocated": total, "erlang": 0}
    return alone(request, {"memory": {**parts, "strategy": "rss", "total": totals}})


def cluster_name(request: Request) -> Answer:
    name = request.node.parameters.global_parameters.get("cluster_name")
    return alone(request, {"name": name.value if name is not None else request.node.name})


def put_cluster_name(request: Request) -> Answer:
    name = field(request.object(), "name", str)
    request.node.parameters.set_global(GlobalParameter("cluster_name", name))
    return NO_CONTENT


def extensions(request: Request) -> Answer:
    return to_json([])


def feature_flags(request: Request) -> Answer:
    """RabbitMQ's feature flags whose features are here."""
    return listed(
        request,
        [
            {
                "name": name, "desc": about, "doc_url": "", "state": "enabled", "stability": "required",
                "provided_by": "rabbit",
            }
            for name, about in FLAGS
        ]
    )  # fmt: skip


def enable_feature_flag(request: Request) -> Answer:
    if request.names["name"] not in dict(FLAGS) and request.names["name"] != "all":
        raise bad_request("unsupported")
    return NO_CONTENT


def deprecated_features(request: Request) -> Answer:
    """None: nothing here is deprecated."""
    return to_json([])


def version(request: Request) -> Answer:
    return to_json(rabbitmq_version(request.node))


def reset(request: Request) -> Answer:
    """Forget the history of all figures; the counts themselves stay."""
    if "node" in request.names:
        _check_node(request)
    request.context.sampler.forget()
    return NO_CONTENT


def rebalance(request: Request) -> Answer:
    """RabbitMQ moves queues between nodes: here there is one."""
    return NO_CONTENT


# -- health


def healthy(request: Request) -> Answer:
    """A check that always holds here, because what it is about can not be otherwise."""
    return to_json({"status": "ok"})


def only_node(request: Request) -> Answer:
    return to_json({"status": "ok", "reason": "single node cluster"})


def _failed(reason: str, **more: object) -> Answer:
    return to_json({"status": "failed", "reason": reason, **more}, 503)


def alarms(request: Request) -> Answer:
    node = request.node
    if not node.alarms:
        return to_json({"status": "ok"})
    return _failed(
        "There are alarms in effect in the cluster",
        alarms=[{"node": node.name, "resource": each} for each in sorted(node.alarms)],
    )


def certificate_expiration(request: Request) -> Answer:
    """Whether the certificates of all listeners are valid for that time."""
    unit, within = UNITS.get(request.names["unit"]), request.names["within"]
    if unit is None:
        raise bad_request("Invalid unit")
    if not (within.isascii() and within.isdecimal() and len(within) < 7):
        raise bad_request("Invalid expiration date")
    certificate = request.context.certificate
    ends = None if certificate is None else expires_at(Path(certificate))
    if ends is None or ends > time.time() + int(within) * unit * 86_400:
        return to_json({"status": "ok"})
    expired = [
        {"node": request.node.name, "protocol": each.protocol, "port": each.port, "expires_on": ends}
        for each in request.context.listeners
        if each.tls
    ]
    return _failed("Certificates expiring", expired=expired)


def port_listener(request: Request) -> Answer:
    port, ports = request.names["port"], [each.port for each in request.context.listeners]
    if not (port.isascii() and port.isdecimal() and len(port) < 6):
        raise bad_request("Invalid port")
    if int(port) in ports:
        return to_json({"status": "ok", "port": int(port)})
    return _failed("No active listener", missing=int(port), ports=ports)


def protocol_listener(request: Request) -> Answer:
    wanted, there = request.names["protocol"], [each.protocol for each in request.context.listeners]
    if PROTOCOLS.get(wanted.lower(), wanted) in there:
        return to_json({"status": "ok", "protocol": wanted})
    return _failed("No active listener", missing=wanted, protocols=there)


def virtual_hosts(request: Request) -> Answer:
    return to_json({"status": "ok"})


def in_service(request: Request) -> Answer:
    """Whether the node takes clients: it is not being drained, and its store works."""
    return to_json({"status": "ok"}) if _serves(request) else _failed("the node is being drained or its store failed")


def ready(request: Request) -> Answer:
    """As `in_service`, and the limit of connections is not reached."""
    below = below_limit(request)
    return in_service(request) if below.status == 200 else below


def below_limit(request: Request) -> Answer:
    most, now = request.node.limits.max_connections, len(request.node.connections)
    if most is None or now < most:
        return to_json({"status": "ok", "limit": "infinity" if most is None else most, "connections": now})
    return _failed("node connection limit is reached", limit=most, connections=now)


def _serves(request: Request) -> bool:
    return not request.node.draining and request.node.batch.failed is None


def legacy_health_check(request: Request) -> Answer:
    """RabbitMQ's old check of a node."""
    if "node" in request.names:
        _check_node(request)
    if _serves(request) and not request.node.alarms:
        return to_json({"status": "ok"})
    return to_json({"status": "failed", "reason": "the node has alarms, is being drained, or its store failed"}, 503)


def aliveness(request: Request) -> Steps[Answer]:
    """Declare a queue, publish a message to it, and get it."""
    vhost, user = request.vhost(), request.user
    access = user.access(vhost)
    if not user.enters(vhost.name):
        raise Refused(401, NOT_AUTHORISED, "Access refused.")
    try:
        access.declare_queue(ALIVENESS, {}, new=ALIVENESS not in vhost.queues, server_named=False)
        queue = vhost.queues.get(ALIVENESS) or vhost.declare_queue(
            Operator(user.name), ALIVENESS, durable=False, exclusive=False, auto_delete=False, arguments={}
        )
        access.read_queue("get", ALIVENESS)
        done = yield from publishing(
            vhost, access, "", ALIVENESS, Properties(), b"test_message", max_size=1 << 20, origin="HTTP API"
        )
    except AccessRefused as error:
        raise Refused(401, NOT_AUTHORISED, error.detail) from error
    if done.stored:
        yield from wait_safe(request.node)
    got = yield from getting(vhost, queue, 1, "ack", most_bytes=1 << 20)
    if not done.routed or not got:
        return _failed("the message of the test did not arrive")
    return to_json({"status": "ok"})
