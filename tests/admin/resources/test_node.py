"""The node, its health, and what RabbitMQ tells of itself."""

from __future__ import annotations

import os
from typing import Any

import pytest

import harebell
from harebell.protocol.v091 import methods as m
from tests.admin.kit import CERTIFICATE, KEY, Api, ApiThread
from tests.wire import Wire


def test_the_overview(api: Api, own: ApiThread) -> None:
    api.put("/api/queues/%2F/q")
    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.BasicConsume("q", "c"), m.BasicConsumeOk)
        found = api.get("/api/overview")
    assert (found["product_name"], found["product_version"]) == ("Harebell", harebell.__version__)
    assert found["rabbitmq_version"] == found["management_version"] == "3.13.7"
    assert found["node"] == found["cluster_name"] == own.broker.node.name
    assert found["object_totals"] == {"channels": 1, "connections": 1, "consumers": 1, "exchanges": 8, "queues": 1}
    assert found["queue_totals"]["messages"] == 0
    assert found["churn_rates"]["queue_created"] == 1
    assert {(each["protocol"], each["port"]) for each in found["listeners"]} == {
        ("amqp", own.port), ("http", own.api_port),
    }  # fmt: skip
    assert {each["name"] for each in found["exchange_types"]} >= {"direct", "fanout", "topic", "headers"}
    assert found["contexts"][0]["port"] == str(own.api_port)
    assert api.get("/api/overview?columns=node,queue_totals.messages") == {
        "node": own.broker.node.name, "queue_totals": {"messages": 0},
    }  # fmt: skip


def test_others_see_the_sums_of_their_virtual_hosts(api: Api, own: ApiThread) -> None:
    api.put("/api/vhosts/v")
    for vhost, count in (("%2F", 2), ("v", 3)):
        api.put(f"/api/queues/{vhost}/q")
        for _ in range(count):
            body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
            api("POST", f"/api/exchanges/{vhost}/amq.default/publish", body)
    user = own.add_user("u", "management", vhosts=("v",))
    found = user.get("/api/overview")
    assert found["queue_totals"]["messages"] == found["message_stats"]["publish"] == 3
    assert found["object_totals"]["queues"] == 1
    assert "listeners" not in found
    assert api.get("/api/overview")["queue_totals"]["messages"] == 5
    assert own.add_user("w", "management").get("/api/overview")["queue_totals"] == {}


def test_the_node(api: Api, own: ApiThread) -> None:
    (found,) = api.get("/api/nodes")
    assert found["name"] == own.broker.node.name
    assert found["os_pid"] == str(os.getpid())
    assert (found["running"], found["type"], found["mem_alarm"], found["disk_free_alarm"]) == (
        True,
        "disc",
        False,
        False,
    )
    assert 1 << 20 < found["mem_used"] < found["mem_limit"]
    assert found["disk_free"] > found["disk_free_limit"]
    assert 3 < found["fd_used"] < found["fd_total"]
    assert found["proc_used"] >= 1
    assert found["uptime"] >= 0
    assert found["rates_mode"] == "basic"
    one = api.get(f"/api/nodes/{found['name']}")
    assert one.keys() == found.keys()
    assert api("GET", "/api/nodes/other").status == 404
    own.sample()
    ranged = api.get(f"/api/nodes/{found['name']}?node_stats_age=10&node_stats_incr=5")
    assert len(ranged["mem_used_details"]["samples"]) == 3


def test_its_memory(api: Api, own: ApiThread) -> None:
    name = own.broker.node.name
    api.put("/api/queues/%2F/q")
    body = {"properties": {}, "routing_key": "q", "payload": "x" * 1000, "payload_encoding": "string"}
    api("POST", "/api/exchanges/%2F/amq.default/publish", body)
    with Wire(own.port).log_in():
        found = api.get(f"/api/nodes/{name}/memory")["memory"]
        assert found["binary"] == 1000
        assert found["connection_other"] > 0
        assert found["total"]["rss"] == sum(size for part, size in found.items() if isinstance(size, int))
        shares = api.get(f"/api/nodes/{name}/memory/relative")["memory"]
        assert shares["total"] == 100
    assert api("GET", "/api/nodes/other/memory").status == 404


@pytest.mark.parametrize("check", [
    "alarms", "local-alarms", "virtual-hosts", "node-is-mirror-sync-critical", "node-is-quorum-critical",
    "is-in-service", "ready-to-serve-clients", "below-node-connection-limit", "metadata-store/initialized",
    "metadata-store/initialized/with-data", "reached-target-cluster-size", "certificate-expiration/1/months",
    "protocol-listener/amqp", "protocol-listener/http",
    "quorum-queues-without-elected-leaders/all-vhosts/pattern/.*",
    "quorum-queues-without-elected-leaders/vhost/%2F/pattern/.*",
])  # fmt: skip
def test_a_healthy_node(serving: ApiThread, check: str) -> None:
    assert serving.api().get(f"/api/health/checks/{check}")["status"] == "ok"


@pytest.mark.parametrize("path, status", [
    ("certificate-expiration/x/days", 400), ("certificate-expiration/1/nights", 400), ("port-listener/x", 400),
    ("port-listener/1", 503), ("protocol-listener/stomp", 503),
])  # fmt: skip
def test_checks_that_fail(serving: ApiThread, path: str, status: int) -> None:
    answer = serving.api()("GET", f"/api/health/checks/{path}")
    assert answer.status == status
    assert answer.reason


def test_a_port_that_is_listened_on(serving: ApiThread) -> None:
    found = serving.api().get(f"/api/health/checks/port-listener/{serving.port}")
    assert found == {"status": "ok", "port": serving.port}


def failure(api: Api, check: str) -> Any:
    answer = api("GET", f"/api/health/checks/{check}")
    assert answer.status == 503
    assert answer.json["status"] == "failed"
    return answer.json


def test_alarms_and_draining_show(api: Api, own: ApiThread) -> None:
    node = own.broker.node
    own.run(lambda: node.raise_alarm("memory"))
    assert failure(api, "alarms")["alarms"] == [{"node": node.name, "resource": "memory"}]
    assert api.get("/api/nodes")[0]["mem_alarm"] is True
    assert api("GET", "/api/healthchecks/node").status == 503
    own.run(lambda: node.clear_alarm("memory"))
    assert api.get("/api/healthchecks/node") == api.get(f"/api/healthchecks/node/{node.name}") == {"status": "ok"}
    assert api("GET", "/api/healthchecks/node/other").status == 404
    own.run(lambda: setattr(node, "draining", True))
    assert failure(api, "is-in-service")
    assert failure(api, "ready-to-serve-clients")
    own.run(lambda: setattr(node, "draining", False))


def test_the_limit_of_connections_shows() -> None:
    with ApiThread(max_connections=1) as own, Wire(own.port).log_in():
        assert failure(own.api(), "below-node-connection-limit")["limit"] == 1
        assert failure(own.api(), "ready-to-serve-clients")


def test_certificates_that_end(own: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    context = own.management.context
    monkeypatch.setattr(context, "certificate", CERTIFICATE)
    assert own.api().get("/api/health/checks/certificate-expiration/1/days")["status"] == "ok"
    assert failure(own.api(), "certificate-expiration/1000/years")["reason"] == "Certificates expiring"
    monkeypatch.setattr(context, "certificate", KEY)
    assert own.api().get("/api/health/checks/certificate-expiration/1000/years")["status"] == "ok", "none can be read"


def test_the_aliveness_test(api: Api, own: ApiThread) -> None:
    assert api.get("/api/aliveness-test/%2F") == {"status": "ok"}
    assert api.get("/api/aliveness-test/%2F") == {"status": "ok"}, "its queue is there now"
    assert api.get("/api/queues/%2F/aliveness-test")["messages"] == 0
    outsider = own.add_user("outsider", "administrator")
    assert outsider("GET", "/api/aliveness-test/%2F").reason == "Access refused."
    api.put("/api/users/reader", {"password": "reader", "tags": "management"})
    api.put("/api/permissions/%2F/reader", {"configure": "", "write": "", "read": ".*"})
    assert own.api("reader")("GET", "/api/aliveness-test/%2F").status == 401
    assert api("GET", "/api/aliveness-test/nowhere").status == 404


def test_an_aliveness_test_whose_message_is_lost(api: Api) -> None:
    api.put("/api/queues/%2F/aliveness-test", {"durable": True, "arguments": {"x-message-ttl": 0}})
    answer = api("GET", "/api/aliveness-test/%2F")
    assert (answer.status, answer.json["status"]) == (503, "failed")


def test_facts_of_rabbitmq(serving: ApiThread) -> None:
    api = serving.api()
    assert api.get("/api/extensions") == api.get("/api/deprecated-features") == []
    assert api.get("/api/deprecated-features/used") == []
    assert api("GET", "/api/version", login=False).json == "3.13.7"
    flags = {each["name"]: each["state"] for each in api.get("/api/feature-flags")}
    assert flags["stream_queue"] == flags["quorum_queue"] == "enabled"
    assert api.put("/api/feature-flags/stream_queue/enable") == api.put("/api/feature-flags/all/enable") == 204
    assert api.put("/api/feature-flags/khepri_db/enable") == 400
    assert api("POST", "/api/rebalance/queues", {}).status == 204
    name = api.get("/api/nodes")[0]["name"]
    assert api("DELETE", f"/api/reset/{name}").status == 204
    assert api("DELETE", "/api/reset/other").status == 404
    assert api("GET", "/api/auth", login=False).json == {"oauth_enabled": False}


def test_a_broker_that_says_what_it_is() -> None:
    with ApiThread(announce="Harebell") as own:
        assert own.api().get("/api/version") == "3.13.7"
