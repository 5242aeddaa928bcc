"""Arguments and headers may be any mapping; what comes back is a Table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_type

import harebell
from harebell.protocol.v091 import FieldValue, Table


async def variables(channel: harebell.Channel, settings: Mapping[str, object], table: Table) -> None:
    objects: dict[str, object] = {"x-queue-type": "stream"}
    numbers: dict[str, int] = {"x-max-length": 10}
    texts: dict[str, str] = {"x-overflow": "reject-publish"}
    several: dict[str, str | int] = {"x-overflow": "reject-publish", "x-max-length": 10}
    for arguments in (objects, numbers, texts, several, settings, table):
        await channel.queue_declare("work", arguments=arguments)
    await channel.queue_declare("work", arguments=objects)
    await channel.queue_declare("work", arguments=numbers)
    await channel.queue_declare("work", arguments=texts)
    await channel.queue_declare("work", arguments=several)
    await channel.queue_declare("work", arguments=settings)
    await channel.queue_declare("work", arguments=MappingProxyType(numbers))
    await channel.exchange_declare("orders", "topic", arguments=texts)
    await channel.queue_bind("work", "orders", "eu.#", arguments=numbers)
    await channel.queue_unbind("work", "orders", "eu.#", arguments=numbers)
    await channel.exchange_bind("all", "orders", arguments=objects)
    channel.consume("work", arguments=numbers)
    harebell.Message(b"", headers=objects)
    harebell.Message(b"", headers=numbers)
    harebell.Message(b"", headers=texts)
    harebell.Message(b"", properties=harebell.Properties(headers=texts))


def returned(message: harebell.Message, delivery: harebell.Delivery, connection: harebell.Connection) -> None:
    assert_type(message.headers, dict[str, FieldValue])
    assert_type(delivery.headers, dict[str, FieldValue])
    assert_type(delivery.headers["x"], FieldValue)
    assert_type(connection.server_properties, dict[str, FieldValue])


async def refused(channel: harebell.Channel) -> None:
    await channel.queue_declare("work", arguments={"x-max-length"})  # type: ignore[arg-type]
    await channel.queue_declare("work", arguments=[("x-max-length", 10)])  # type: ignore[arg-type]
    await channel.queue_declare("work", arguments={1: "x"})  # type: ignore[dict-item]
    await channel.queue_declare(b"work")  # type: ignore[arg-type]
    harebell.Message(b"", headers={"x"})  # type: ignore[arg-type]
    harebell.Message("text")  # type: ignore[arg-type]
    await channel.publish("text", "", "work")  # type: ignore[arg-type]
    await channel.confirm_select(on_orphan="again")  # type: ignore[arg-type]
