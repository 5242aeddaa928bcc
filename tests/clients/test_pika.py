"""pika, as it is, against the broker."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError, UnroutableError

from tests.wire import BrokerThread


@pytest.fixture
def channel(broker: BrokerThread) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.broker.url))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def test_publish_get_ack_reject(channel: BlockingChannel) -> None:
    channel.queue_declare("dead")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.confirm_delivery()
    for number in range(3):
        properties = pika.BasicProperties(headers={"n": number}, message_id=str(number))
        channel.basic_publish("", "q", b"%d" % number, properties)
    method, properties, body = channel.basic_get("q")
    assert (method.delivery_tag, method.message_count, body) == (1, 2, b"0")
    assert (properties.headers, properties.message_id) == ({"n": 0}, "0")
    channel.basic_ack(1)
    method, _, body = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = channel.basic_get("q")
    assert (method.redelivered, body) == (True, b"1")
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = channel.basic_get("dead", auto_ack=True)
    assert body == b"1"
    assert properties.headers["x-death"][0]["reason"] == "rejected"


def test_consume_and_cancel(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=2)
    for number in range(10):
        channel.basic_publish("", "q", b"%d" % number)
    got = []
    for method, _, body in channel.consume("q", inactivity_timeout=5):
        assert method is not None
        got.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(got) == 8:
            break
    assert channel.cancel() <= 2
    assert got == [b"%d" % number for number in range(8)]
    assert channel.queue_declare("q", passive=True).method.message_count == 2


def test_mandatory_returns(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("", "nope", b"back", mandatory=True)
    assert raised.value.messages[0].body == b"back"


def test_errors_have_codes_and_texts(channel: BlockingChannel) -> None:
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare("nope", passive=True)
    assert (raised.value.reply_code, raised.value.reply_text) == (404, "NOT_FOUND - no queue 'nope' in vhost '/'")


def test_a_stream(channel: BlockingChannel) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", "s", b"%d" % number)
    channel.basic_qos(prefetch_count=4)
    got = []
    for method, properties, body in channel.consume("s", arguments={"x-stream-offset": 5}, inactivity_timeout=5):
        assert method is not None
        got.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 15:
            break
    assert got == [(number, b"%d" % number) for number in range(5, 20)]


def test_large_messages_and_exchanges(channel: BlockingChannel) -> None:
    channel.exchange_declare("t", "topic")
    channel.exchange_declare("f", "fanout")
    channel.exchange_bind("t", "f", "")
    queue = channel.queue_declare("", exclusive=True).method.queue
    assert queue.startswith("amq.gen-")
    channel.queue_bind(queue, "t", "a.*")
    channel.basic_publish("f", "a.b", b"x" * 1_000_000)
    assert len(channel.basic_get(queue, auto_ack=True)[2]) == 1_000_000
    channel.queue_unbind(queue, "t", "a.*")
    channel.queue_purge(queue)
    channel.queue_delete(queue)
    channel.exchange_delete("t")


def test_a_wrong_password(broker: BrokerThread) -> None:
    parameters = pika.ConnectionParameters(port=broker.port, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        pika.BlockingConnection(parameters)
