"""A feed over a socket: every message in its order, however the bytes are cut, and every end by its reason."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell import errors
from harebell.client.messages import Message
from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.codec import HEARTBEAT_FRAME, encode_method
from harebell.spark.streams.blocks import Block
from harebell.spark.streams.range_reader import numbers_of
from harebell.spark.streams.socket_reader import SocketReader
from tests.spark.wire import delivered, scripted

if TYPE_CHECKING:
    from harebell.client.messages import Delivery
    from tests.spark.conftest import Broker

BIG = bytes(range(256)) * 1200  # three frames of 128 KiB


def stream(tag: str) -> bytes:
    """Messages 1 to 60 of every form, other frames in between."""
    pieces = []
    for number in range(1, 61):
        body = BIG if number in (7, 8, 30) else b"%d" % number
        pieces.append(delivered(number, tag, Properties(message_id="i"), body, number=number, frame_max=131_072))
        if number % 11 == 0:
            pieces.append(HEARTBEAT_FRAME)
    return b"".join(pieces)


def read(feed: SocketReader, count: int) -> list[Block | list[Delivery]]:
    got: list[Block | list[Delivery]] = []
    while sum(map(len, got)) < count:
        more = feed.receive(20)
        assert more
        got += more
    return got


def bodies(chunk: Block | list[Delivery]) -> list[bytes]:
    if isinstance(chunk, list):
        return [delivery.body for delivery in chunk]
    return [delivery.body for delivery in chunk.deliveries(chunk.numbers - chunk.numbers[0])]


@pytest.mark.parametrize("size", [7919, 1 << 16, 1 << 22])
def test_messages_come_in_order_however_they_are_cut(size: int) -> None:
    def script(tag: str) -> Iterator[bytes]:
        data = stream(tag)
        yield from (data[at : at + size] for at in range(0, len(data), size))

    with scripted(script) as (url, _), SocketReader(url, 20) as feed:
        feed.consume("q", 1000)
        got = read(feed, 60)
        assert [int(number) for chunk in got for number in numbers_of(chunk)] == list(range(1, 61))
        expected = [BIG if number in (7, 8, 30) else b"%d" % number for number in range(1, 61)]
        assert [body for chunk in got for body in bodies(chunk)] == expected
        assert {type(chunk) for chunk in got} == {Block, list}
        with pytest.raises(errors.ConnectionLost, match="without a word"):
            feed.receive(20)


def test_over_tls() -> None:
    folder = Path(__file__).parents[2] / "client" / "tls"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with scripted(lambda tag: [stream(tag)], tls=context) as (url, _):
        with SocketReader(f"{url}?cacertfile={folder / 'certificate.pem'}", 20) as feed:
            feed.consume("q", 1000)
            got = read(feed, 60)
    assert [int(number) for chunk in got for number in numbers_of(chunk)] == list(range(1, 61))
    with scripted(lambda tag: [], tls=context) as (url, _):
        with pytest.raises(errors.InvalidArgument, match="certificate"):
            SocketReader(url, 20)


def test_byte_by_byte() -> None:
    def script(tag: str) -> Iterator[bytes]:
        data = delivered(1, tag, Properties(), b"a", number=5) + HEARTBEAT_FRAME
        data += delivered(2, tag, Properties(), bytes(300), number=6, frame_max=128)
        data += delivered(3, tag, Properties(), b"", number=9)
        yield from (data[at : at + 1] for at in range(len(data)))

    with scripted(script) as (url, _), SocketReader(url, 20) as feed:
        feed.consume("q", 1000)
        got = read(feed, 3)
        assert [int(number) for chunk in got for number in numbers_of(chunk)] == [5, 6, 9]


@pytest.mark.parametrize(
    "channel, method, error",
    [
        (1, m.BasicCancel("TAG"), errors.ConsumerCancelled),
        (1, m.ChannelClose(406, "PRECONDITION_FAILED - no", 60, 80), errors.PreconditionFailed),
        (0, m.ConnectionClose(320, "CONNECTION_FORCED - bye"), errors.ConnectionForced),
        (1, m.BasicGetEmpty(), errors.RemoteProtocolError),
    ],
    ids=["cancelled", "channel closed", "connection closed", "nonsense"],
)
def test_an_end_says_its_reason_after_what_came_before_it(
    channel: int, method: m.Method, error: type[Exception]
) -> None:
    def script(tag: str) -> Iterator[bytes]:
        if isinstance(method, m.BasicCancel):
            method.consumer_tag = tag
        yield delivered(1, tag, Properties(), b"a", number=5) + encode_method(channel, method)

    with scripted(script) as (url, _), SocketReader(url, 20) as feed:
        feed.consume("q", 1000)
        [chunk] = read(feed, 1)
        assert numbers_of(chunk).tolist() == [5]
        with pytest.raises(error):
            feed.receive(20)


def test_a_frame_that_is_too_large_is_refused() -> None:
    def script(tag: str) -> Iterator[bytes]:
        yield b"\x03\0\x01\x7f\xff\xff\xff" + bytes(100)

    with scripted(script) as (url, _), SocketReader(url, 20) as feed:
        feed.consume("q", 10)
        with pytest.raises(errors.RemoteProtocolError):
            feed.receive(20)


def test_silence_ends_with_the_timeout_and_heartbeats_leave_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda tag: [], heartbeat=1) as (url, _):
        feed = SocketReader(url, 20)
        sent: list[None] = []
        monkeypatch.setattr(feed._core.engine, "send_heartbeat", lambda: sent.append(None))
        assert feed._read(0.01) is None
        feed._beat(feed._last_sent + 0.4)
        assert not sent
        feed._beat(feed._last_sent + 0.5)
        assert sent == [None]
        feed.consume("q", 10)
        feed.close()


def test_a_feed_reads_what_was_published(broker: Broker) -> None:
    queue = broker.queue("stream")
    sent = [Message(BIG if n % 50 == 3 else b"%d" % n, message_id=str(n), headers={"n": n}) for n in range(200)]
    broker.publish(queue, sent)
    with SocketReader(broker.url, 30) as feed:
        feed.consume(queue, 100, {"x-stream-offset": "first"})
        got: list[Any] = []
        while sum(map(len, got)) < 200:
            for chunk in feed.receive(30):
                got.append(chunk)
                feed.ack(chunk[-1].delivery_tag if isinstance(chunk, list) else chunk.last_tag)
    assert [int(number) for chunk in got for number in numbers_of(chunk)] == list(range(200))
    assert [body for chunk in got for body in bodies(chunk)] == [message.body for message in sent]


def test_what_is_refused_is_said(broker: Broker) -> None:
    with SocketReader(broker.url, 30) as feed, pytest.raises(errors.NotFound):
        feed.consume("no such queue", 10)
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    with pytest.raises((errors.AccessRefused, errors.ConnectionLost), match=r"(?i)refused|password"):
        SocketReader(wrong, 30)
    with pytest.raises(errors.ConnectionLost, match="cannot be reached"):
        SocketReader("amqp://guest:guest@127.0.0.1:1/", 5)
    with SocketReader(["amqp://guest:guest@127.0.0.1:1/", broker.url], 30) as feed:
        assert feed.product in ("Harebell", "RabbitMQ")
