"""Metrics: the figures, the names that RabbitMQ's dashboards ask for, and counters that never become smaller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from harebell.admin.metrics.families import TABLES
from harebell.protocol.v091 import methods as m
from tests.admin.kit import Api, ApiThread
from tests.wire import Wire

DASHBOARD: Final = """
    identity_info build_info resident_memory_limit_bytes process_resident_memory_bytes process_max_fds
    process_open_fds process_open_tcp_sockets process_max_tcp_sockets disk_space_available_bytes
    disk_space_available_limit_bytes erlang_uptime_seconds connections channels queues consumers channel_consumers
    connections_opened_total connections_closed_total channels_opened_total channels_closed_total
    queues_declared_total queues_created_total queues_deleted_total queue_messages_ready queue_messages_unacked
    global_messages_received_total global_messages_received_confirm_total global_messages_routed_total
    global_messages_confirmed_total global_messages_unroutable_dropped_total
    global_messages_unroutable_returned_total global_publishers global_consumers
    global_messages_acknowledged_total global_messages_redelivered_total global_messages_get_empty_total
    global_messages_delivered_total global_messages_delivered_consume_auto_ack_total
    global_messages_delivered_consume_manual_ack_total global_messages_delivered_get_auto_ack_total
    global_messages_delivered_get_manual_ack_total alarms_memory_used_watermark alarms_free_disk_space_watermark
    alarms_file_descriptor_limit channel_messages_unroutable_dropped_total
    channel_messages_unroutable_returned_total queue_messages queue_consumers
"""  # the names behind rabbitmq_
Samples = dict[str, float]


def families(api: Api, path: str = "/metrics") -> list[Metric]:
    reply = api("GET", path)
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return list(text_string_to_metric_families(reply.body.decode()))


def samples(api: Api, path: str = "/metrics") -> Samples:
    """The values by name, with the labels in RabbitMQ's order, but for constant ones."""
    found: Samples = {}
    for family in families(api, path):
        for sample in family.samples:
            key = sample.name.removeprefix("rabbitmq_") + "".join(f" {each}" for each in sample.labels.values())
            assert key not in found, key
            found[key] = sample.value
    return found


@pytest.fixture
def wire(own: ApiThread) -> Iterator[Wire]:
    with Wire(own.port).log_in() as wire:
        wire.channel()
        yield wire


def publish(wire: Wire, *keys: str) -> None:
    for key in keys:
        wire.publish("", key, b"x" * 100)


def work(wire: Wire) -> None:
    """Six publications to q and q2, one of them unroutable; a get, a consumer that acknowledges two of four."""
    for name in ("q", "q2"):
        wire.call(1, m.QueueDeclare(name), m.QueueDeclareOk)
    wire.call(1, m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(wire, "q", "q", "q", "q", "q2", "nowhere")
    wire.send(1, m.BasicGet("q2", no_ack=True))
    wire.send(1, m.BasicGet("q2", no_ack=True))
    wire.send(1, m.BasicConsume("q", "c"))
    wire.send(1, m.BasicAck(3, multiple=True))
    wire.call(1, m.BasicQos(0, 7), m.BasicQosOk)


def test_the_figures(own: ApiThread, api: Api, wire: Wire) -> None:
    work(wire)
    found = samples(api)
    assert {name: found[name] for name in found if name.startswith("global_messages") and found[name]} == {
        "global_messages_received_total amqp091": 6,
        "global_messages_received_confirm_total amqp091": 6,
        "global_messages_confirmed_total amqp091": 6,
        "global_messages_unroutable_dropped_total amqp091": 1,
        "global_messages_routed_total amqp091": 5,
        "global_messages_delivered_total amqp091 rabbit_classic_queue": 5,
        "global_messages_delivered_consume_manual_ack_total amqp091 rabbit_classic_queue": 4,
        "global_messages_delivered_get_auto_ack_total amqp091 rabbit_classic_queue": 1,
        "global_messages_get_empty_total amqp091 rabbit_classic_queue": 1,
        "global_messages_acknowledged_total amqp091 rabbit_classic_queue": 2,
    }
    expected = {
        "connections": 1, "channels": 1, "queues": 2, "consumers": 1, "channel_consumers": 1, "channel_prefetch": 0,
        "consumer_prefetch": 7, "queue_messages_ready": 0, "queue_messages_unacked": 2, "queue_messages": 2,
        "queue_consumers": 1, "queue_messages_published_total": 5, "channel_messages_published_total": 6,
        "channel_messages_confirmed_total": 6, "channel_messages_delivered_ack_total": 4, "channel_get_total": 1,
        "channel_messages_acked_total": 2, "channel_messages_unacked": 2, "queues_created_total": 2,
        "connections_opened_total": 1, "global_publishers amqp091": 1, "global_consumers amqp091": 1,
        "auth_attempts_succeeded_total amqp091": 1, "alarms_memory_used_watermark": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    overview = api.get("/api/overview")
    assert found["queues"] == overview["object_totals"]["queues"]
    assert found["channel_messages_published_total"] == overview["message_stats"]["publish"]
    (connection,) = own.run(lambda: [(each.recv_oct, each.send_oct) for each in own.broker.node.connections])
    assert (found["connection_incoming_bytes_total"], found["connection_outgoing_bytes_total"]) == connection


def test_the_names_of_the_dashboard(api: Api, wire: Wire) -> None:
    found = families(api)
    names = {sample.name for family in found for sample in family.samples}
    work(wire)
    names |= {sample.name for family in families(api) for sample in family.samples}
    assert {f"rabbitmq_{name}" for name in DASHBOARD.split()} - names == set()
    assert len([name for name in names if name.startswith("rabbitmq_global_stream_error_")]) == 17
    (identity,) = [family for family in found if family.name == "rabbitmq_identity_info"]
    (sample,) = identity.samples
    assert list(sample.labels) == [
        "rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint",
    ]  # fmt: skip
    assert {family.type for family in found} == {"counter", "gauge", "histogram"}
    assert all(re.fullmatch(r"(rabbitmq|harebell)_[a-z0-9_]+", family.name) for family in found)
    assert {"harebell_sync_seconds", "harebell_memory_bytes"} <= {family.name for family in found}


def test_counters_never_become_smaller(own: ApiThread, api: Api) -> None:
    """Not when a channel closes, a queue or a virtual host is deleted, or a connection ends."""
    api.put("/api/vhosts/v")
    with Wire(own.port).log_in(vhost="v") as wire:
        wire.channel()
        wire.call(
            1,
            m.QueueDeclare("d", arguments={"x-max-length": 1, "x-queue-type": "quorum"}, durable=True),
            m.QueueDeclareOk,
        )
        publish(wire, "d", "d", "d")
        work(wire)
        pages = [samples(api)]
        wire.call(1, m.QueueDelete("q"), m.QueueDeleteOk)
        wire.send(1, m.BasicAck(4))
        wire.barrier()
        pages.append(samples(api))
        wire.call(1, m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)
        pages.append(samples(api))
        assert api("DELETE", "/api/vhosts/v").status == 204
        pages.append(samples(api))
    pages.append(samples(api))
    for before, after in pairwise(pages):
        for name, value in before.items():
            if name.split(" ")[0].endswith("_total"):
                assert after[name] >= value, name
    assert pages[-1]["global_messages_acknowledged_total amqp091 rabbit_classic_queue"] == 3
    assert pages[-1]["global_messages_dead_lettered_maxlen_total rabbit_quorum_queue disabled"] == 2
    assert pages[-1]["queue_messages_published_total"] == 8
    assert pages[-1]["queues"] == 0


def test_a_sample_for_each_object(own: ApiThread, api: Api, wire: Wire) -> None:
    work(wire)
    odd = 'a "b"\\c'
    wire.call(1, m.QueueDeclare(odd), m.QueueDeclareOk)
    found = samples(api, "/metrics/per-object")
    assert found["queue_messages_unacked / q"] == 2
    assert found["queue_messages_bytes / q"] >= 0
    assert found[f"queue_messages / {odd}"] == 0
    (name,) = own.run(lambda: [each.name for each in own.broker.node.connections])
    assert found[f"connection_channels {name}"] == 1
    assert found[f"channel_messages_published_total {name} (1)"] == 6
    assert "queue_messages" not in found


def test_what_is_asked_for(own: ApiThread, api: Api, wire: Wire) -> None:
    work(wire)
    api.put("/api/vhosts/v")
    api.put("/api/queues/v/q")

    def names(query: str) -> set[str]:
        return {name for name in samples(api, f"/metrics/detailed{query}") if name.startswith("detailed_")}

    assert names("") == set()
    coarse = "detailed_queue_messages"
    each = {f"{coarse}{what} {queue}" for what in ("", "_ready", "_unacked") for queue in ("/ q", "/ q2", "v q")}
    assert names("?family=queue_coarse_metrics") == each
    assert names("?family=queue_coarse_metrics&family=queue_consumer_count&vhost=v&vhost=nowhere") == {
        name for name in each if " v " in name
    } | {"detailed_queue_consumers v q"}
    assert names("?family=queue_coarse_metrics&queue=2%24") == {name for name in each if name.endswith("q2")}
    assert names("?family=connection_metrics&vhost=v") == set()
    everything = names("?" + "&".join(f"family={name}" for name in TABLES))
    assert {"detailed_connections_opened_total", "detailed_process_max_fds", "detailed_io_sync_total"} <= everything
    for query, reason in (
        ("family=strange", "unknown family 'strange'"),
        ("family=queue_metrics&queue=(", "cannot be used"),
        ("family=queue_metrics&queue=a&queue=b", "more than one"),
    ):
        reply = api("GET", f"/metrics/detailed?{query}")
        assert (reply.status, reason in reply.reason) == (400, True), query


def test_who_monitors_may(own: ApiThread) -> None:
    assert own.add_user("watcher", "monitoring")("GET", "/metrics").status == 200
    assert own.add_user("someone", "management")("GET", "/metrics").status == 401
