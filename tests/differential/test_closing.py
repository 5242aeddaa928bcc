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
