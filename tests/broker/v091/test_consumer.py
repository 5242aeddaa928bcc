"""Messages whose properties fit no frame of the consumer: it loses its channel, and the queue loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harebell.protocol.v091 import Content, Properties, methods as m
from tests.broker.kit import Client, NodeKit

QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "priorities": {"x-max-priority": 3},
    "a time to live": {"x-message-ttl": 3_600_000},
    "groups": {"x-message-group": "group"},
}
LONG = {"group": "a", "x": "y" * 5000}
SHORT = {"group": "a"}


def fill(client: Client, arguments: dict[str, Any], *, mode: int = 2) -> None:
    client.call(m.QueueDeclare("q", durable=True, arguments=arguments), m.QueueDeclareOk)
    client.publish("q", b"first", headers=SHORT, delivery_mode=mode)
    client.publish("q", b"long", headers=LONG, delivery_mode=mode)
    client.publish("q", b"last", headers=SHORT, delivery_mode=mode)


def consume(client: Client, *, no_ack: bool = False, **arguments: Any) -> None:
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.call(m.BasicQos(0, 10), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c", no_ack=no_ack, arguments=table))


def refused(kit: NodeKit, client: Client) -> None:
    """The client lost channel 1 for the frame, and nothing else."""
    kit.pass_time(0)
    [close] = client.take(m.ChannelClose)
    assert close.reply_code == 406
    assert "properties that take a frame of 5" in close.reply_text
    assert "the negotiated frame_max is 4096" in close.reply_text
    client.send(1, m.ChannelCloseOk())
    client.open(2)
    client.call(m.QueueDeclare("other"), m.QueueDeclareOk, 2)


def bodies(client: Client) -> list[bytes]:
    return [body for _, _, body in client.deliveries()]


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("name", QUEUES)
def test_a_consumer_with_short_frames_loses_its_channel(kit: NodeKit, name: str, mode: int, no_ack: bool) -> None:
    sender, reader, other = kit.client(), kit.client(frame_max=4096), kit.client()
    fill(sender, QUEUES[name], mode=mode)
    consume(reader, no_ack=no_ack)
    got = bodies(reader)
    refused(kit, reader)
    assert b"long" not in got
    consume(other)
    rest = bodies(other)
    assert sorted(got + rest if no_ack else rest) == [b"first", b"last", b"long"]
    other.send(1, m.BasicAck(0, multiple=True))
    assert sender.count() == 0


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("name", QUEUES)
def test_a_restart_finds_what_was_refused(tmp_path: Path, name: str, no_ack: bool) -> None:
    """The first consumer after it is fed from the disk."""
    kit = NodeKit(tmp_path)
    fill(kit.client(), QUEUES[name])
    kit.stop()
    for _ in range(2):
        kit = NodeKit(tmp_path)
        reader = kit.client(frame_max=4096)
        consume(reader, no_ack=no_ack)
        assert b"long" not in bodies(reader)
        refused(kit, reader)
        kit.stop()
    kit = NodeKit(tmp_path)
    other = kit.client()
    consume(other)
    assert {b"long"} <= set(bodies(other)) <= {b"first", b"long", b"last"}
    kit.stop()


@pytest.mark.parametrize("no_ack", [False, True])
def test_another_consumer_takes_what_one_cannot(kit: NodeKit, no_ack: bool) -> None:
    sender, reader, other = kit.client(), kit.client(frame_max=4096), kit.client()
    sender.call(m.QueueDeclare("q", durable=True), m.QueueDeclareOk)
    consume(reader, no_ack=no_ack)
    consume(other)
    for _ in range(4):
        sender.publish("q", b"long", headers=LONG)
        other.receive()
    refused(kit, reader)
    other.receive()
    assert bodies(reader) == []
    assert bodies(other) == [b"long"] * 4


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("name", QUEUES)
def test_basic_get_leaves_it_in_the_queue(tmp_path: Path, name: str, no_ack: bool) -> None:
    kit = NodeKit(tmp_path)
    sender, reader = kit.client(), kit.client(frame_max=4096)
    sender.call(m.QueueDeclare("q", durable=True, arguments=QUEUES[name]), m.QueueDeclareOk)
    sender.publish("q", b"long", headers=LONG, delivery_mode=2)
    reader.send(1, m.BasicGet("q", no_ack=no_ack))
    refused(kit, reader)
    assert sender.count() == 1
    kit.stop()
    kit = NodeKit(tmp_path)
    content = kit.client().get()
    assert content is not None
    assert content.body == b"long"
    kit.stop()


def test_a_reader_of_a_stream(kit: NodeKit) -> None:
    sender, reader, other = kit.client(), kit.client(frame_max=4096), kit.client()
    fill(sender, {"x-queue-type": "stream"})
    kit.run_sync()
    while sender.count() < 3:
        kit.run_sync()
    consume(reader, x_stream_offset="first")
    assert bodies(reader) == [b"first"]
    refused(kit, reader)
    consume(other, x_stream_offset="first")
    assert bodies(other) == [b"first", b"long", b"last"]


def test_one_who_browses(kit: NodeKit) -> None:
    sender, reader = kit.client(), kit.client(frame_max=4096)
    fill(sender, {})
    consume(reader, no_ack=False, x_browse=True)
    assert bodies(reader) == [b"first"]
    refused(kit, reader)
    assert sender.count() == 3


def test_a_direct_reply(kit: NodeKit) -> None:
    server, asker = kit.client(), kit.client(frame_max=4096)
    server.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    asker.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    asker.publish("q", b"question", reply_to="amq.rabbitmq.reply-to")
    question = server.get()
    assert question is not None
    reply_to = question.decode_properties().reply_to
    assert reply_to is not None
    server.publish(reply_to, b"answer", headers=LONG)
    refused(kit, asker)


def test_a_redelivery_goes_without_its_count_where_that_does_not_fit(kit: NodeKit) -> None:
    sender, reader = kit.client(frame_max=4096), kit.client(frame_max=4096)
    sender.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    overhead = 20 + 2 + 4 + len(b"\1xS\0\0\0\0")
    sender.publish("q", headers={"x": "y" * (4096 - overhead)})
    consume(reader)
    reader.send(1, m.BasicNack(1, requeue=True))
    contents = [event for _, event in reader.events if isinstance(event, Content)]
    methods = [content.decode_method() for content in contents]
    assert [isinstance(method, m.BasicDeliver) and method.redelivered for method in methods] == [False, True]
    assert contents[0].raw_properties == contents[1].raw_properties


def test_what_comes_back_to_its_publisher_always_fits(kit: NodeKit) -> None:
    """Direct reply-to makes a request longer; mandatory and unroutable, it goes back on the same connection."""
    asker = kit.client(frame_max=4096)
    asker.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    overhead = 20 + 2 + 4 + len(b"\1xS\0\0\0\0") + 22
    properties = Properties(headers={"x": "y" * (4096 - overhead)}, reply_to="amq.rabbitmq.reply-to")
    asker.engine.send_content(1, m.BasicPublish("", "nowhere", mandatory=True), properties, b"question")
    asker.pump()
    [returned] = asker.take(m.BasicReturn)
    assert returned.reply_code == 312
