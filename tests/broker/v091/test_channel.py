"""What a channel owes its client beyond RabbitMQ's answers: frames as negotiated, windows, order, redelivery."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harebell.protocol.v091 import Content, methods as m
from tests.broker.kit import Client, NodeKit

STREAM = {"x-queue-type": "stream"}


def body_frames(event: object) -> list[int]:
    assert isinstance(event, Content)
    frames, at, sizes = event.frames, 0, []
    while at < len(frames):
        size = int.from_bytes(frames[at + 3 : at + 7], "big")
        if frames[at] == 3:
            sizes.append(size + 8)
        at += size + 8
    return sizes


@pytest.mark.parametrize("arguments", [{}, STREAM])
@pytest.mark.parametrize("channel", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 131_064, 131_065, 300_000])
def test_consumers_get_frames_of_their_size_and_channel(
    kit: NodeKit, arguments: dict[str, str], channel: int, size: int
) -> None:
    sender, reader = kit.client(), kit.client(frame_max=4096)
    sender.call(m.QueueDeclare("q", durable=True, arguments=arguments), m.QueueDeclareOk)
    sender.publish("q", b"x" * size, content_type="text/plain")
    if arguments:
        kit.run_sync()
    if channel != 1:
        reader.open(channel)
        reader.events.clear()
    reader.call(m.BasicQos(0, 5), m.BasicQosOk, channel)
    offset = {"x-stream-offset": "first"} if arguments else {}
    reader.send(channel, m.BasicConsume("q", "c", arguments=offset))
    (number, event) = reader.events[-1]
    assert number == channel
    assert isinstance(event, Content)
    assert event.body == b"x" * size
    assert event.decode_properties().content_type == "text/plain"
    assert all(each <= 4096 for each in body_frames(event))


def test_both_windows_hold(client: Client) -> None:
    for name in ("q1", "q2"):
        client.call(m.QueueDeclare(name), m.QueueDeclareOk)
    client.call(m.BasicQos(0, 2), m.BasicQosOk)
    client.call(m.BasicQos(0, 3, global_=True), m.BasicQosOk)
    client.call(m.BasicConsume("q1", "c"), m.BasicConsumeOk)
    client.call(m.BasicConsume("q2", "d"), m.BasicConsumeOk)
    for _ in range(3):
        client.publish("q1", b"c")
    for _ in range(3):
        client.publish("q2", b"d")
    assert [body for *_, body in client.deliveries()] == [b"c", b"c", b"d"]
    client.send(1, m.BasicAck(1))
    assert len(client.deliveries()) == 1
    client.send(1, m.BasicAck(0, multiple=True))
    assert len(client.deliveries()) == 2
    assert client.connection.channels[1].credit == 1


def test_a_cancelled_consumers_window_comes_back_to_the_channel(client: Client) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.call(m.BasicQos(0, 2, global_=True), m.BasicQosOk)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for number in range(4):
        client.publish("q", b"%d" % number)
    client.call(m.BasicCancel("c"), m.BasicCancelOk)
    client.send(1, m.BasicConsume("q", "d"))
    assert [body for *_, body in client.deliveries()] == [b"0", b"1"]
    client.send(1, m.BasicNack(1, requeue=True))
    assert client.deliveries() == [(3, True, b"0")]
    client.send(1, m.BasicAck(0, multiple=True))
    assert client.deliveries() == [(4, False, b"2"), (5, False, b"3")]


def test_recover_without_requeue_gives_messages_back_to_who_had_them(client: Client) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    for number in range(3):
        client.publish("q", b"%d" % number)
    client.send(1, m.BasicGet("q"))
    client.send(1, m.BasicConsume("q", "c"))
    client.events.clear()
    client.send(1, m.BasicRecover(requeue=False))
    assert sorted(body for *_, body in client.deliveries()) == [b"0", b"1", b"2"]
    client.send(1, m.BasicAck(0, multiple=True))
    assert client.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk).message_count == 0


def test_recover_without_requeue_on_a_full_window_does_not_overfill_it(client: Client) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.call(m.BasicQos(0, 2), m.BasicQosOk)
    for number in range(4):
        client.publish("q", b"%d" % number)
    client.send(1, m.BasicConsume("q", "c"))
    client.events.clear()
    client.send(1, m.BasicRecover(requeue=False))
    assert client.deliveries() == [(3, True, b"0"), (4, True, b"1")]
    client.send(1, m.BasicAck(3))
    assert client.deliveries() == [(5, False, b"2")]


def test_returns_come_before_confirms(client: Client) -> None:
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for number in range(3):
        client.engine.send_content(1, m.BasicPublish("", "nope", mandatory=True), b"\0\0", b"%d" % number)
    client.pump()
    assert [type(event) for _, event in client.events] == [Content, Content, Content, m.BasicAck]
    assert client.take(m.BasicAck) == [m.BasicAck(3, multiple=True)]


def test_a_consumer_that_cannot_write_holds_up_nobody(kit: NodeKit) -> None:
    stuck, other = kit.client(), kit.client()
    stuck.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    stuck.call(m.BasicConsume("q", "c", no_ack=True), m.BasicConsumeOk)
    other.call(m.BasicConsume("q", "d", no_ack=True), m.BasicConsumeOk)
    stuck.connection.writable = False
    for number in range(4):
        other.publish("q", b"%d" % number)
    assert [body for *_, body in other.deliveries()] == [b"0", b"1", b"2", b"3"]
    other.call(m.BasicCancel("d"), m.BasicCancelOk)
    other.publish("q", b"4")
    stuck.receive()
    assert stuck.deliveries() == []
    stuck.connection.resume()
    stuck.receive()
    assert stuck.deliveries() == [(1, False, b"4")]


def test_a_transport_that_fills_up_inside_a_flush(kit: NodeKit) -> None:
    """pause_writing comes from within transport.write: what is left stays in the queue."""
    client = kit.client()
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    for _ in range(40):
        client.publish("q", b"x" * 100_000)
    write = client.transport.write

    def full(data: bytes | memoryview) -> None:
        write(data)
        client.connection.writable = False

    client.transport.write = full  # type: ignore[method-assign]
    client.send(1, m.BasicConsume("q", "c", no_ack=True))
    got = len(client.deliveries())
    assert 0 < got < 40
    while got < 40:
        client.connection.resume()
        client.receive()
        came = len(client.deliveries())
        assert came
        got += came


def test_auto_delete_queue_takes_an_auto_delete_exchange_with_it_and_publishing_notices(client: Client) -> None:
    client.call(m.ExchangeDeclare("x", "fanout", auto_delete=True), m.ExchangeDeclareOk)
    client.call(m.QueueDeclare("q", auto_delete=True), m.QueueDeclareOk)
    client.call(m.QueueBind("q", "x", ""), m.QueueBindOk)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    client.publish("", b"1", exchange="x")
    assert len(client.deliveries()) == 1
    client.call(m.BasicCancel("c"), m.BasicCancelOk)
    client.publish("", b"2", exchange="x")
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 404


def test_access_request_is_granted(client: Client) -> None:
    assert client.call(m.AccessRequest("/data", active=True), m.AccessRequestOk).ticket == 1


def test_a_server_named_queue_with_a_prefix(client: Client) -> None:
    declare = m.QueueDeclare("", exclusive=True, arguments={"x-name-prefix": "shop"})
    name = client.call(declare, m.QueueDeclareOk).queue
    assert name.startswith("shop-")
    assert len(name) == len("shop-") + 22
    bad = m.QueueDeclare("", arguments={"x-name-prefix": "amq.mine"})
    assert client.call(bad, m.ChannelClose).reply_code == 403


def test_the_name_of_a_server_named_queue_cannot_be_declared(client: Client) -> None:
    name = client.call(m.QueueDeclare("", exclusive=True), m.QueueDeclareOk).queue
    client.call(m.QueueDeclare(name, passive=True), m.QueueDeclareOk)
    close = client.call(m.QueueDeclare(name, exclusive=True), m.ChannelClose)
    assert close.reply_text == f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"


def test_a_name_that_is_not_utf8_is_told_as_it_came(client: Client) -> None:
    client.publish("k", exchange="\udc80")
    (close,) = client.take(m.ChannelClose)
    assert close.reply_text.encode(errors="surrogateescape") == b"NOT_FOUND - no exchange '\x80' in vhost '/'"


@pytest.mark.parametrize("works", [True, False])
def test_channel_flow_can_be_switched_off(tmp_path: Path, works: bool) -> None:
    kit = NodeKit(tmp_path / "flow", channel_flow=works)
    client = kit.client()
    client.call(m.ChannelFlow(active=True), m.ChannelFlowOk)
    client.send(1, m.ChannelFlow(active=False))
    closes = [(close.reply_code, close.reply_text) for close in client.take(m.ConnectionClose)]
    assert closes == ([] if works else [(540, "NOT_IMPLEMENTED - active=false")])
    assert len(client.take(m.ChannelFlowOk)) == (1 if works else 0)
    kit.stop()


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "a stream's": ({"x-queue-type": "stream"}, {"x-stream-offset": "first"}, True),
    "one that was browsed": ({}, {"x-browse": True}, False),
}
REFUSALS: dict[str, Callable[[int, bool], m.Method]] = {
    "nack, all": lambda tag, requeue: m.BasicNack(0, multiple=True, requeue=requeue),
    "nack, up to it": lambda tag, requeue: m.BasicNack(tag, multiple=True, requeue=requeue),
    "nack": lambda tag, requeue: m.BasicNack(tag, requeue=requeue),
    "reject": lambda tag, requeue: m.BasicReject(tag, requeue=requeue),
}


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("way", REFUSALS)
@pytest.mark.parametrize("which", REFUSED)
def test_a_refused_nack_takes_nothing(kit: NodeKit, client: Client, which: str, way: str, transaction: bool) -> None:
    """The other deliveries of the channel come back, and the groups that it held are free."""
    arguments, asked, requeue = REFUSED[which]
    client.declare("q")
    client.declare("groups", x_message_group="g")
    client.call(m.QueueDeclare("s", durable=True, arguments=arguments), m.QueueDeclareOk)
    for queue in ("q", "groups", "s"):
        for _ in range(2):
            client.publish(queue, queue.encode(), headers={"g": "a"})
    kit.run_syncs()
    if transaction:
        client.call(m.TxSelect(), m.TxSelectOk)
    client.call(m.BasicQos(0, 2), m.BasicQosOk)
    for queue in ("q", "groups"):
        client.send(1, m.BasicConsume(queue, queue))
    client.send(1, m.BasicConsume("s", "s", arguments=asked))
    taken = client.deliveries()
    while len(taken) < 6:  # a stream delivers what is on the disk
        kit.run_sync()
        client.receive()
        taken += client.deliveries()
    assert sorted(body for _, _, body in taken) == [b"groups"] * 2 + [b"q"] * 2 + [b"s"] * 2
    tag = max(tag for tag, _, body in taken if body == b"s")
    client.send(1, REFUSALS[way](tag, requeue))
    assert any(isinstance(event, m.ChannelClose | m.ConnectionClose) for _, event in client.events)
    client.connection.lost()
    kit.run_syncs()
    other = kit.client()
    assert other.count("q") == 2
    other.send(1, m.BasicConsume("groups", "c"))
    assert len(other.deliveries()) == 2


@pytest.mark.parametrize(
    "how", ["the client closes the connection", "the client closes the channel", "the socket ends"]
)
def test_a_channel_that_leaves_before_it_is_refused(kit: NodeKit, how: str) -> None:
    """A delivery does not fit; what ends the channel meanwhile has come in the same read, and takes several slices."""
    sender, reader = kit.client(), kit.client(frame_max=4096)
    for name in ("many", "big"):
        sender.declare(name)
    sender.publish("big", b"x", headers={"h": "y" * 20_000})
    reader.open(2)
    for number in range(50):
        reader.engine.send_method(1, m.BasicConsume("many", f"c{number}", no_ack=True))
    reader.pump()
    kit.stopwatch.step = 1.0
    reader.engine.send_method(2, m.BasicConsume("big", "b"))
    if how == "the client closes the connection":
        reader.engine.send_method(0, m.ConnectionClose(200, "bye"))
    elif how == "the client closes the channel":
        reader.engine.send_method(2, m.ChannelClose(200, "bye"))
    reader.pump()
    if how == "the socket ends":
        reader.connection.lost()
    for _ in range(3):
        kit.clock.now += 1
        kit.node.run_timers()
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    kit.node.run_timers()
    assert sender.count("big") == 1
    assert len(reader.connection.channels) == (1 if how == "the client closes the channel" else 0)
