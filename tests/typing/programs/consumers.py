"""What takes deliveries: iterators, functions, workers, readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import harebell


@dataclass
class Order:
    id: int


async def handle(delivery: harebell.Delivery) -> None:
    assert_type(delivery.body, bytes)


def handle_plainly(delivery: harebell.Delivery) -> None:
    delivery.ack()


async def handle_order(order: Order, delivery: harebell.Delivery) -> None: ...


def handle_order_plainly(order: Order, delivery: harebell.Delivery) -> None: ...


async def handle_nothing() -> None: ...


async def handle_text(text: str) -> None: ...


async def handle_text_of(text: str, delivery: harebell.Delivery) -> None: ...


async def workers(connection: harebell.Connection) -> None:
    orders = harebell.JSON(Order)
    async with connection.consume("work", handle, workers=4, retry=harebell.Retry((1, 10))) as working:
        assert_type(working, harebell.Workers)
        assert_type(working.running, int)
    await connection.consume("work", handle_plainly).run()
    connection.consume("work", handle_order, codec=orders)
    connection.consume("work", handle_order_plainly, codec=orders)
    connection.consume("work", lambda delivery: None)
    connection.consume("work", lambda order, delivery: print(order.id), codec=orders)
    connection.consume("work", handle_nothing)  # type: ignore[arg-type]
    connection.consume("work", handle_text)  # type: ignore[arg-type]
    connection.consume("work", handle_order)  # type: ignore[arg-type]
    connection.consume("work", handle_text_of, codec=orders)  # type: ignore[arg-type]
    connection.consume("work", handle, codec=orders)  # type: ignore[arg-type]


async def readers(connection: harebell.Connection) -> None:
    async with connection.deliveries("work", prefetch=10, arguments=dict[str, int]()) as reader:
        assert_type(reader, harebell.QueueReader)
        async for delivery in reader:
            assert_type(delivery, harebell.Delivery)
            assert_type(delivery.properties, harebell.Properties)
    async for letter in connection.dead_letters("work.dead"):
        assert_type(letter, harebell.DeadLetter)


async def iterators(channel: harebell.Channel) -> None:
    async with channel.consume("work", prefetch=500) as consumer:
        async for delivery in consumer:
            assert_type(delivery, harebell.Delivery)
            assert_type(delivery.ack(), None)
    await channel.consume("work").each(harebell.Delivery.ack)
    await channel.consume("work").each(print)
    await channel.consume("work").each(handle_nothing)  # type: ignore[arg-type]
    assert_type(await channel.get("work"), harebell.Delivery | None)
    for _ in channel.consume("work"):  # type: ignore[attr-defined]
        pass
