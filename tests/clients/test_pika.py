"""pika, as it is, against the broker."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionBlockedTimeout,
    ProbableAuthenticationError,
    UnroutableError,
)

from tests.wire import BrokerThread


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
    for method, _, body in channel.consume("q", inactivity_timeout=60):
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
    for method, properties, body in channel.consume("s", arguments={"x-stream-offset": 5}, inactivity_timeout=60):
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


def test_a_remote_call_with_direct_replies(broker: BrokerThread, channel: BlockingChannel) -> None:
    """The client asks and waits on one channel; the server answers to an address that it was given."""
    channel.queue_declare("double")
    server = pika.BlockingConnection(pika.URLParameters(broker.broker.url))
    answers = server.channel()

    def answer(_: object, method: object, properties: pika.BasicProperties, body: bytes) -> None:
        assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
        assert answers.queue_declare(properties.reply_to, passive=True).method.consumer_count == 1
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        answers.basic_publish("", properties.reply_to, b"%d" % (2 * int(body)), reply)

    got: dict[str, bytes] = {}

    def take(_: object, method: object, properties: pika.BasicProperties, body: bytes) -> None:
        got[properties.correlation_id] = body
        if len(got) == 3:
            channel.stop_consuming()

    channel.basic_consume("amq.rabbitmq.reply-to", take, auto_ack=True)
    for number in range(3):
        asked = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=str(number))
        channel.basic_publish("", "double", b"%d" % number, asked)
    for _ in range(3):
        method, properties, body = answers.basic_get("double", auto_ack=True)
        answer(answers, method, properties, body)
    channel.start_consuming()
    assert got == {"0": b"0", "1": b"2", "2": b"4"}
    server.close()


def test_an_address_for_replies_goes_with_its_channel(broker: BrokerThread, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True)
    channel.basic_publish("", "q", b"", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, properties, _ = channel.basic_get("q", auto_ack=True)
    channel.close()
    other = channel.connection.channel()
    other.confirm_delivery()
    with pytest.raises(UnroutableError):
        other.basic_publish("", properties.reply_to, b"", mandatory=True)


def test_a_priority_queue(channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments={"x-max-priority": 10})
    for number, priority in enumerate((None, 1, 10, 200, 1)):
        channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(priority=priority))
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(5)] == [b"2", b"3", b"1", b"4", b"0"]


def test_a_transaction(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"1")
    channel.tx_rollback()
    channel.basic_publish("", "q", b"2")
    channel.tx_commit()
    assert channel.basic_get("q", auto_ack=True)[2] == b"2"
    assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_blocked_and_unblocked(broker: BrokerThread) -> None:
    """The callbacks of an application that publishes while the broker is low on memory."""
    said: list[str] = []
    connection = pika.BlockingConnection(pika.URLParameters(broker.broker.url))
    connection.add_on_connection_blocked_callback(lambda _, frame: said.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, frame: said.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("q")
    broker.run(lambda: broker.broker.node.raise_alarm("memory"))
    connection.process_data_events(0)
    assert said == []
    channel.basic_publish("", "q", b"1")
    while not said:
        connection.process_data_events(1)
    broker.run(lambda: broker.broker.node.clear_alarm("memory"))
    while len(said) < 2:
        connection.process_data_events(1)
    assert said == ["low on memory", "unblocked"]
    assert channel.basic_get("q", auto_ack=True)[2] == b"1"
    connection.close()


def test_a_blocked_connection_times_out(broker: BrokerThread) -> None:
    """blocked_connection_timeout, with which applications get out of a long alarm."""
    parameters = pika.URLParameters(broker.broker.url)
    parameters.blocked_connection_timeout = 0.05
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    broker.run(lambda: broker.broker.node.raise_alarm("memory"))
    channel.basic_publish("", "q", b"1")
    with pytest.raises(ConnectionBlockedTimeout):
        while True:
            connection.process_data_events(1)
    broker.run(lambda: broker.broker.node.clear_alarm("memory"))
