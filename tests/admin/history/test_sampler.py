"""Samples of a node: who has a record, what rates are, and that nothing remains of what is gone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harebell.protocol.v091 import methods as m
from tests.admin.kit import ApiThread
from tests.wire import Wire


def publish(wire: Wire, queue: str, count: int) -> None:
    for _ in range(count):
        wire.publish("", queue, b"x")


def test_rates_are_those_of_the_last_interval(own: ApiThread) -> None:
    api = own.api()
    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        assert "message_stats" not in api.get("/api/queues/%2F/q")
        publish(wire, "q", 10)
        wire.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        own.sample()
        found = api.get("/api/queues/%2F/q")
        assert found["messages_ready"] == found["messages"] == found["message_stats"]["publish"] == 10
        assert found["messages_details"]["rate"] == found["messages_ready_details"]["rate"] == 2.0
        assert found["message_stats"]["publish_details"]["rate"] == 2.0
        assert "idle_since" not in found
        channel = api.get("/api/channels")[0]
        assert channel["message_stats"]["publish_details"] == {"rate": 2.0}
        exchange = api.get("/api/exchanges/%2F/amq.default")
        assert exchange["message_stats"]["publish_in_details"] == {"rate": 2.0}
        overview = api.get("/api/overview")
        assert overview["message_stats"]["publish_details"] == {"rate": 2.0}
        assert overview["queue_totals"]["messages_details"] == {"rate": 2.0}
        assert overview["churn_rates"]["queue_created_details"] == {"rate": 0.2}
        vhost = api.get("/api/vhosts/%2F")
        assert vhost["message_stats"]["publish_details"] == {"rate": 2.0}
        assert vhost["recv_oct_details"]["rate"] > 0
        assert api.get("/api/connections")[0]["recv_oct_details"]["rate"] > 0
        own.sample()
        found = api.get("/api/queues/%2F/q")
        assert found["message_stats"]["publish"] == 10
        assert found["message_stats"]["publish_details"]["rate"] == found["messages_details"]["rate"] == 0.0
        assert "T" in found["idle_since"]


def test_samples_reach_back(own: ApiThread) -> None:
    api = own.api()
    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        for _ in range(3):
            publish(wire, "q", 5)
            wire.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
            own.sample()
    found = api.get("/api/queues/%2F/q?lengths_age=20&lengths_incr=5&msg_rates_age=10&msg_rates_incr=5")
    details = found["messages_details"]
    assert [each["sample"] for each in details["samples"]] == [15, 10, 5, 0, 0]
    stamps = [each["timestamp"] for each in details["samples"]]
    assert [a - b for a, b in pairwise(stamps)] == [5000] * 4
    assert details["rate"] == 1.0
    assert details["avg"] == 6.0
    assert details["avg_rate"] == 0.75
    publish_details = found["message_stats"]["publish_details"]
    assert [each["sample"] for each in publish_details["samples"]] == [15, 10, 5]
    delivered = found["message_stats"]["deliver_get_details"]
    assert [each["sample"] for each in delivered["samples"]] == [0, 0, 0]
    whole = api.get("/api/overview?lengths_age=10&lengths_incr=5")["queue_totals"]["messages_details"]
    assert [each["sample"] for each in whole["samples"]] == [15, 10, 5]


def test_a_range_that_is_none_is_no_range(own: ApiThread) -> None:
    api = own.api()
    assert "samples" not in api.get("/api/overview?lengths_age=x&lengths_incr=1")["queue_totals"]["messages_details"]
    assert "samples" not in api.get("/api/overview?lengths_age=60")["queue_totals"]["messages_details"]
    long = "9" * 5_000
    assert api("GET", f"/api/overview?lengths_age={long}&lengths_incr=1").status == 200, "no number that counts seconds"


@pytest.mark.parametrize("kind", ["lengths", "msg_rates", "data_rates", "node_stats"])
@pytest.mark.parametrize("age, step", [(60_000, 1), (60, 0), (-60, 5), (60, -5), (-60, -5), (0, 5), (0, 0), (2505, 5)])
def test_a_range_of_none_or_too_many_samples_is_refused(serving: ApiThread, kind: str, age: int, step: int) -> None:
    for path in ("/api/overview", "/api/queues", "/api/nodes", "/api/connections", "/api/vhosts"):
        answer = serving.api()("GET", f"{path}?{kind}_age={age}&{kind}_incr={step}")
        assert (answer.status, answer.reason) == (400, f"Invalid range parameters: age {age}, incr {step}")
    assert serving.api()("GET", f"/api/queues?{kind}_age=2500&{kind}_incr=5").status == 200


def test_only_what_changed_has_a_record_and_what_is_gone_has_none(own: ApiThread) -> None:
    sampler = own.management.context.sampler
    with Wire(own.port).log_in() as wire:
        wire.channel()
        for name in ("quiet", "busy"):
            wire.call(1, m.QueueDeclare(name), m.QueueDeclareOk)
        publish(wire, "busy", 1)
        wire.call(1, m.QueueDeclare("busy"), m.QueueDeclareOk)
        own.sample()
        assert [queue.name for queue in sampler.queues.records] == ["busy"]
        assert [exchange.name for exchange in sampler.exchanges.records] == [""]
        assert len(sampler.channels.records) == len(sampler.connections.records) == 1
        wire.call(1, m.QueueDelete("busy"), m.QueueDeleteOk)
    own.api()("DELETE", "/api/connections/username/guest")
    own.sample(2)
    assert not sampler.queues.records
    assert not sampler.channels.records
    assert not sampler.connections.records
    assert own.api().get("/api/vhosts")[0]["recv_oct"] > 0, "the bytes of closed connections count"


def test_what_was_there_before_the_first_sample_has_no_rate(own: ApiThread) -> None:
    """As after a restart with a full queue."""
    sampler = own.management.context.sampler
    sampler.forget()
    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        publish(wire, "q", 50)
        wire.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        own.run(lambda: setattr(sampler, "tick", 0))
        own.sample()
        found = own.api().get("/api/queues/%2F/q")
        assert found["messages_details"]["rate"] == 0.0
        assert found["messages"] == 50


def test_the_timer_takes_samples(own: ApiThread) -> None:
    sampler = own.management.context.sampler
    before = sampler.tick
    own.run(sampler._ring)
    assert sampler.tick >= before
    own.run(sampler.stop)
    own.run(sampler.stop)


def test_the_history_can_be_forgotten(own: ApiThread) -> None:
    with Wire(own.port).log_in() as wire:
        wire.channel()
        own.sample()
        assert own.management.context.sampler.records
        assert own.api()("DELETE", "/api/reset").status == 204
        assert not own.management.context.sampler.records


def test_a_count_is_used_again_for_as_long_as_its_cost_asks(own: ApiThread) -> None:
    counts = own.management.context.counts

    def counted() -> int:
        for _ in counts.refreshing():
            pass
        return counts.of(own.broker.node.vhosts.values()).queues

    def declared(name: str, factor: float) -> int:
        counts.factor = factor
        vhost = own.broker.node.vhosts["/"]
        vhost.declare_queue(None, name, durable=False, exclusive=False, auto_delete=False, arguments={})
        return counted()

    assert own.run(lambda: declared("one", 0)) == 1
    assert own.run(lambda: declared("two", 1e12)) == 1
    assert own.run(lambda: declared("three", 0)) == 3
