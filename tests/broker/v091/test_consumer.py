"""Messages whose properties fit no frame of the consumer, with and without the headers that the broker adds.

With what the publisher wrote alone, the consumer loses its channel, and the queue loses nothing until many have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.operations.firehose import set_tracing
from harebell.broker.queues.classic import REFUSALS
from harebell.protocol.v091 import Content, Properties, Table, methods as m
from harebell.protocol.v091.fields import write_table
from harebell.protocol.v091.typed_values import Int8
from harebell.routing.dead_letter import deaths
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

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
    assert bodies(reader) == [b"first", b"last"], "a stream takes nothing back: its readers go on"
    consume(other, x_stream_offset="first")
    assert bodies(other) == [b"first", b"long", b"last"]


def test_one_who_browses(kit: NodeKit) -> None:
    sender, reader = kit.client(), kit.client(frame_max=4096)
    fill(sender, {})
    consume(reader, no_ack=False, x_browse=True)
    assert bodies(reader) == [b"first", b"last"], "it takes nothing out of the queue, and goes on"
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


# -- the end of what fits nobody ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by_get", [False, True])
@pytest.mark.parametrize("name", QUEUES)
def test_what_fits_nobody_is_a_dead_letter_in_the_end(kit: NodeKit, name: str, by_get: bool) -> None:
    sender = kit.client()
    sender.call(m.QueueDeclare("dead"), m.QueueDeclareOk)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-delivery-limit": 1000}
    fill(sender, {**QUEUES[name], **to_dead})
    refusals = 0
    while sender.count("dead") == 0 and refusals < 100:
        refusals += 1
        reader = kit.client(frame_max=4096)
        if by_get:
            while not reader.take(m.ChannelClose):
                reader.send(1, m.BasicGet("q"))
        else:
            consume(reader)
            kit.pass_time(0)
            assert reader.take(m.ChannelClose)
        reader.connection.lost()
        kit.clients.remove(reader)
    assert refusals == REFUSALS
    assert sender.count() == 2
    letter = sender.get("dead")
    assert letter is not None
    assert letter.body == b"long"
    assert [(death.queue, death.reason) for death in deaths(letter.decode_properties().headers or {})] == [
        ("q", "delivery_limit")
    ]
    reader = kit.client(frame_max=4096)
    consume(reader)
    assert sorted(bodies(reader)) == [b"first", b"last"]


def test_without_an_exchange_for_dead_letters_the_log_says_that_it_is_dropped(
    kit: NodeKit, caplog: pytest.LogCaptureFixture
) -> None:
    sender = kit.client()
    fill(sender, {})
    for _ in range(REFUSALS):
        reader = kit.client(frame_max=4096)
        consume(reader)
        kit.pass_time(0)
        assert reader.take(m.ChannelClose)
        reader.connection.lost()
        kit.clients.remove(reader)
    assert sender.count() == 2
    [said] = [record.getMessage() for record in caplog.records if "is dropped" in record.getMessage()]
    assert "queue 'q' in vhost '/'" in said
    assert f"{REFUSALS} consumers" in said


# -- headers of the broker's own are no reason to refuse ------------------------------------------------------------


def filling(frame_max: int, headers: Table | None = None, *, less: int = 0) -> Table:
    """Headers that fill a header frame, with the delivery mode, to the last byte, or to `less` bytes before it."""
    table: Table = {**(headers or {}), "x": ""}
    return {**table, "x": "y" * (frame_max - less - 20 - 2 - 1 - len(write_table(table)))}


def deliver_again(kit: NodeKit, sender: Client) -> Client:
    sender.declare()
    sender.publish("q", b"long", headers=filling(4096), delivery_mode=2)
    reader = kit.client(frame_max=4096)
    consume(reader)
    reader.send(1, m.BasicNack(1, requeue=True))
    return reader


def die(kit: NodeKit, sender: Client, times: int = 1, headers: Table | None = None) -> Client:
    for number in range(times):
        sender.declare(f"q{number}", x_dead_letter_exchange="", x_dead_letter_routing_key=f"q{number + 1}")
    sender.declare(f"q{times}", x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    sender.declare("q")
    sender.publish("q0", b"long", headers=filling(4096, headers), delivery_mode=2)
    for number in range(times + 1):
        sender.send(1, m.BasicGet(f"q{number}"))
        content = sender.events.pop()[1]
        assert isinstance(content, Content)
        got = content.decode_method()
        assert isinstance(got, m.BasicGetOk)
        sender.send(1, m.BasicReject(got.delivery_tag, requeue=False))
    reader = kit.client(frame_max=4096)
    consume(reader)
    return reader


def die_often(kit: NodeKit, sender: Client) -> Client:
    return die(kit, sender, times=30)


def die_with_copies(kit: NodeKit, sender: Client) -> Client:
    return die(kit, sender, headers={"CC": ["nowhere" * 30] * 5})


def stream(kit: NodeKit, sender: Client) -> Client:
    sender.call(m.QueueDeclare("q", durable=True, arguments={"x-queue-type": "stream"}), m.QueueDeclareOk)
    sender.publish("q", b"long", headers=filling(4096), delivery_mode=2)
    kit.run_sync()
    reader = kit.client(frame_max=4096)
    consume(reader, x_stream_offset="first")
    return reader


def delay(kit: NodeKit, sender: Client) -> Client:
    declare = m.ExchangeDeclare("delayed", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    sender.call(declare, m.ExchangeDeclareOk)
    sender.declare()
    sender.call(m.QueueBind("q", "delayed", ""), m.QueueBindOk)
    headers = filling(4096, {"x-delay": Int8(5)})  # the broker writes it in 32 bits
    sender.publish("", b"long", exchange="delayed", headers=headers, delivery_mode=2)
    kit.pass_time(5)
    reader = kit.client(frame_max=4096)
    consume(reader)
    return reader


@pytest.mark.parametrize("rewrite", [deliver_again, die, die_often, die_with_copies, stream, delay])
def test_what_fitted_without_the_brokers_headers_fits(
    kit: NodeKit, rewrite: Callable[[NodeKit, Client], Client]
) -> None:
    reader = rewrite(kit, kit.client())
    contents = [event for _, event in reader.events if isinstance(event, Content)]
    assert contents, reader.events
    for content in contents:
        assert content.body == b"long"
        assert len((content.decode_properties().headers or {})["x"]) > 2000  # type: ignore[arg-type]
    kit.pass_time(0)
    assert not reader.take(m.ChannelClose)


@given(less=st.integers(0, 500), times=st.integers(1, 4))
@settings(max_examples=scaled(30))
def test_as_much_as_fits_of_the_deaths_is_there(kit: NodeKit, less: int, times: int) -> None:
    sender, reader = kit.client(), kit.client(frame_max=4096)
    sender.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    sender.publish("q", b"long", headers=filling(4096, less=less), delivery_mode=2)
    for _ in range(times):
        sender.send(1, m.BasicGet("q"))
        content = sender.events.pop()[1]
        assert isinstance(content, Content)
        got = content.decode_method()
        assert isinstance(got, m.BasicGetOk)
        sender.send(1, m.BasicReject(got.delivery_tag, requeue=False))
    reader.send(1, m.BasicGet("q", no_ack=True))
    short = reader.events.pop()[1]
    assert isinstance(short, Content)
    added = {name: value for name, value in (short.decode_properties().headers or {}).items() if name != "x"}
    room = 4096 - (20 + 2 + 1 + len(write_table(filling(4096, less=less))))
    assert 0 <= room - (len(write_table(added)) - 4) <= 200 or len(added) == 7
    sender.connection.lost()
    reader.connection.lost()
    kit.clients.clear()


@pytest.mark.parametrize("size", [20, 21])
def test_the_address_for_replies_is_part_of_a_request(kit: NodeKit, size: int) -> None:
    """It is longer than the name that the client writes: such a request is refused before it is accepted."""
    asker = kit.client(frame_max=4096)
    asker.declare()
    asker.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    headers = filling(4096, less=22 + (0 if size == 21 else 100))
    asker.publish("q", b"question", headers=headers, reply_to="amq.rabbitmq.reply-to", delivery_mode=2)
    refusals = [close.reply_code for close in asker.take(m.ChannelClose)]
    assert refusals == ([406] if size == 21 else [])


def test_what_the_broker_tells_of_a_long_message_fits(kit: NodeKit) -> None:
    client = kit.client()
    set_tracing(kit.node, "/", on=True)
    client.declare("traces")
    client.call(m.QueueBind("traces", "amq.rabbitmq.trace", "#"), m.QueueBindOk)
    client.publish("nowhere", b"long", headers=filling(131_072), delivery_mode=2)
    trace = client.get("traces")
    assert trace is not None
    assert trace.body == b"long"
    assert "properties" not in (trace.decode_properties().headers or {})


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
