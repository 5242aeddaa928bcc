"""pika's other faces, as they are: SelectConnection and the asyncio adapter; and what the broker says unasked."""

from __future__ import annotations

import asyncio
import threading

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel

from tests.wire import BrokerThread

COUNT = 20


class Flow:
    """Opens, declares, publishes with confirms, consumes and closes, by callbacks alone."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        self.got: list[bytes] = []
        self.closed = ""

    def opened(self, connection: pika.connection.Connection) -> None:
        self.connection = connection
        connection.channel(on_open_callback=self.channel_open)

    def channel_open(self, channel: pika.channel.Channel) -> None:
        self.channel = channel
        channel.confirm_delivery(self.confirm, callback=lambda _: channel.queue_declare("q", callback=self.declared))

    def declared(self, _: object) -> None:
        for number in range(COUNT):
            self.channel.basic_publish("", "q", b"%d" % number)
        self.channel.basic_qos(prefetch_count=3, callback=lambda _: self.channel.basic_consume("q", self.take))

    def confirm(self, frame: pika.frame.Method) -> None:
        tag = frame.method.delivery_tag
        self.confirmed |= set(range(1, tag + 1)) if frame.method.multiple else {tag}
        self.close_when_done()

    def take(self, channel: object, method: pika.spec.Basic.Deliver, properties: object, body: bytes) -> None:
        self.got.append(body)
        self.channel.basic_ack(method.delivery_tag)
        self.close_when_done()

    def close_when_done(self) -> None:
        if len(self.got) == COUNT and len(self.confirmed) == COUNT and self.connection.is_open:
            self.connection.close()

    def was_closed(self, connection: pika.connection.Connection, reason: Exception) -> None:
        self.closed = repr(reason)

    def check(self) -> None:
        assert self.got == [b"%d" % number for number in range(COUNT)]
        assert self.confirmed == set(range(1, COUNT + 1))
        assert "(200)" in self.closed


def test_select_connection(broker: BrokerThread) -> None:
    flow = Flow()

    def closed(connection: pika.SelectConnection, reason: Exception) -> None:
        flow.was_closed(connection, reason)
        connection.ioloop.stop()

    connection = pika.SelectConnection(
        pika.URLParameters(broker.broker.url), on_open_callback=flow.opened, on_close_callback=closed
    )
    try:
        connection.ioloop.start()
    finally:
        connection.ioloop.close()  # its own pair of sockets is open else, until a later test collects it
    flow.check()


async def test_asyncio_connection(broker: BrokerThread) -> None:
    flow, done = Flow(), asyncio.Event()

    def closed(connection: AsyncioConnection, reason: Exception) -> None:
        flow.was_closed(connection, reason)
        done.set()

    AsyncioConnection(pika.URLParameters(broker.broker.url), on_open_callback=flow.opened, on_close_callback=closed)
    async with asyncio.timeout(60):
        await done.wait()
    flow.check()


def test_blocked_and_unblocked(broker: BrokerThread, channel: BlockingChannel) -> None:
    said: list[str] = []
    connection = channel.connection
    connection.add_on_connection_blocked_callback(lambda _, frame: said.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda *_: said.append("unblocked"))
    channel.queue_declare("q")
    broker.run(lambda: broker.broker.node.raise_alarm("disk"))
    channel.basic_publish("", "q", b"held")
    while not said:
        connection.process_data_events(time_limit=1)
    broker.run(lambda: broker.broker.node.clear_alarm("disk"))
    while len(said) < 2:
        connection.process_data_events(time_limit=1)
    assert said == ["low on disk", "unblocked"]
    assert channel.basic_get("q", auto_ack=True)[2] == b"held"
    connection.close()


def test_a_consumer_is_cancelled_with_its_queue(broker: BrokerThread, channel: BlockingChannel) -> None:
    cancelled: list[str] = []
    channel.queue_declare("q")
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume("q", lambda *_: None, consumer_tag="c")
    with pika.BlockingConnection(pika.URLParameters(broker.broker.url)) as other:
        other.channel().queue_delete("q")
    while not cancelled:
        channel.connection.process_data_events(time_limit=1)
    assert cancelled == ["c"]
    channel.connection.close()


def test_flow(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    assert channel.flow(False) is False
    channel.basic_publish("", "q", b"1")
    got: list[bytes] = []
    channel.basic_consume("q", lambda *arguments: got.append(arguments[3]), auto_ack=True)
    assert channel.queue_declare("q", passive=True).method.message_count == 1
    assert got == []
    assert channel.flow(True) is True
    while not got:
        channel.connection.process_data_events(time_limit=1)
    assert got == [b"1"]
    channel.connection.close()


def test_callbacks_from_another_thread(channel: BlockingChannel) -> None:
    """Work that takes long is a thread's; the connection's own thread acknowledges."""
    connection, done = channel.connection, []
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=2)
    for number in range(6):
        channel.basic_publish("", "q", b"%d" % number)

    def take(channel: BlockingChannel, method: pika.spec.Basic.Deliver, properties: object, body: bytes) -> None:
        def acknowledge() -> None:
            channel.basic_ack(method.delivery_tag)
            done.append(body)

        threading.Thread(target=lambda: connection.add_callback_threadsafe(acknowledge)).start()

    channel.basic_consume("q", take)
    while len(done) < 6:
        connection.process_data_events(time_limit=1)
    assert sorted(done) == [b"%d" % number for number in range(6)]
    connection.close()
