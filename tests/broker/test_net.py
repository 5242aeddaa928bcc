"""Sockets: slow readers, heartbeats, half frames, and clients that never finish."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER, encode_method
from tests.wire import BrokerThread, Wire


def connected(broker: BrokerThread, **options: int) -> Wire:
    wire = Wire(broker.port, **options).log_in()
    wire.channel(1)
    return wire


def output_held(broker: BrokerThread) -> int:
    """Bytes that the broker holds for sockets that do not take them."""
    transports = broker.run(lambda: tuple(broker.broker._transports))
    return sum(each._transport.get_write_buffer_size() for each in transports if each._transport is not None)


def test_a_reader_that_does_not_read_costs_a_bounded_buffer(broker: BrokerThread) -> None:
    body, count = b"x" * 100_000, 400
    with connected(broker) as slow, connected(broker) as other:
        slow.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        slow.send(1, m.BasicConsume("q", "c", no_ack=True))
        slow.expect(m.BasicConsumeOk)
        for _ in range(count):
            other.publish("", "q", body)
        other.barrier()
        declared = other.call(1, m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
        assert isinstance(declared, m.QueueDeclareOk)
        assert declared.message_count > count // 2  # they wait in the queue
        assert output_held(broker) < 4 << 20
        other.call(1, m.QueueDeclare("q2"), m.QueueDeclareOk)
        other.send(1, m.BasicConsume("q2", "d", no_ack=True))
        other.publish("", "q2", b"quick")
        assert other.expect(m.BasicDeliver).body == b"quick"
        assert all(got.body == body for got in slow.take(m.BasicDeliver, count))


def test_a_stream_reader_that_does_not_read_costs_a_bounded_buffer(broker: BrokerThread) -> None:
    body, count = b"x" * 100_000, 200
    with connected(broker) as slow, connected(broker) as other:
        stream = {"x-queue-type": "stream"}
        other.call(1, m.QueueDeclare("s", durable=True, arguments=stream), m.QueueDeclareOk)
        slow.call(1, m.BasicQos(0, 1000), m.BasicQosOk)
        slow.call(1, m.BasicConsume("s", "c", arguments={"x-stream-offset": "first"}), m.BasicConsumeOk)
        other.call(1, m.ConfirmSelect(), m.ConfirmSelectOk)
        for _ in range(count):
            other.publish("", "s", body)
        acked = 0
        while acked < count:
            method = other.expect(m.BasicAck).method
            assert isinstance(method, m.BasicAck)
            acked = method.delivery_tag
        assert output_held(broker) < 30 << 20
        assert [got.headers["x-stream-offset"] for got in slow.take(m.BasicDeliver, count)] == list(range(count))


def test_a_client_that_is_silent_is_dropped_and_one_that_beats_is_not(broker: BrokerThread) -> None:
    with connected(broker, heartbeat=1) as lost, connected(broker, heartbeat=1) as alive:
        lost.call(1, m.QueueDeclare("mine", exclusive=True), m.QueueDeclareOk)
        deadline = time.monotonic() + 20
        while not lost.ended and time.monotonic() < deadline:
            lost.poll(0.1)
            alive.raw(b"\x08\0\0\0\0\0\0\xce")
            alive.poll(0)
        assert lost.ended
        assert lost.heartbeats >= 2  # the broker beats too
        alive.send(1, m.QueueDeclare("mine", passive=True))
        close = alive.expect(m.ChannelClose).method
        assert isinstance(close, m.ChannelClose)
        assert close.reply_code == 404


@pytest.fixture
def impatient() -> Iterator[BrokerThread]:
    with BrokerThread(handshake_timeout=0.2) as broker:
        yield broker


def test_an_unfinished_handshake_ends(impatient: BrokerThread) -> None:
    with Wire(impatient.port) as silent, Wire(impatient.port) as half:
        half.raw(b"AMQP\0\0\x09")
        silent.wait_end()
        half.wait_end()


def test_a_login_that_opens_no_vhost_ends(impatient: BrokerThread) -> None:
    with Wire(impatient.port) as wire:
        wire.raw(PROTOCOL_HEADER)
        wire.expect(m.ConnectionStart)
        wire.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        wire.expect(m.ConnectionTune)
        wire.send(0, m.ConnectionTuneOk(2047, 131_072, 0))
        wire.wait_end()


@pytest.mark.parametrize("ahead", [m.ChannelFlow(active=True), m.QueueDeclare("q"), m.BasicQos(0, 1)])
def test_a_client_that_runs_ahead_of_open_ok(broker: BrokerThread, ahead: m.Method) -> None:
    with Wire(broker.port).log_in() as wire:
        wire.raw(encode_method(1, m.ChannelOpen()) + encode_method(1, ahead))
        wire.expect(m.ChannelOpenOk)
        wire.barrier()


def test_frames_byte_by_byte(broker: BrokerThread) -> None:
    with connected(broker) as wire:
        for byte in encode_method(1, m.QueueDeclare("q")):
            wire.raw(bytes([byte]))
        declared = wire.expect(m.QueueDeclareOk).method
        assert isinstance(declared, m.QueueDeclareOk)
        assert declared.queue == "q"


def test_a_socket_that_goes_within_a_frame_leaves_nothing(broker: BrokerThread) -> None:
    with connected(broker) as wire:
        wire.call(1, m.QueueDeclare("q", exclusive=True), m.QueueDeclareOk)
        wire.raw(encode_method(1, m.BasicPublish("", "q"))[:-3])
    with connected(broker) as other:
        deadline = time.monotonic() + 10
        while broker.run(lambda: len(broker.broker.node.connections)) > 1 and time.monotonic() < deadline:
            other.barrier()
        assert broker.run(lambda: "q" in broker.broker.node.vhosts["/"].queues) is False


@pytest.mark.repeats
def test_a_flood_of_one_publisher_does_not_starve_another_client(broker: BrokerThread) -> None:
    with connected(broker) as flood, connected(broker) as other:
        other.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        flood.call(1, m.QueueDeclare("f"), m.QueueDeclareOk)
        publish = m.BasicPublish("", "f")
        one = encode_method(1, publish) + b"\2\0\1\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce"
        for _ in range(20):
            flood.raw(one * 20_000)
            other.barrier()  # answered while the flood is worked off
        flood.barrier()
        declared = flood.call(1, m.QueueDeclare("f", passive=True), m.QueueDeclareOk)
        assert isinstance(declared, m.QueueDeclareOk)
        assert declared.message_count == 400_000


def test_stop_says_goodbye() -> None:
    with ExitStack() as wires:
        with BrokerThread() as broker:
            silent = wires.enter_context(Wire(broker.port))
            wire = wires.enter_context(connected(broker))  # accepted in order: the silent one is in
        close = wire.expect(m.ConnectionClose).method
        assert isinstance(close, m.ConnectionClose)
        assert close.reply_code == 320
        silent.wait_end()


async def test_one_broker_to_a_data_folder(tmp_path: Path) -> None:
    async with Broker(data=tmp_path):
        with pytest.raises(BlockingIOError, match="in use by another broker"):
            await Broker(data=tmp_path).start()
    async with Broker(data=tmp_path):
        pass  # let go of when the first one stopped


# -- the end of a connection ----------------------------------------------------------------------------------------

STILL = encode_method(1, m.BasicQos()) * 2000
NO_FRAME = b"\1\0\1\0\0\0\4abcd\0"
LAST_WORDS = {
    "a client that closes": (encode_method(0, m.ConnectionClose(200, "bye")), m.ConnectionCloseOk),
    "a frame that is none": (NO_FRAME, m.ConnectionClose),
}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker closes the socket of a client that has closed its connection, but not its socket, at once."""
    monkeypatch.setattr("harebell.broker.v091.connection.CLOSING_TIMEOUT", 0.1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerThread]:
    """A broker that waits for hours until its client closes the socket, once its own output has ended."""
    monkeypatch.setattr("harebell.broker.connections.base.LINGER", 10_000.0)
    with BrokerThread() as broker:
        yield broker


@pytest.mark.pure
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("said", LAST_WORDS)
def test_what_a_client_sends_behind_the_end_is_read_and_dropped(patient: BrokerThread, said: str) -> None:
    """Its other threads do not know yet. Unread, it would be answered with a reset, which takes the answer away."""
    words, answer = LAST_WORDS[said]
    with connected(patient) as wire:
        wire.raw(words)
        for _ in range(50):
            wire.socket.sendall(STILL)
        assert wire.socket.recv(1 << 16), "the answer"
        while more := wire.socket.recv(1 << 16):
            assert more
        wire.socket.sendall(STILL)  # after the end of the broker's output, too
    with connected(patient) as wire:
        wire.raw(words)
        wire.expect(answer)
        wire.wait_end()


@pytest.mark.parametrize("header", [b"HTTP/1.1", b"AMQP\0\1\0\0"])
def test_a_refused_header_is_answered_and_the_output_ends(patient: BrokerThread, header: bytes) -> None:
    with Wire(patient.port) as wire:
        wire.socket.sendall(header)
        answer = b""
        while more := wire.socket.recv(100):
            answer += more
        assert answer == PROTOCOL_HEADER


def test_a_client_that_is_gone_when_its_answer_comes(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ending the output fails then: no reason to think that the disk has failed."""

    def gone(self: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    with connected(broker) as wire, monkeypatch.context() as patched:
        patched.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", gone)
        wire.raw(NO_FRAME)
        wire.expect(m.ConnectionClose)
        wire.wait_end()
    with connected(broker) as other:
        other.barrier()
    assert broker.run(lambda: broker.broker.node.batch.failed) is None


@pytest.mark.pure
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("said", LAST_WORDS)
def test_a_client_that_never_closes_its_socket_is_closed(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.broker.connections.base.LINGER", 0.1)
    words, answer = LAST_WORDS[said]
    with BrokerThread() as broker, connected(broker) as wire:
        wire.raw(words)
        wire.expect(answer)
        while broker.run(lambda: len(broker.broker._transports)):
            time.sleep(0.01)


def test_a_client_that_says_everything_at_once(broker: BrokerThread) -> None:
    """From the protocol header on in one segment: the broker answers one after another."""
    methods: list[tuple[int, m.Method]] = [
        (0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")),
        (0, m.ConnectionTuneOk(2047, 131_072, 0)),
        (0, m.ConnectionOpen("/")),
        (1, m.ChannelOpen()),
        (1, m.QueueDeclare("q", exclusive=True)),
    ]
    with Wire(broker.port) as wire:
        wire.raw(PROTOCOL_HEADER + b"".join(encode_method(*each) for each in methods))
        wire.expect(m.QueueDeclareOk)
        assert [type(each.method) for each in wire.received] == [
            m.ConnectionStart, m.ConnectionTune, m.ConnectionOpenOk, m.ChannelOpenOk
        ]  # fmt: skip
