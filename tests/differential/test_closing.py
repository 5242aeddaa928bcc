"""Frames in one write with a channel.close, on both brokers: what stands behind it is not looked at."""

from __future__ import annotations

import pytest

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.testing.rabbitmq import RabbitMQ
from tests.wire import Wire, content_frames

CLOSE = encode_method(1, m.ChannelClose(200, "bye"))
BEHIND = {
    "a message": content_frames(1, m.BasicPublish("", "nowhere"), None, b"body", 131_072),
    "a message for an exchange that is missing": content_frames(1, m.BasicPublish("no", "k"), None, b"", 131_072),
    "a declaration": encode_method(1, m.QueueDeclare("closing never declared")),
    "an ack": encode_method(1, m.BasicAck(5)),
    "all of them": encode_method(1, m.BasicAck(5))
    + encode_method(1, m.QueueDeclare("closing never declared"))
    + content_frames(1, m.BasicPublish("", "nowhere"), None, b"body", 131_072),
}


@pytest.mark.parametrize("behind", BEHIND)
def test_frames_behind_a_channel_close_are_dropped(harebell_port: int, rabbitmq: RabbitMQ, behind: str) -> None:
    for port in (harebell_port, rabbitmq.port):
        with Wire(port).log_in() as wire:
            wire.channel(1)
            wire.channel(2)
            wire.raw(CLOSE + BEHIND[behind])
            wire.expect(m.ChannelCloseOk, 1)
            wire.call(2, m.QueueDeclare(exclusive=True), m.QueueDeclareOk)
            wire.channel(1)
            wire.call(1, m.QueueDeclare("closing never declared", passive=True), m.ChannelClose)
            assert wire.received == []


@pytest.mark.parametrize("closes", [1, 3])
def test_each_close_gets_its_answer_and_the_client_closes_the_socket(
    harebell_port: int, rabbitmq: RabbitMQ, closes: int
) -> None:
    """Threads of one program may close one channel, or connection, at the same time, and each waits for its answer."""
    for port in (harebell_port, rabbitmq.port):
        with Wire(port).log_in() as wire:
            wire.channel(1)
            wire.raw(CLOSE * closes)
            for _ in range(closes):
                wire.expect(m.ChannelCloseOk, 1)
            wire.raw(encode_method(0, m.ConnectionClose(200, "bye")) * closes)
            for _ in range(closes):
                wire.expect(m.ConnectionCloseOk, 0)
            assert wire.is_silent(0.5)


def test_a_channel_that_the_broker_closed_is_not_opened_before_the_answer(
    harebell_port: int, rabbitmq: RabbitMQ
) -> None:
    for port in (harebell_port, rabbitmq.port):
        with Wire(port).log_in() as wire:
            wire.channel(1)
            wire.send(1, m.QueueDeclare("closing never declared", passive=True))
            wire.expect(m.ChannelClose, 1)
            wire.send(1, m.ChannelOpen())
            close = wire.expect(m.ConnectionClose, 0).method
            assert isinstance(close, m.ConnectionClose)
            assert (close.reply_code, close.reply_text) == (504, "CHANNEL_ERROR - second 'channel.open' seen")


@pytest.mark.parametrize("key, answer", [("nothing", m.QueueUnbindOk), ("something", m.ChannelClose)])
def test_unbinding_a_queue_of_another_connection(
    harebell_port: int, rabbitmq: RabbitMQ, key: str, answer: type[m.Method]
) -> None:
    for port in (harebell_port, rabbitmq.port):
        with Wire(port).log_in() as owner, Wire(port).log_in() as other:
            owner.channel(1)
            other.channel(1)
            owner.call(1, m.QueueDeclare("closing owned", exclusive=True), m.QueueDeclareOk)
            owner.call(1, m.QueueBind("closing owned", "amq.direct", "something"), m.QueueBindOk)
            other.call(1, m.QueueUnbind("closing owned", "amq.direct", key), answer)
