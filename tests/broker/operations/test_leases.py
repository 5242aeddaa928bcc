"""Leases: deliveries that may take longer than the consumer timeout."""

from __future__ import annotations

import json
from typing import Any

import pika
import pytest

from harebell.broker.operations.leases import MAX_LEASE
from harebell.protocol.v091 import methods as m
from tests.broker.kit import Client, NodeKit
from tests.wire import BrokerThread


def lease(client: Client, tag: int, timeout: int, channel: int = 1, **headers: Any) -> None:
    asked = {"delivery_tag": tag, "timeout": timeout, **headers}
    client.publish("amq.lease", exchange="amq.system", channel=channel, headers=asked)


def start(kit: NodeKit, count: int = 3, timeout: int = 1000) -> Client:
    """A client that has `count` deliveries of a queue with a consumer timeout."""
    client = kit.client()
    client.declare(x_consumer_timeout=timeout)
    for number in range(count):
        client.publish("q", b"%d" % number)
    client.call(m.BasicQos(0, count), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c"))
    assert len(client.deliveries()) == count
    client.events.clear()
    return client


def outstanding(client: Client) -> list[int]:
    return list(client.connection.channels[1].unacked.entries)


def test_a_leased_delivery_stays_and_the_others_go_back(kit: NodeKit) -> None:
    client = start(kit)
    lease(client, 2, 10_000)
    kit.pass_time(2000)
    assert [each.consumer_tag for each in client.take(m.BasicCancel)] == ["c"]
    assert outstanding(client) == [2]
    assert client.count() == 2
    kit.pass_time(7900)
    assert outstanding(client) == [2]
    client.send(1, m.BasicAck(2))
    assert client.count() == 2


def test_a_lease_that_is_over_gives_the_message_back(kit: NodeKit) -> None:
    client = start(kit, 1)
    lease(client, 1, 10_000)
    kit.pass_time(9_999)
    assert outstanding(client) == [1]
    kit.pass_time(500)
    assert outstanding(client) == []
    got = client.get()
    assert got is not None
    assert got.decode_method() == m.BasicGetOk(1 + 1, True, "", "q", 0)


def test_each_request_replaces_the_one_before(kit: NodeKit) -> None:
    client = start(kit, 1)
    lease(client, 1, 60_000)
    for _ in range(5):
        lease(client, 1, 3_000)
        kit.pass_time(2_500)
    assert outstanding(client) == [1]
    kit.pass_time(1_000)
    assert outstanding(client) == []


@pytest.mark.parametrize(("tag", "left"), [(2, [1, 2]), (0, [1, 2, 3])])
def test_multiple_means_what_it_means_in_an_acknowledgement(kit: NodeKit, tag: int, left: list[int]) -> None:
    client = start(kit)
    lease(client, tag, 10_000, multiple=True)
    kit.pass_time(5_000)
    assert outstanding(client) == left


def test_what_basic_get_took_has_a_lease_too(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_consumer_timeout=1000)
    client.publish("q")
    assert client.get(no_ack=False)
    lease(client, 1, 5_000)
    kit.pass_time(4_000)
    assert outstanding(client) == [1]
    kit.pass_time(2_000)
    assert client.count() == 1


def test_a_client_that_cannot_be_told_loses_its_channel_when_the_lease_is_over(kit: NodeKit) -> None:
    client = kit.client(capabilities={})
    client.declare(x_consumer_timeout=1000)
    client.publish("q")
    client.send(1, m.BasicConsume("q", "c"))
    lease(client, 1, 5_000)
    kit.pass_time(4_000)
    assert client.take(m.ChannelClose) == []
    kit.pass_time(2_000)
    (close,) = client.take(m.ChannelClose)
    assert "timed out. Timeout value used: 5000 ms" in close.reply_text


def test_the_answer_names_the_deliveries(kit: NodeKit) -> None:
    client = start(kit)
    client.declare("answers")
    asked = {"delivery_tag": 2, "timeout": 500, "multiple": True}
    client.publish("amq.lease", exchange="amq.system", headers=asked, reply_to="answers", correlation_id="7")
    answer = client.get("answers")
    assert answer is not None
    assert json.loads(answer.body) == {"delivery_tags": [1, 2], "timeout": 500}
    assert answer.decode_properties().correlation_id == "7"


def test_a_lease_belongs_to_the_channel_of_the_request(kit: NodeKit) -> None:
    client = start(kit, 1)
    client.open(2)
    client.events.clear()
    lease(client, 1, 500)  # the same request as before, byte for byte, on another channel
    lease(client, 1, 500, channel=2)
    (close,) = client.take(m.ChannelClose)
    assert close.reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert outstanding(client) == [1]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"delivery_tag": 7, "timeout": 1}, "unknown delivery tag 7"),
        ({"delivery_tag": 7, "timeout": 1, "multiple": True}, "unknown delivery tag 7"),
        ({"delivery_tag": 0, "timeout": 1}, "unknown delivery tag 0"),
        ({"timeout": 1}, "header 'delivery_tag' has to be an integer from 0"),
        ({"delivery_tag": "1", "timeout": 1}, "header 'delivery_tag' has to be an integer from 0"),
        ({"delivery_tag": 1}, "header 'timeout' has to be an integer from 1 to 86400000"),
        ({"delivery_tag": 1, "timeout": 0}, "header 'timeout' has to be"),
        ({"delivery_tag": 1, "timeout": True}, "header 'timeout' has to be"),
        ({"delivery_tag": 1, "timeout": MAX_LEASE + 1}, "header 'timeout' has to be"),
        ({"delivery_tag": 1, "timeout": 1, "multiple": 1}, "header 'multiple' has to be a boolean"),
        (None, "header 'delivery_tag' has to be"),
    ],
)
def test_refusals(kit: NodeKit, headers: Any, text: str) -> None:
    client = start(kit)
    client.publish("amq.lease", exchange="amq.system", headers=headers)
    (close,) = client.take(m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)
    assert text in close.reply_text


def test_a_long_lease_does_not_hide_what_is_overdue_behind_it(kit: NodeKit) -> None:
    client = start(kit, 1)
    lease(client, 1, 100_000)
    kit.pass_time(20_000)
    client.call(m.BasicQos(0, 3), m.BasicQosOk)
    client.publish("q", b"next")
    assert [body for *_, body in client.deliveries()] == [b"next"]
    kit.pass_time(900)
    assert outstanding(client) == [1, 2]
    kit.pass_time(1_100)
    assert outstanding(client) == [1]
    assert len(client.connection.channels[1]._timeouts._marks) < 10


def test_what_is_settled_is_forgotten(kit: NodeKit) -> None:
    client = start(kit)
    lease(client, 0, 10_000, multiple=True)
    client.send(1, m.BasicAck(0, multiple=True))
    kit.pass_time(1_000)
    assert 1 not in client.connection.channels[1]._timeouts._leases
    assert client.take(m.BasicCancel) == []


def test_from_pika(broker: BrokerThread) -> None:
    """A client that knows nothing of leases asks for one and is answered by direct reply-to."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"work")
    method, _, _ = channel.basic_get("q")
    answers: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *came: answers.append(came[3]), auto_ack=True)
    channel.basic_publish(
        "amq.system",
        "amq.lease",
        b"",
        pika.BasicProperties(
            headers={"delivery_tag": method.delivery_tag, "timeout": 3_600_000}, reply_to="amq.rabbitmq.reply-to"
        ),
    )
    while not answers:
        connection.process_data_events(time_limit=10)
    assert json.loads(answers[0]) == {"delivery_tags": [method.delivery_tag], "timeout": 3_600_000}
    channel.basic_ack(method.delivery_tag)
    connection.close()
