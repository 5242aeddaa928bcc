"""Where streams begin and end, and which there are, asked of real brokers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from harebell.client.messages import Message
from harebell.errors import AccessRefused, ConnectionLost, DataLoss, InvalidArgument, NotFound
from harebell.spark.options import SourceOptions, source_options
from harebell.spark.streams import bounds as ends_module
from harebell.spark.streams.bounds import BoundsReader
from harebell.spark.streams.discovery import management, queue_names
from harebell.spark.streams.offsets import UNKNOWN, Range
from harebell.spark.streams.range_reader import read_range
from tests.spark.conftest import Broker


def asked(broker: Broker, **more: str) -> SourceOptions:
    return source_options({"url": broker.url, "retryTimeout": "5", **more}, streaming=True)


def test_ends_and_places(broker: Broker) -> None:
    queue, empty = broker.queue("stream"), broker.queue("stream")
    broker.numbered(queue, 2500)
    ends = BoundsReader(asked(broker, queue=queue))
    try:
        found = ends.of([queue, empty])
        assert [(found[name].first, found[name].tail) for name in (queue, empty)] == [(0, 2500), (0, 0)]
        sized = ends.of([queue], sizes=True)[queue]
        assert (sized.first, sized.tail) == (0, 2500)
        assert 1 <= sized.size <= 4
        assert [ends.number_at(queue, place) for place in ("earliest", "latest", 7)] == [0, 2500, 7]
        assert 0 <= ends.number_at(queue, "last") < 2500
        assert ends.number_at(queue, "1h") == 0
        assert ends.number_at(empty, "1h") == 0
        assert ends.number_at(queue, datetime(2038, 1, 1, tzinfo=UTC)) == 2500
    finally:
        ends.close()


def test_a_moment_divides_what_was_stored_before_from_what_came_after(broker: Broker) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 300)
    began = int(time.time())
    while int(time.time()) < began + 2:  # a whole second of AMQP's clock between the two
        broker.ready(queue)
    broker.numbered(queue, 200, start=300)
    ends = BoundsReader(asked(broker, queue=queue))
    try:
        assert ends.number_at(queue, datetime.fromtimestamp(began + 1, UTC)) == 300
    finally:
        ends.close()


@pytest.mark.rabbitmq
@pytest.mark.parametrize("broker", ["rabbitmq_server", "rabbitmq4_server"], indirect=True)
def test_what_rabbitmq_says_of_a_stream_that_its_retention_emptied(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends_module, "_DISAGREEMENT", 0.0)  # the order of its answers is enough
    # Each message fills a segment, and what is full is too much: only the new segment is left, with a record in it.
    queue = broker.queue("stream", {"x-max-length-bytes": 1000, "x-stream-max-segment-size-bytes": 1000})
    ends = BoundsReader(asked(broker, queue=queue))
    try:
        broker.publish(queue, (Message(bytes(2000)) for _ in range(10)))
        while ends.first(queue) != UNKNOWN:  # it removes in its own time
            pass
        assert ends.of([queue], reached={queue: 10})[queue].emptied
        assert [ends.number_at(queue, place) for place in ("earliest", "latest", "last", "1h")] == [UNKNOWN] * 4
        with pytest.raises(DataLoss, match="10 messages, 0 to 9, of queue '"):
            list(read_range(asked(broker, queue=queue, readTimeout="0.5"), Range(queue, 0, 10)))
        broker.publish(queue, [Message(b"next")])
        found = ends.of([queue], reached={queue: 10})[queue]
        assert 10 < found.first == found.tail - 1
        assert 10 <= found.kept == found.first - 1
        pieces = list(read_range(asked(broker, queue=queue), Range(queue, found.kept, found.tail)))
        assert [number for piece in pieces for number in piece.numbers.tolist()] == [found.first]
    finally:
        ends.close()


def test_a_reader_that_retention_overtakes_says_so(broker: Broker) -> None:
    """Both brokers move such a consumer on to what is left, on the connection that it has."""
    queue = broker.queue("stream", {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000})
    broker.publish(queue, (Message(bytes(500)) for _ in range(5)))
    options = asked(broker, queue=queue, prefetch="5", batchRows="5")
    pieces, ends = read_range(options, Range(queue, 0, 300)), BoundsReader(options)
    try:
        read: list[int] = []
        while len(read) < 5:  # one piece or several, as they come
            read += next(pieces).numbers.tolist()
        assert read == list(range(5))
        while ends.first(queue) < 50:
            broker.publish(queue, (Message(bytes(500)) for _ in range(20)))
        with pytest.raises(DataLoss, match=r"messages, \d+ to \d+, of queue '.*' are gone"):
            list(pieces)
    finally:
        ends.close()


def test_a_range_is_read_exactly(broker: Broker) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 5000)
    options = asked(broker, queue=queue, prefetch="700")
    pieces = list(read_range(options, Range(queue, 1234, 4321)))
    assert [number for piece in pieces for number in piece.numbers.tolist()] == list(range(1234, 4321))


def test_partitions_of_a_super_stream(broker: Broker) -> None:
    name = broker.queue("stream")
    for n in range(3):
        broker.queue("stream", name=f"{name}-{n}")
    assert queue_names(asked(broker, superstream=name)) == tuple(f"{name}-{n}" for n in range(3))
    with pytest.raises(NotFound, match=r"super-stream 'none' has no partition 'none-0'"):
        queue_names(asked(broker, superstream="none"))


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_pattern_finds_stream_queues(broker: Broker) -> None:
    base = broker.queue("stream")
    for n in (10, 2):
        broker.queue("stream", name=f"{base}-{n}")
    broker.queue("classic", name=f"{base}-3")
    options = asked(broker, queuePattern=base + r"-\d+")
    assert queue_names(options) == (f"{base}-2", f"{base}-10")
    with pytest.raises(NotFound, match="no stream queue's name matches"):
        queue_names(asked(broker, queuePattern="none"))


@pytest.mark.rabbitmq
@pytest.mark.parametrize("broker", ["rabbitmq_server", "rabbitmq4_server"], indirect=True)
def test_rabbitmq_lists_no_queues_over_amqp(broker: Broker) -> None:
    with pytest.raises(InvalidArgument, match="managementUrl"):
        queue_names(asked(broker, queuePattern=".*"))


@pytest.fixture
def plugin() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What answers as a management plugin: its address, and (path, authorization) of what it was asked."""
    heard: list[tuple[str, str]] = []
    queues = [
        {"name": "o-1", "type": "stream"}, {"name": "o-2", "type": "classic"},
        {"name": "o-0", "arguments": {"x-queue-type": "stream"}},
    ]  # fmt: skip

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append((self.path, self.headers["Authorization"]))
            status = (
                401 if "Basic YTp3cm9uZw==" in self.headers["Authorization"] else 200 if "queues" in self.path else 404
            )
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(queues).encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_management_plugin_lists_queues(plugin: tuple[str, list[tuple[str, str]]]) -> None:
    address, heard = plugin
    url = "amqp://a:b@nowhere/my%2Fvhost"
    options = source_options({"url": url, "queuePattern": "o-.*", "managementUrl": address}, streaming=True)
    assert queue_names(options) == ("o-0", "o-1")
    assert heard == [("/api/queues/my%2Fvhost?columns=name,type,arguments", "Basic YTpi")]
    with pytest.raises(AccessRefused, match="refuses user 'a'"):
        management(address.replace("//", "//a:wrong@"), url, "queues")
    with pytest.raises(NotFound, match="404"):
        management(address, url, "exchanges")
    with pytest.raises(ConnectionLost, match="cannot be asked"):
        management("http://127.0.0.1:1", url, "queues")
