"""What properties have a say in, and that knowing them from another message changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.broker import slices
from harebell.broker.operations.statistics import statistics
from harebell.broker.v091.publisher import MAX_KNOWN
from harebell.protocol.v091 import Properties, encode_content, methods as m
from harebell.protocol.v091.codec import encode_method
from tests.broker.kit import Client, NodeKit


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
def test_a_request_has_the_address_of_its_channel(kit: NodeKit, rest: dict[str, Any]) -> None:
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
        assert request.properties == Properties(reply_to=reply_to, **rest)
        server.publish(reply_to, b"answer " + body)
        client.receive()
        assert client.deliveries()[0][2] == b"answer " + body
    assert client.count("other") == (2 if "headers" in rest else 0)


def test_a_request_needs_a_consumer_for_its_replies(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    client.publish("q", reply_to="amq.rabbitmq.reply-to")
    assert "fast reply consumer does not exist" in client.take(m.ChannelClose)[0].reply_text


def headers_exchange(client: Client) -> None:
    for queue in ("red", "blue", "other"):
        client.declare(queue)
    client.call(m.ExchangeDeclare("colours", "headers"), m.ExchangeDeclareOk)
    for queue in ("red", "blue"):
        client.call(m.QueueBind(queue, "colours", "", arguments={"colour": queue}), m.QueueBindOk)


def test_by_headers_that_come_again(kit: NodeKit) -> None:
    client = kit.client()
    headers_exchange(client)
    for _ in range(2):
        for colour in ("red", "blue", "green"):
            client.publish("key", exchange="colours", headers={"colour": colour})
        client.publish("key", exchange="colours")
        client.publish("key", exchange="colours", headers={"colour": "red", "CC": ["x"]}, message_id="1")
    assert (client.count("red"), client.count("blue")) == (4, 2)
    counts = statistics(kit.node)["vhosts"]["/"]
    assert counts["exchanges"]["colours"]["message_stats"] == {"publish_in": 10, "publish_out": 6}
    assert counts["message_stats"]["publish"] == 10
    client.call(m.QueueBind("other", "colours", "", arguments={"colour": "red"}), m.QueueBindOk)
    client.publish("key", exchange="colours", headers={"colour": "red"})
    assert (client.count("red"), client.count("other")) == (5, 1)


def test_by_more_headers_than_are_remembered(kit: NodeKit) -> None:
    client = kit.client()
    headers_exchange(client)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for number in range(2 * MAX_KNOWN):
        client.publish("key", exchange="colours", headers={"colour": "red", "n": number})
    assert client.count("red") == 2 * MAX_KNOWN
    assert statistics(kit.node)["vhosts"]["/"]["message_stats"]["publish"] == 2 * MAX_KNOWN
    kit.run_syncs()
    client.receive()
    assert max(ack.delivery_tag for ack in client.take(m.BasicAck)) <= 2 * MAX_KNOWN


def test_headers_do_not_tell_the_way_where_a_property_does(kit: NodeKit) -> None:
    client = kit.client()
    queues = [f"q{number}" for number in range(4)]
    client.call(
        m.ExchangeDeclare("hash", "x-consistent-hash", arguments={"hash-property": "message_id"}), m.ExchangeDeclareOk
    )
    for queue in queues:
        client.declare(queue)
        client.call(m.QueueBind(queue, "hash", "1"), m.QueueBindOk)
    for number in range(64):
        client.publish("key", exchange="hash", headers={"a": 1}, message_id=str(number))
    assert all(client.count(queue) for queue in queues)
    assert sum(map(client.count, queues)) == 64


@pytest.mark.pure
@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
@pytest.mark.parametrize("queues", [10, 130])
@pytest.mark.parametrize("confirm", [False, True], ids=["", "confirmed"])
def test_a_flood_to_many_queues_waits_for_others(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch, *, durable: bool, queues: int, confirm: bool
) -> None:
    other = kit.client()
    client.call(m.ExchangeDeclare("all", "fanout", durable=durable), m.ExchangeDeclareOk)
    for number in range(queues):
        client.call(m.QueueDeclare(f"q{number}", durable=durable), m.QueueDeclareOk)
        client.call(m.QueueBind(f"q{number}", "all"), m.QueueBindOk)
    if confirm:
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    last = kit.node.vhosts["/"].queues[f"q{queues - 1}"]
    monkeypatch.setattr(slices, "CHECK", 1)
    kit.stopwatch.step = 1.0
    for number in range(5):
        client.engine.send_content(1, m.BasicPublish("all", ""), Properties(delivery_mode=2), b"%d" % number)
    client.engine.send_method(1, m.QueueDeclare("q0", passive=True))
    client.pump()
    assert last.message_count < 5, "the rest has to wait"
    assert other.count("q0") <= 5, "others do not"
    kit.node.batch.slices.finish()
    while last.stored and client.connection.channels[1].unconfirmed:
        kit.run_sync()
    client.receive()
    assert [answer.message_count for answer in client.take(m.QueueDeclareOk)] == [5], "methods wait for their turn"
    if confirm:
        assert max(ack.delivery_tag for ack in client.take(m.BasicAck)) == 5
    kit.stopwatch.step = 0.0
    for number in range(queues):
        bodies = [content.body for _ in range(6) if (content := other.get(f"q{number}")) is not None]
        assert bodies == [b"0", b"1", b"2", b"3", b"4"]
