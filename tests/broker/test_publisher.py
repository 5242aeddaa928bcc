"""What properties have a say in, and that knowing them from another message changes nothing."""

from __future__ import annotations

import pytest

from tests.broker.kit import NodeKit
from warren.broker.publisher import MAX_KNOWN
from warren.protocol.v091 import Properties, encode_content, methods as m
from warren.protocol.v091.codec import encode_method


def test_properties_that_come_again(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    for body in (b"1", b"2"):
        client.publish("q", body, headers={"a": 1}, expiration="100")
        client.publish("q", body + b"!", headers={"a": 1})
    assert client.count() == 4
    kit.pass_time(100)
    kept = [client.get(), client.get()]
    assert [(each.body, each.properties) for each in kept if each is not None] == [
        (b"1!", Properties(headers={"a": 1})),
        (b"2!", Properties(headers={"a": 1})),
    ]


def test_more_different_properties_than_are_remembered(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    for number in (*range(2 * MAX_KNOWN), *range(2 * MAX_KNOWN)):
        client.publish("q", headers={"n": number}, expiration=str(number * 1000 + 1))
    assert client.count() == 4 * MAX_KNOWN
    kit.pass_time(MAX_KNOWN * 1000)
    assert client.count() == 2 * MAX_KNOWN


def test_what_is_malformed_is_refused_behind_what_is_not(kit: NodeKit) -> None:
    client, reader = kit.client(), kit.client()
    client.declare()
    frames = encode_content(1, Properties(headers={"a": 1}), b"", 0)
    assert frames.count(b"\x01ai") + frames.count(b"\x01aI") + frames.count(b"\x01ab") + frames.count(b"\x01al") == 1
    at = frames.index(b"\x01a") + 2
    method = encode_method(1, m.BasicPublish("", "q"))
    client.connection.receive_data(2 * (method + frames) + method + frames[:at] + b"?" + frames[at + 1 :])
    client.receive()
    assert client.take(m.ConnectionClose)[0].reply_code == 502
    assert reader.count() == 2


@pytest.mark.parametrize("rest", [{}, {"correlation_id": "1"}, {"expiration": "100"}, {"headers": {"CC": ["other"]}}])
def test_a_request_has_the_address_of_its_channel(kit: NodeKit, rest: dict[str, object]) -> None:
    client, server = kit.client(), kit.client()
    for queue in ("q", "other"):
        client.declare(queue)
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    for body in (b"1", b"2"):
        client.publish("q", body, reply_to="amq.rabbitmq.reply-to", **rest)
        request = server.get()
        assert request is not None
        assert request.body == body
        reply_to = request.properties.reply_to
        assert reply_to is not None
        assert reply_to.startswith("amq.rabbitmq.reply-to.")
        assert request.properties == Properties(reply_to=reply_to, **rest)  # type: ignore[arg-type]
        server.publish(reply_to, b"answer " + body)
        client.receive()
        assert client.deliveries()[0][2] == b"answer " + body
    assert client.count("other") == (2 if "headers" in rest else 0)


def test_a_request_needs_a_consumer_for_its_replies(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    client.publish("q", reply_to="amq.rabbitmq.reply-to")
    assert "fast reply consumer does not exist" in client.take(m.ChannelClose)[0].reply_text
