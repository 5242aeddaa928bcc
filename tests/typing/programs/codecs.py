"""A producer, a remote call and a consumer with a codec take and give the codec's type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import harebell


@dataclass
class Order:
    id: int


class Numbers:
    """A codec of a program's own."""

    def encode(self, value: int, /) -> tuple[bytes, str]:
        return str(value).encode(), "text/plain"

    def decode(self, delivery: harebell.Delivery, /) -> int:
        return int(delivery.body)


def codec_of(codec: harebell.Codec[Order]) -> harebell.Codec[Order]:
    return codec


async def producers(connection: harebell.Connection, publications: list[harebell.Publication]) -> None:
    orders = harebell.JSON(Order)
    assert_type(orders, harebell.JSON[Order])
    codec_of(orders)

    assert_type(harebell.JSON[Order | None](Order | None), harebell.JSON[Order | None])
    async with connection.producer(codec=harebell.JSON[Order | str](Order | str)) as either:
        await either.publish("none")
        await either.publish(5)  # type: ignore[arg-type]

    plain = connection.producer("orders", window=10)
    assert_type(plain, harebell.Producer[harebell.Message | bytes])
    async with plain as producer:
        assert_type(await producer.publish(b"", "eu.new"), harebell.Confirmation)
        assert_type(await producer.publish(harebell.Message(b"")), harebell.Confirmation)
        assert_type(await producer.publish_soon(b""), harebell.Pending)
        assert_type(await producer.publish_many(publications), list[harebell.Confirmation])
        await producer.publish("text")  # type: ignore[arg-type]
        await producer.publish(Order(1))  # type: ignore[arg-type]
        await producer.publish_soon("text")  # type: ignore[arg-type]

    async with connection.producer("orders", codec=orders) as typed:
        assert_type(typed, harebell.Producer[Order])
        assert_type(await typed.publish(Order(1), "eu.new"), harebell.Confirmation)
        await typed.publish(harebell.Message(b""))
        await typed.publish_soon(Order(1))
        await typed.publish("text")  # type: ignore[arg-type]
        await typed.publish(b"")  # type: ignore[arg-type]

    async with connection.producer(codec=Numbers()) as numbers:
        await numbers.publish(1)
        await numbers.publish(Order(1))  # type: ignore[arg-type]

    async with connection.producer(codec=harebell.JSON()) as anything:
        await anything.publish({"id": 1})
        await anything.publish([1, "two", None])


async def calls(connection: harebell.Connection) -> None:
    async with connection.rpc() as rpc:
        assert_type(await rpc.call(b"", "resize", timeout=5), harebell.Delivery)
        await rpc.call("text", "resize")  # type: ignore[arg-type]
    async with connection.rpc("services", codec=harebell.JSON(Order)) as orders:
        assert_type(await orders.call({"id": 1}, "order"), Order)


async def resize(request: harebell.Delivery) -> bytes:
    return request.body


async def enlarge(number: int, request: harebell.Delivery) -> int:
    return number + 1


def shrink(number: int, request: harebell.Delivery) -> int:
    return number - 1


async def answer_none(request: harebell.Delivery) -> None:
    return None


async def answer_number(request: harebell.Delivery) -> int:
    return 1


async def servers(connection: harebell.Connection) -> None:
    async with connection.serve("resize", resize) as server:
        assert_type(server, harebell.Server)
    connection.serve("resize", answer_none)
    connection.serve("enlarge", enlarge, codec=Numbers())
    connection.serve("shrink", shrink, codec=Numbers())
    connection.serve("resize", answer_number)  # type: ignore[arg-type]
    connection.serve("enlarge", enlarge)  # type: ignore[arg-type]
    connection.serve("enlarge", enlarge, codec=harebell.JSON(Order))  # type: ignore[arg-type]
