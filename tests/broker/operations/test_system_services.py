"""The system exchange: a question to a service is answered to reply_to."""

from __future__ import annotations

import json

from harebell.protocol.v091 import Content, Properties, methods as m
from tests.broker.kit import Client


def ask(client: Client, service: str, body: bytes = b"") -> Content:
    client.declare("answers")
    client.publish(service, body, "amq.system", reply_to="answers", correlation_id="7")
    answer = client.get("answers")
    assert answer is not None
    assert answer.decode_properties().correlation_id == "7"
    return answer


def test_ping(client: Client) -> None:
    assert ask(client, "amq.ping", b"hello").body == b"hello"


def test_stats(client: Client) -> None:
    client.declare()
    client.publish("q")
    stats = json.loads(ask(client, "amq.stats").body)
    queue = stats["queues"]["q"]
    assert (queue["type"], queue["messages"], queue["consumers"]) == ("classic", 1, 0)
    assert (queue["messages_delayed"], queue["messages_dlx"]) == (0, 0)
    assert queue["message_stats"]["publish"] == 1
    assert (stats["vhost"], stats["connections"]) == ("/", 1)


def test_routes(client: Client) -> None:
    client.declare()
    client.call(m.QueueBind("q", "amq.topic", "a.#"), m.QueueBindOk)
    routes = json.loads(ask(client, "amq.routes").body)
    assert routes["exchanges"]["amq.topic"] == "topic"
    assert {"source": "amq.topic", "destination": "q", "destination_type": "queue", "routing_key": "a.#",
            "arguments": {}} in routes["bindings"]  # fmt: skip


def test_without_reply_to_nothing_is_said(client: Client) -> None:
    client.publish("amq.ping", b"1", "amq.system")
    assert client.events == []


def test_a_direct_reply(client: Client) -> None:
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.publish("amq.ping", b"1", "amq.system", reply_to="amq.rabbitmq.reply-to")
    assert [body for *_, body in client.deliveries()] == [b"1"]


def test_an_unknown_service_is_nobody(client: Client) -> None:
    client.engine.send_content(1, m.BasicPublish("amq.system", "nope", mandatory=True), Properties(reply_to="q"), b"")
    client.pump()
    assert [each.reply_code for each in client.take(m.BasicReturn)] == [312]


def test_a_direct_reply_with_a_copy(client: Client) -> None:
    client.declare("copy")
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.declare("requests")
    client.publish("requests", b"?", reply_to="amq.rabbitmq.reply-to")
    request = client.get("requests")
    assert request is not None
    client.publish(request.decode_properties().reply_to or "", b"!", headers={"CC": ["copy"]})
    assert [body for *_, body in client.deliveries()] == [b"!"]
    copy = client.get("copy")
    assert copy is not None
    assert copy.body == b"!"
