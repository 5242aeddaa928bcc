"""kombu with py-amqp, as they are, against the broker: what Celery and others stand on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire import BrokerThread

kombu = pytest.importorskip("kombu")  # of the development group
NotImplemented540 = pytest.importorskip("amqp.exceptions").AMQPNotImplementedError


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


@pytest.mark.parametrize("options", [{"expires": 5}, {"message_ttl": 5}, {"max_priority": 5}])
def test_what_is_not_there_is_refused(broker: BrokerThread, options: dict[str, Any]) -> None:
    with kombu.Connection(broker.broker.url) as connection:
        with pytest.raises(NotImplemented540):
            kombu.Queue("q", **options).bind(connection.default_channel).declare()
