"""Bytes of queues: exact for short ones, close for long ones."""

from __future__ import annotations

import random

import pytest

from harebell.admin.history.sizes import EXACT, PER_QUEUE, head_timestamp, sizes
from harebell.protocol.v091 import Properties, methods as m
from tests.admin.kit import ApiThread
from tests.wire import Wire


def fill(own: ApiThread, lengths: list[int], arguments: dict[str, object] | None = None, durable: bool = False) -> None:
    own.api().put("/api/queues/%2F/q", {"arguments": arguments or {}, "durable": durable})
    with Wire(own.port).log_in() as wire:
        wire.channel()
        for number, length in enumerate(lengths):
            wire.publish("", "q", b"x" * length, Properties(timestamp=1000 + number, delivery_mode=2))
        wire.call(1, m.QueueDeclare("q", passive=True), m.QueueDeclareOk)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-message-ttl": 600_000}])
@pytest.mark.parametrize("durable", [False, True])
def test_short_queues_are_exact(own: ApiThread, arguments: dict[str, object], durable: bool) -> None:
    lengths = [random.randrange(1000) for _ in range(EXACT)]
    fill(own, lengths, arguments, durable)
    queue = own.broker.node.vhosts["/"].queues["q"]
    found = own.run(lambda: sizes(queue, 0))
    assert (found.ready, found.in_memory, found.in_memory_count) == (sum(lengths), sum(lengths), len(lengths))
    assert found.persistent == durable
    assert found.memory > PER_QUEUE + sum(lengths)
    assert own.run(lambda: head_timestamp(queue)) == 1000
    assert own.api().get("/api/queues/%2F/q")["head_message_timestamp"] == 1000


def test_long_queues_are_estimated(own: ApiThread) -> None:
    lengths = [100 + number % 3 for number in range(3 * EXACT)]
    fill(own, lengths)
    queue = own.broker.node.vhosts["/"].queues["q"]
    found = own.run(lambda: sizes(queue, 10))
    assert found.ready == pytest.approx(sum(lengths), rel=0.02)
    assert found.unacked == pytest.approx(1010, rel=0.02)
    assert found.in_memory_count == len(lengths)


def test_what_came_back_counts(own: ApiThread) -> None:
    fill(own, [10] * 600)
    body = {"count": 600, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert len(own.api()("POST", "/api/queues/%2F/q/get", body).json) == 600
    queue = own.broker.node.vhosts["/"].queues["q"]
    assert own.run(lambda: sizes(queue, 0)).ready == 6000
    assert own.run(lambda: head_timestamp(queue)) == 1000


def test_streams_and_empty_queues(own: ApiThread) -> None:
    fill(own, [100] * 5, {"x-queue-type": "stream"}, durable=True)
    queue = own.broker.node.vhosts["/"].queues["q"]
    assert own.run(lambda: sizes(queue, 0)).ready > 500
    assert own.run(lambda: head_timestamp(queue)) is None
    own.api().put("/api/queues/%2F/empty")
    empty = own.broker.node.vhosts["/"].queues["empty"]
    assert own.run(lambda: sizes(empty, 0)).ready == 0
    assert own.run(lambda: head_timestamp(empty)) is None
