"""Plays a script of requests on a broker, with an AMQP client beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harebell.protocol.v091 import methods as m
from tests.admin.kit import Api, Reply, part
from tests.differential.http_api.compare import plain
from tests.differential.http_api.conftest import Broker
from tests.differential.http_api.script import SETTLED, Step
from tests.wire import PATIENCE, Wire

__all__ = ["play"]

MESSAGES = 4  # in the queue "kept", of which half are delivered


def play(broker: Broker, script: Sequence[Step]) -> list[Reply]:
    """The answers to the script, in a virtual host "h" of its own; nothing is left of it."""
    api = broker.api
    api.put("/api/vhosts/h")
    api.put("/api/permissions/h/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    wire = _client(broker.port)
    try:
        node = api.get("/api/nodes")[0]["name"]
        connection = _until(lambda: next((each["name"] for each in api.get("/api/vhosts/h/connections")), None))
        names = {"{node}": node, "{connection}": part(connection), "{channel}": part(f"{connection} (1)")}
        texts = {
            node: "NODE", connection: "CONNECTION", connection.partition(" ")[0].rpartition(":")[2]: "1",
        }  # fmt: skip
        return [plain(_answer(api, step, names), texts) for step in script]
    finally:
        wire.close()
        for path in ("/api/vhosts/h", "/api/vhosts/v", "/api/users/u"):
            api("DELETE", path)


def _client(port: int) -> Wire:
    """A client with a consumer of the queue "kept" that acknowledges nothing; a binding of it has octets, no text."""
    wire = Wire(port).log_in(vhost="h")
    wire.channel()
    wire.call(1, m.QueueDeclare("kept", durable=True), m.QueueDeclareOk)
    octets = {"octets": b"\xff\xfe", "text": b"abc", "list": [b"\xff"]}
    wire.call(1, m.QueueBind("kept", "amq.headers", "octets", arguments=octets), m.QueueBindOk)
    wire.call(1, m.ConfirmSelect(), m.ConfirmSelectOk)
    wire.call(1, m.BasicQos(0, MESSAGES // 2), m.BasicQosOk)
    for _ in range(MESSAGES):
        wire.publish("", "kept", b"x")
    wire.call(1, m.BasicConsume("kept", "ctag"), m.BasicConsumeOk)
    wire.take(m.BasicDeliver, MESSAGES // 2)
    return wire


def _answer(api: Api, step: Step, names: dict[str, str]) -> Reply:
    if step == SETTLED:
        _until(lambda: _settled(api))
    path = step.path
    for name, instead in names.items():
        path = path.replace(name, instead)
    return api(step.method, path, step.body)


def _settled(api: Api) -> bool:
    """Whether the statistics have all that the script has done before."""
    queue, vhost = api.get("/api/queues/h/q"), api.get("/api/vhosts/h")
    exchange, channels = api.get("/api/exchanges/h/amq.default"), api.get("/api/vhosts/h/channels")
    stats = queue.get("message_stats", {})
    return bool(
        (queue.get("messages"), stats.get("get_no_ack"), stats.get("get_empty"), vhost.get("messages"))
        == (1, 1, 1, 1 + MESSAGES)
        and exchange.get("message_stats", {}).get("publish_in", 0) >= 7
        and vhost.get("message_stats", {}).get("publish", 0) >= 7
        and any(each.get("messages_unacknowledged") for each in channels)
    )


def _until(look: Any) -> Any:
    """What `look` gives, once that is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("the statistics never had it")
