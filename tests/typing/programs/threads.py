"""The blocking API: the same types, without `await`."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import harebell
from harebell import blocking, events, middleware
from harebell.protocol.v091 import FieldValue


def connections() -> None:
    with blocking.connect("amqp://localhost/") as connection, connection.channel() as channel:
        assert_type(connection, blocking.Connection)
        assert_type(channel, blocking.Channel)
        assert_type(channel.connection, blocking.Connection)
        assert_type(connection.server_properties, dict[str, FieldValue])
        for event in connection.events():
            assert_type(event, events.Event)
        with connection.test().reconnect_blocked():
            assert_type(connection.test().signal_on_reconnect(), blocking.ReconnectSignal)


def tables(channel: blocking.Channel) -> None:
    objects: dict[str, object] = {"x-queue-type": "stream"}
    numbers: dict[str, int] = {"x-max-length": 10}
    texts: dict[str, str] = {"x-overflow": "reject-publish"}
    channel.queue_declare("work", arguments=objects)
    channel.queue_declare("work", arguments=numbers)
    channel.exchange_declare("orders", "topic", arguments=texts)
    channel.queue_bind("work", "orders", arguments=numbers)
    channel.exchange_bind("all", "orders", arguments=objects)
    channel.consume("work", arguments=numbers)
    channel.queue_declare("work", arguments={"x-max-length"})  # type: ignore[arg-type]


def publishing(channel: blocking.Channel) -> None:
    assert_type(channel.queue_declare("work"), harebell.QueueInfo)
    assert_type(channel.publish(b"", "", "work"), harebell.Confirmation | None)
    assert_type(channel.publish_nowait(harebell.Message(b"")), int)
    assert_type(channel.send(b"", "", "work"), int)
    assert_type(channel.publish_many(harebell.Publication(b"", "", "work") for _ in range(3)), int)
    for confirmation in channel.confirmations():
        assert_type(confirmation, harebell.Confirmation)
    bulk = channel.publish_bulk([b""], [b""])
    assert_type(bulk, blocking.Bulk)
    assert_type(bulk.nacked, list[int])
    channel.publish("text", "", "work")  # type: ignore[arg-type]
    channel.publish_nowait("text", "", "work")  # type: ignore[arg-type]
    channel.send("text", "", "work")  # type: ignore[arg-type]


def handle(delivery: harebell.Delivery) -> None:
    delivery.ack()


def handle_text(text: str) -> None: ...


def consuming(channel: blocking.Channel) -> None:
    with channel.consume("work", prefetch=500) as consumer:
        assert_type(consumer, blocking.Consumer)
        for delivery in consumer:
            assert_type(delivery, harebell.Delivery)
        assert_type(consumer.receive(100, timeout=1), list[harebell.Delivery])
    channel.consume("work").each(handle)
    channel.consume("work").each(handle_text)  # type: ignore[arg-type]
    assert_type(channel.get("work"), harebell.Delivery | None)
    channel.ack(1, multiple=True)
    channel.ack("1")  # type: ignore[arg-type]


def dialled(event: middleware.DialEvent) -> None: ...


def notifications(channel: blocking.Channel, connection: blocking.Connection) -> None:
    assert_type(channel.notify_dial(dialled), Callable[[], None])
    assert_type(connection.notify_dial(dialled), Callable[[], None])
    channel.notify_return(dialled)  # type: ignore[arg-type]
