"""What KEDA's scaler and Zabbix's templates ask of RabbitMQ's HTTP API, and the values that they take of the answers.

The requests are those of KEDA's scaler `rabbitmq` with `protocol: http`, and of Zabbix's templates "RabbitMQ cluster by
HTTP" and "RabbitMQ node by HTTP".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harebell.protocol.v091 import methods as m
from tests.admin.kit import ApiThread
from tests.wire import Wire

STATS = ("ack", "confirm", "deliver_get", "publish", "redeliver")
OVERVIEW = {
    *(f"message_stats.{name}" for name in (*STATS, "return_unroutable")),
    *(f"message_stats.{name}_details.rate" for name in (*STATS, "return_unroutable")),
    *(f"object_totals.{name}" for name in ("channels", "connections", "consumers", "exchanges", "queues")),
    *(f"queue_totals.{name}" for name in ("messages", "messages_ready", "messages_unacknowledged")),
    "management_version", "rabbitmq_version",
}  # fmt: skip
EXCHANGE = {"name", "vhost", "type", "message_stats.publish_in", "message_stats.publish_in_details.rate",
            "message_stats.publish_out", "message_stats.publish_out_details.rate"}  # fmt: skip
NODE = {
    "name", "running", "uptime", "disk_free", "disk_free_alarm", "disk_free_limit", "fd_used", "mem_alarm", "mem_limit",
    "mem_used", "run_queue", "sockets_used", "partitions",
}  # fmt: skip
QUEUE = {
    "name", "vhost", "node", "consumers", "memory", "messages", "messages_ready", "messages_unacknowledged",
    *(f"{name}_details.rate" for name in ("messages", "messages_ready", "messages_unacknowledged")),
    *(f"message_stats.{name}" for name in STATS if name != "confirm"),
    *(f"message_stats.{name}_details.rate" for name in STATS if name != "confirm"),
}  # fmt: skip
CHECKS = (
    "local-alarms", "certificate-expiration/1/months", "port-listener/{port}", "virtual-hosts", "alarms",
    "node-is-mirror-sync-critical", "node-is-quorum-critical",
)  # fmt: skip


@pytest.fixture
def busy(own: ApiThread) -> Iterator[ApiThread]:
    """A broker with traffic of every kind, and two samples of it."""
    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.ConfirmSelect(), m.ConfirmSelectOk)
        for name in ("orders-1", "orders-2", "other"):
            wire.call(1, m.QueueDeclare(name), m.QueueDeclareOk)
        own.sample()
        for name in ("orders-1", "orders-1", "orders-2", "orders-2", "orders-2"):
            wire.publish("", name, b"x")
        wire.publish("", "nowhere", b"x", mandatory=True)
        for name in ("orders-1", "orders-2"):
            wire.call(1, m.BasicGet(name), m.BasicGetOk)
        wire.send(1, m.BasicNack(1, requeue=True))
        wire.call(1, m.BasicGet("orders-1"), m.BasicGetOk)
        wire.send(1, m.BasicAck(3))
        wire.call(1, m.QueueDeclare("other", passive=True), m.QueueDeclareOk)
        own.sample()
        yield own


def at(it: Any, path: str) -> Any:
    for key in path.split("."):
        it = it[key]
    return it


def lacking(it: Any, paths: set[str]) -> set[str]:
    found = set()
    for path in paths:
        try:
            at(it, path)
        except KeyError:
            found.add(path)
    return found


def test_keda_reads_one_queue(busy: ApiThread) -> None:
    queue = busy.api().get("/api/queues/%2F/orders-2")
    assert (queue["messages"], queue["messages_ready"], queue["messages_unacknowledged"]) == (3, 2, 1)
    assert at(queue, "message_stats.publish_details.rate") >= 0
    assert at(queue, "message_stats.deliver_get_details.rate") >= 0
    assert busy.api()("GET", "/api/queues/%2F/none").status == 404


def test_keda_reads_the_queues_of_a_pattern(busy: ApiThread) -> None:
    path = "/api/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Eorders-&page_size=100"
    page = busy.api().get(path)
    assert {queue["name"]: queue["messages"] for queue in page["items"]} == {"orders-1": 1, "orders-2": 3}
    assert sum(queue["messages_unacknowledged"] for queue in page["items"]) == 1
    assert all(at(queue, "message_stats.publish_details.rate") >= 0 for queue in page["items"])


def test_zabbix_reads_the_cluster(busy: ApiThread) -> None:
    assert lacking(busy.api().get("/api/overview"), OVERVIEW) == set()
    exchanges = {each["name"]: each for each in busy.api().get("/api/exchanges")}
    assert lacking(exchanges[""], EXCHANGE) == set()
    assert {"name", "vhost", "type"} <= exchanges["amq.topic"].keys()


def test_zabbix_reads_the_node(busy: ApiThread) -> None:
    (node,) = busy.api().get("/api/nodes")
    assert lacking(node, NODE) == set()
    assert lacking(busy.api().get(f"/api/nodes/{node['name']}"), NODE) == set()
    assert busy.api().get("/api/aliveness-test/%2F") == {"status": "ok"}
    (listed,) = (each for each in busy.api().get("/api/queues") if each["name"] == "orders-1")
    assert lacking(listed, QUEUE) == set()
    assert listed["node"] == node["name"]


@pytest.mark.parametrize("check", CHECKS)
def test_zabbix_makes_health_checks(busy: ApiThread, check: str) -> None:
    assert busy.api().get(f"/api/health/checks/{check.format(port=busy.port)}")["status"] == "ok"
