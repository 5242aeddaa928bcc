"""kombu with py-amqp, as they are, against the broker: what Celery and others stand on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.wire import BrokerThread

kombu = pytest.importorskip("kombu")  # of the development group


def test_a_simple_queue(broker: BrokerThread) -> None:
    with kombu.Connection(broker.broker.url) as connection:
        queue = connection.SimpleQueue("simple")
        queue.put({"a": 1})
        message = queue.get(timeout=60)
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
            connection.drain_events(timeout=60)
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
            connection.drain_events(timeout=60)
        assert [death["reason"] for (death,) in got] == ["expired"]


def test_a_consumer_and_producer_mixin(broker: BrokerThread) -> None:
    """A service of ConsumerProducerMixin answers what a client asks."""
    from kombu.mixins import ConsumerProducerMixin

    class Service(ConsumerProducerMixin):
        def __init__(self, connection: Any) -> None:
            self.connection = connection

        def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:
            return [Consumer([kombu.Queue("requests")], on_message=self.answer, prefetch_count=1)]

        def answer(self, message: Any) -> None:
            self.producer.publish(
                message.payload * 2, routing_key=message.properties["reply_to"],
                correlation_id=message.properties["correlation_id"], retry=True,
            )  # fmt: skip
            message.ack()
            self.should_stop = message.payload == 0

    thread = threading.Thread(target=Service(kombu.Connection(broker.broker.url)).run, daemon=True)
    thread.start()
    with kombu.Connection(broker.broker.url) as connection:
        answers = kombu.Queue("answers", exclusive=True, auto_delete=True).bind(connection.default_channel)
        answers.declare()
        got: list[Any] = []

        def take(message: Any) -> None:
            got.append((message.properties["correlation_id"], message.payload))

        with connection.Consumer(answers, on_message=take, no_ack=True):
            for number in (3, 21, 0):
                connection.Producer().publish(
                    number, routing_key="requests", reply_to="answers", correlation_id=str(number),
                    declare=[kombu.Queue("requests")],
                )  # fmt: skip
            while len(got) < 3:
                connection.drain_events(timeout=60)
    thread.join(60)
    assert not thread.is_alive()
    assert got == [("3", 6), ("21", 42), ("0", 0)]


def test_broadcast(broker: BrokerThread) -> None:
    """Each process has a queue of its own at a fanout exchange."""
    from kombu.common import Broadcast

    got: list[tuple[int, Any]] = []
    with kombu.Connection(broker.broker.url) as one, kombu.Connection(broker.broker.url) as two:
        consumers = []
        for number, connection in enumerate((one, two)):
            queue = Broadcast("news", unique=True)  # type: ignore[no-untyped-call]

            def take(body: object, message: Any, number: int = number) -> None:
                got.append((number, body))

            consumers.append(connection.Consumer([queue], callbacks=[take], no_ack=True))
            consumers[-1].consume()
        one.Producer().publish("hello", exchange=kombu.Exchange("news", "fanout"))
        one.drain_events(timeout=60)
        two.drain_events(timeout=60)
        assert got == [(0, "hello"), (1, "hello")]
        for consumer in consumers:
            consumer.cancel()


def test_publications_survive_a_lost_connection(broker: BrokerThread) -> None:
    """With retry, a publisher connects again and declares what it needs."""
    with kombu.Connection(broker.broker.url, transport_options={"confirm_publish": True}) as connection:
        queue = kombu.Queue("q", durable=True)
        producer = connection.Producer()
        policy = {"interval_start": 0, "interval_step": 0.1, "max_retries": 20}

        def abort() -> None:
            for transport in tuple(broker.broker._transports):
                transport.abort()

        producer.publish(1, routing_key="q", declare=[queue], retry=True, retry_policy=policy)
        broker.run(abort)
        producer.publish(2, routing_key="q", declare=[queue], retry=True, retry_policy=policy)
        bound = queue.bind(connection.default_channel)
        assert [bound.get(no_ack=True).payload for _ in range(2)] == [1, 2]


def test_heartbeats(broker: BrokerThread) -> None:
    with kombu.Connection(broker.broker.url, heartbeat=1) as connection:
        connection.ensure_connection()
        assert connection.get_heartbeat_interval() == 1
        for _ in range(30):  # together longer than the broker waits for a client that is silent
            connection.heartbeat_check(rate=2)
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.1)
        connection.default_channel.queue_declare("q")
