"""A real RabbitMQ's definitions move to Harebell and back: both RabbitMQs export the same, Harebell works with it."""

from __future__ import annotations

import json
from pathlib import Path

import pika

from tests.differential.routing.test_definitions import comparable, export, fill
from tests.fixtures.rabbitmq import Nodes
from tests.wire import BrokerThread


def test_from_rabbitmq_to_harebell_and_back(version: str, rabbitmq_nodes: Nodes, tmp_path: Path) -> None:
    with rabbitmq_nodes.fresh(version) as first:
        fill(first)
        exported = export(first, tmp_path / "first.json")
    with BrokerThread() as harebell:
        remarks = harebell.run(lambda: harebell.broker.import_definitions(tmp_path / "first.json"))
        assert remarks == ()
        (tmp_path / "harebell.json").write_text(json.dumps(harebell.run(harebell.broker.export_definitions)))
        use(harebell.port)
    with rabbitmq_nodes.fresh(version) as second:
        second.ctl("import_definitions", str(tmp_path / "harebell.json"))
        again = export(second, tmp_path / "second.json")
    assert comparable(again) == comparable(exported)


def use(port: int) -> None:
    """An application finds what it declared in RabbitMQ, and its messages get there."""
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/%2F")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
        channel.exchange_declare("x", "topic", durable=True, arguments={"alternate-exchange": "amq.direct"})
        arrived: list[bytes] = []
        channel.basic_consume("q", lambda *delivery: arrived.append(delivery[3]), auto_ack=True)
        channel.basic_publish("x", "a.b", b"topic", mandatory=True)
        channel.basic_publish("amq.headers", "", b"headers", pika.BasicProperties(headers={"n": 1}), mandatory=True)
        channel.basic_publish("amq.topic", "k", b"to x, which has no binding for it, and then to nobody")
        connection.process_data_events(time_limit=1)
        while len(arrived) < 2:
            connection.process_data_events(time_limit=1)
        assert arrived == [b"topic", b"headers"]
    with pika.BlockingConnection(pika.URLParameters(f"amqp://app:p@127.0.0.1:{port}/v")) as connection:
        assert connection.is_open
