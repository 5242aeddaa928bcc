"""kombu with py-amqp, as they are, against the broker: what Celery and others stand on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire import BrokerThread

kombu = pytest.importorskip("kombu")  # of the development group


def test_a_simple_queue(broker: BrokerThread) -> None:
    with kombu.Connection(broker.broker.url) as connection:
        queue = connection.SimpleQueue("simple")
        queue.put({"a": 1})
        message = queue.get(timeout=10)
        message.ack()
        queue.close()
        assert message.payload == {"a": 1}


def test_confirms_and_consuming(broker: BrokerThread) -> None:
    with kombu.Connection(broker.broker.url, transport_options={"confirm_publish": True}) as connection:
        exchange = kombu.Exchange("x", "topic")
        queue = kombu.Queue("q", exchange, "k.#")
        connection.Producer().publish({"n": 1}, exchange=exchange, routing_key="k.a", declare=[queue], retry=True)
        got: list[Any] = []

        def take(body: object, message: Any) -> None:
            got.append(body)
            message.ack()

        with connection.Consumer(queue, callbacks=[take]):
            connection.drain_events(timeout=10)
        assert got == [{"n": 1}]


def test_priorities(broker: BrokerThread) -> None:
    with kombu.Connection(broker.broker.url) as connection:
        queue = kombu.Queue("q", max_priority=5).bind(connection.default_channel)
        queue.declare()
        for number, priority in enumerate((0, 5, 1, 5)):
            connection.Producer().publish(number, routing_key="q", priority=priority)
        assert [queue.get(no_ack=True).payload for _ in range(4)] == [1, 3, 2, 0]


def test_a_time_to_live_and_a_queue_that_expires(broker: BrokerThread) -> None:
    with kombu.Connection(broker.broker.url) as connection:
        dead = kombu.Queue("dead").bind(connection.default_channel)
        dead.declare()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        queue = kombu.Queue("q", message_ttl=0.05, expires=60, queue_arguments=arguments)
        queue.bind(connection.default_channel).declare()
        connection.Producer().publish("late", routing_key="q")
        got: list[Any] = []

        def take(body: object, message: Any) -> None:
            got.append(message.headers["x-death"])

        with connection.Consumer(dead, callbacks=[take], no_ack=True):
            connection.drain_events(timeout=10)
        assert [death["reason"] for (death,) in got] == ["expired"]
