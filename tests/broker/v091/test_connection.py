"""A connection fed with anything: nothing but closes comes out of it, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.connections.base import CLOSING_TIMEOUT
from harebell.broker.connections.phase import Phase
from harebell.broker.v091.handshake import SILENT_CLOSE_DELAY
from harebell.errors import ConnectionForced, NotFound
from harebell.protocol.v091 import Properties, encode_content, methods as m
from harebell.protocol.v091.codec import FRAME_PREFIX, PROTOCOL_HEADER, encode_frame, encode_method
from harebell.routing.steps import complete
from tests.broker.kit import Client, FakeTransport, NodeKit, connect
from tests.fixtures.profiles import scaled

HANDSHAKE = (
    PROTOCOL_HEADER,
    encode_method(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")),
    encode_method(0, m.ConnectionTuneOk(2047, 131_072, 0))
    + encode_method(0, m.ConnectionOpen("/"))
    + encode_method(1, m.ChannelOpen()),  # a client may run ahead of open-ok
)
GOOD = (
    encode_method(1, m.QueueDeclare("q")),
    encode_method(1, m.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"})),
    encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(headers={"CC": ["s"]}), b"body", 131_072),
    encode_method(1, m.BasicPublish("", "s")) + encode_content(1, Properties(delivery_mode=2), b"", 131_072),
    encode_method(1, m.BasicConsume("q", "c")),
    encode_method(1, m.BasicQos(0, 2)),
    encode_method(0, m.ConnectionUpdateSecret(b"secret", "expired")),
    encode_method(1, m.BasicConsume("s", "d", arguments={"x-stream-offset": "first"})),
    encode_method(1, m.BasicAck(1, multiple=True)),
    encode_method(1, m.BasicNack(0, multiple=True)),
    encode_method(1, m.BasicRecover(requeue=False)),
    encode_method(1, m.QueueDelete("q")),
    encode_method(1, m.QueueDeclare("p", arguments={"x-max-priority": 3, "x-message-ttl": 0, "x-max-length": 2})),
    encode_method(1, m.QueueDeclare("r", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})),
    encode_method(1, m.BasicPublish("", "p", immediate=True))
    + encode_content(1, Properties(expiration="5", priority=9, reply_to="amq.rabbitmq.reply-to"), b"body", 131_072),
    encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(expiration="0"), b"body", 131_072),
    encode_method(1, m.BasicConsume("p", "e", arguments={"x-priority": -5})),
    encode_method(1, m.BasicConsume("amq.rabbitmq.reply-to", "f", no_ack=True)),
    encode_method(1, m.ChannelFlow(active=False)),
    encode_method(1, m.TxSelect()),
    encode_method(1, m.TxCommit()),
    encode_method(1, m.TxRollback()),
    encode_method(1, m.ConfirmSelect()),
    encode_method(1, m.ChannelClose(200, "")),
    encode_method(1, m.ChannelOpen()),
    encode_method(0, m.ConnectionClose(200, "")),
)
CLIENT_METHODS = sorted(m.CLIENT_SENDS, key=lambda cls: (cls.CLASS_ID, cls.METHOD_ID))

pieces = st.one_of(
    st.sampled_from(GOOD),
    st.sampled_from(GOOD),
    st.builds(encode_frame, st.sampled_from((1, 2, 3, 8)), st.integers(0, 3), st.binary(max_size=30)),
    st.builds(
        lambda cls, rest: encode_frame(1, 1, cls.CLASS_ID.to_bytes(2, "big") + cls.METHOD_ID.to_bytes(2, "big") + rest),
        st.sampled_from(CLIENT_METHODS),
        st.binary(max_size=20),
    ),
    st.builds(
        lambda good, at, byte: good[: at % len(good)] + bytes([byte]) + good[at % len(good) + 1 :],
        st.sampled_from(GOOD),
        st.integers(0, 200),
        st.integers(0, 255),
    ),
    st.binary(max_size=40),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path_factory.mktemp("node"), sync=False)
    yield kit
    kit.stop()


@settings(max_examples=scaled(150))
@given(stream=st.lists(pieces, max_size=12).map(b"".join), cut=st.integers(1, 50), logged_in=st.booleans())
def test_hostile_bytes(node: NodeKit, stream: bytes, cut: int, logged_in: bool) -> None:
    transport = FakeTransport()
    connection = connect(node.node, transport)
    for data in HANDSHAKE if logged_in else ():
        connection.receive_data(data)
    for at in range(0, len(stream), cut):
        connection.receive_data(stream[at : at + cut])
    connection.lost()
    assert connection not in node.node.connections
    assert connection.channels == {}
    assert connection.exclusive_queues == []
    assert node.node.vhosts["/"].reply_queues == {}
    batch = node.node.batch
    assert (batch.scheduled, batch.written, batch.confirming, batch.unflushed) == ([], [], [], [])
    for queue in tuple(node.node.vhosts["/"].queues.values()):
        assert not queue.consumers
        complete(node.node.vhosts["/"].deleting_queue(queue))


def test_a_refusal_names_what_is_not_utf_8(client: Client) -> None:
    client.publish("k", exchange="\udc80" * 255)
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 404
    client.open(2)
    client.publish("k", exchange="\udc80", channel=2)
    (close,) = client.take(m.ChannelClose)
    assert close.reply_text.encode(errors="surrogateescape") == b"NOT_FOUND - no exchange '\x80' in vhost '/'"


def test_everything_of_a_handshake_in_one_write_is_answered_in_turn(kit: NodeKit) -> None:
    """Clients do that, and RabbitMQ answers one after another."""
    transport = FakeTransport()
    connection = connect(kit.node, transport)
    connection.receive_data(b"".join(HANDSHAKE))
    kit.pass_time(0)
    assert connection.phase is Phase.OPEN
    assert transport.closed is None
    connection.lost()


@pytest.mark.parametrize("last", [m.ChannelClose(200, ""), m.ConnectionClose(200, "")])
@pytest.mark.parametrize(
    "first",
    [
        m.QueueDeclare(""),
        m.QueueDeclare("nope", passive=True),
        m.BasicGet("q"),
        m.BasicQos(),
        m.BasicQos(10, 0),
        m.BasicConsume("q", "c"),
        m.QueueDelete("q"),
        m.ConfirmSelect(),
        m.ConnectionUpdateSecret(b"secret", "expired"),
    ],
)
def test_a_close_in_the_same_write(client: Client, first: m.Method, last: m.Method) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    for _ in range(2):
        client.publish("q", b"1")
    channel = isinstance(last, m.ChannelClose)
    client.engine.send_content(1, m.BasicPublish("", "nope", mandatory=True), b"\0\0", b"1")
    client.engine.send_method(0 if isinstance(first, m.ConnectionUpdateSecret) else 1, first)
    client.engine.send_method(1 if channel else 0, last)
    client.pump()
    assert client.take(m.ChannelCloseOk if channel else m.ConnectionCloseOk) or client.take(m.ConnectionClose)


@pytest.mark.parametrize(
    "number, last, answer",
    [
        (1, m.ChannelClose(200, ""), m.ChannelCloseOk),
        (0, m.ConnectionClose(200, ""), m.ConnectionCloseOk),
        (1, m.QueueDeclare("nope", passive=True), m.ChannelClose),
        (1, m.ChannelOpen(), m.ConnectionClose),
        (1, m.BasicQos(), m.BasicQosOk),
    ],
)
def test_a_method_that_waits_for_its_turn_is_answered(
    kit: NodeKit, client: Client, number: int, last: m.Method, answer: type[m.Method]
) -> None:
    """There is no other output that would take its answer along."""
    for each in (m.QueueDelete("a", no_wait=True), m.QueueDelete("b", no_wait=True)):
        client.engine.send_method(1, each)
    kit.stopwatch.step = 1.0
    client.connection.receive_data(client.engine.data_to_send() + encode_method(number, last))
    kit.node.batch.slices.finish()
    ids = answer.CLASS_ID.to_bytes(2, "big") + answer.METHOD_ID.to_bytes(2, "big")
    assert bytes(client.transport.written[FRAME_PREFIX.size :]).startswith(ids)


def test_a_client_that_has_said_nothing_is_let_go(kit: NodeKit) -> None:
    silent, greeted = FakeTransport(), FakeTransport()
    connect(kit.node, silent)
    connect(kit.node, greeted).receive_data(PROTOCOL_HEADER)
    kit.node.stop()
    assert (silent.closed, bytes(silent.written)) == (0, b"")
    assert greeted.closed is not None


def test_a_wrong_protocol_header_is_answered_with_ours(kit: NodeKit) -> None:
    for header in (b"AMQP\0\1\0\0", b"HTTP/1.1", b"GET / HTTP/1.1\r\n\r\n", b"\x16\3\1\0\1\0\0\0"):
        transport = FakeTransport()
        connection = connect(kit.node, transport)
        connection.receive_data(header)
        assert transport.written == PROTOCOL_HEADER
        assert transport.closed is not None
        connection.lost()


def test_a_refused_login_of_a_client_that_knows_no_better_is_silent(kit: NodeKit) -> None:
    transport = FakeTransport()
    connection = connect(kit.node, transport)
    connection.receive_data(PROTOCOL_HEADER)
    transport.written.clear()
    connection.receive_data(encode_method(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0wrong", "en_US")))
    kit.run_sync()
    assert (bytes(transport.written), transport.closed) == (b"", SILENT_CLOSE_DELAY)
    connection.receive_data(encode_method(0, m.ConnectionTuneOk(2047, 131_072, 0)))
    assert bytes(transport.written) == b""
    connection.lost()


@pytest.mark.parametrize(
    "response", [b"", b"\0guest", b"\0guest\0", b"\0guest\0gues\xff", b"\0\xff\0\xff", b"a\0b\0c\0d"]
)
def test_no_login_with(kit: NodeKit, response: bytes) -> None:
    transport = FakeTransport()
    connection = connect(kit.node, transport)
    connection.receive_data(PROTOCOL_HEADER)
    connection.receive_data(encode_method(0, m.ConnectionStartOk({}, "PLAIN", response, "en_US")))
    while connection.phase is Phase.OPENING:
        kit.run_sync()
    assert connection.phase is Phase.CLOSED
    connection.lost()


@pytest.mark.parametrize("host, welcome", [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("10.0.0.1", False),
                                           ("fe80::1%eth0", False), ("", False)])  # fmt: skip
def test_guest_comes_from_this_machine_only(kit: NodeKit, host: str, welcome: bool) -> None:
    assert kit.node.users.may_come_from("guest", host) is welcome


def test_a_close_by_the_broker_waits_for_its_answer(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicQos(10, 0))  # 540
    assert client.transport.closed == CLOSING_TIMEOUT
    assert client.connection.phase is Phase.CLOSING
    client.send(0, m.ConnectionCloseOk())
    assert client.transport.closed == 0


def test_methods_after_a_channel_error_are_dropped(client: Client) -> None:
    client.engine.send_method(1, m.QueueDeclare("nope", passive=True))
    client.engine.send_method(1, m.QueueDeclare("q"))
    client.engine.send_content(1, m.BasicPublish("", "q"), b"\0\0", b"1")
    client.pump()
    assert [type(event) for _, event in client.events] == [m.ChannelClose]
    client.send(1, m.ChannelCloseOk())
    client.open()
    client.events.clear()
    client.send(1, m.QueueDeclare("q", passive=True))
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 404


def test_an_announced_body_that_is_too_large_is_refused(client: Client) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.connection.engine.max_message_size = 10
    client.connection.engine._limit_payload(131_072)
    client.publish("q", b"x" * 11)
    (close,) = client.take(m.ChannelClose)
    assert close.reply_text.endswith("message size 11 is larger than configured max size 10")


def test_data_folder_survives(tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    client = kit.client()
    client.call(m.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}), m.QueueDeclareOk)
    client.publish("s", b"1")
    kit.stop()
    kit = NodeKit(tmp_path)
    client = kit.client()
    declared = client.call(m.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}), m.QueueDeclareOk)
    assert declared.message_count == 1
    client.send(1, m.QueueDeclare("s", durable=True))
    assert client.take(m.ChannelClose)[0].reply_code == 406
    kit.stop()


@pytest.mark.parametrize("length", [1, 300])
def test_a_refusal_may_name_what_is_no_utf8(length: int) -> None:
    text = NotFound("no queue '" + "\udc80" * length + "'").reply_text
    assert NotFound("no queue '\ud800'").reply_text == "NOT_FOUND - no queue '\\ud800'"
    assert text.startswith("NOT_FOUND - no queue '")
    assert len(text.encode("utf-8", "surrogateescape")) <= 255


MANY_QUEUES = 30


def owner_of_many(kit: NodeKit) -> Client:
    """A client with exclusive queues, and with consumers on queues that are deleted with the last of them."""
    client = kit.client()
    for number in range(MANY_QUEUES):
        client.call(m.QueueDeclare(f"mine{number}", exclusive=True), m.QueueDeclareOk)
        client.call(m.QueueDeclare(f"auto{number}", auto_delete=True), m.QueueDeclareOk)
        client.call(m.BasicConsume(f"auto{number}", no_ack=True), m.BasicConsumeOk)
    return client


@pytest.mark.parametrize("how", ["close", "lost", "forced"])
def test_a_connection_with_many_queues_ends_in_slices(kit: NodeKit, how: str) -> None:
    client, other, queues = owner_of_many(kit), kit.client(), kit.node.vhosts["/"].queues
    other.declare("q")
    kit.stopwatch.step = 1.0
    if how == "close":
        client.send(0, m.ConnectionClose(200, "", 0, 0))
    elif how == "lost":
        client.connection.lost()
    else:
        client.connection.close(ConnectionForced("no"))
    for _ in range(MANY_QUEUES):
        assert len(queues) > 1
        assert client.take(m.ConnectionCloseOk) == []
        other.publish("q", b"1")
        assert other.get("q") is not None
        kit.calls.get_nowait()()
    kit.node.batch.slices.finish()
    client.receive()
    assert list(queues) == ["q"]
    assert len(client.take(m.ConnectionCloseOk)) == (how == "close")
    assert (client.connection in kit.node.connections) == (how != "lost")


def test_a_channel_with_many_consumers_ends_in_slices(kit: NodeKit) -> None:
    client, other, queues = owner_of_many(kit), kit.client(), kit.node.vhosts["/"].queues
    keeper = kit.client()
    keeper.call(m.BasicQos(0, 1), m.BasicQosOk)
    keeper.call(m.QueueDeclare("kept", exclusive=False), m.QueueDeclareOk)
    client.call(m.BasicConsume("kept", no_ack=True), m.BasicConsumeOk)
    kit.stopwatch.step = 1.0
    client.send(1, m.ChannelClose(200, "", 0, 0))
    assert client.take(m.ChannelCloseOk) == []
    other.publish("kept", b"1")
    assert client.deliveries() == [], "a channel that closes gets nothing: it would be lost"
    kit.node.batch.slices.finish()
    client.receive()
    assert len(client.take(m.ChannelCloseOk)) == 1
    assert client.deliveries() == []
    assert not [name for name in queues if name.startswith("auto")]
    assert other.count("kept") == 1
