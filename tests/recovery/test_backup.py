"""What docs/how-to/backup.md tells: a copy of a broker that was stopped, or held still, is a whole broker."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from harebell.client.blocking import Channel, connect
from harebell.client.messages import Message
from tests.cli.server.test_serve import STOP_SECONDS, serving

COUNT = 40
STREAM = {"x-queue-type": "stream"}


def fill(channel: Channel, first: int) -> None:
    """Confirmed messages, in a queue and in a stream."""
    channel.queue_declare("q", durable=True)
    channel.queue_declare("s", durable=True, arguments=STREAM)
    channel.confirm_select()
    for number in range(first, first + COUNT):
        for queue in ("q", "s"):
            channel.publish(Message(b"%d" % number, delivery_mode=2), "", queue)


def contents(url: str) -> tuple[list[int], list[int]]:
    """What is in the queue and in the stream."""
    with connect(url) as connection:
        channel = connection.channel()
        queue = []
        while (delivery := channel.get("q")) is not None:
            queue.append(int(delivery.body))
        size = channel.queue_declare("s", passive=True).message_count
        channel.qos(prefetch_count=1000)
        stream: list[int] = []
        with channel.consume("s", arguments={"x-stream-offset": "first"}) as consumer:
            while len(stream) < size:
                stream += [int(delivery.body) for delivery in consumer.receive(timeout=30.0)]
        return queue, stream


def check_copy(copy: Path) -> None:
    with serving("--data", copy) as (process, url):
        assert contents(url) == (list(range(COUNT)), list(range(COUNT)))
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)


def test_a_copy_of_a_stopped_broker(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with serving("--data", data) as (process, url):
        with connect(url) as connection:
            fill(connection.channel(), 0)
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
    shutil.copytree(data, copy)
    check_copy(copy)


def test_a_copy_of_a_broker_that_is_held_still(tmp_path: Path) -> None:
    data, copy, snapshot = tmp_path / "data", tmp_path / "copy", tmp_path / "snapshot"
    with serving("--data", data) as (process, url), connect(url) as connection:
        channel = connection.channel()
        fill(channel, 0)
        process.send_signal(signal.SIGSTOP)
        shutil.copytree(data, copy)
        process.send_signal(signal.SIGCONT)
        fill(channel, COUNT)  # it goes on, and the copy does not
        shutil.copytree(copy, snapshot)
        (snapshot / "running").write_text("")  # so that it is taken for what a power cut left
        check_copy(copy)
        check_copy(snapshot)
        assert contents(url) == (list(range(2 * COUNT)), list(range(2 * COUNT)))
