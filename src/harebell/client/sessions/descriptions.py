"""What the broker says of a queue or an exchange when a session asks."""

from __future__ import annotations

from dataclasses import dataclass

from harebell.protocol.conversion.field_values import to_table
from harebell.protocol.v010.structs import ExchangeQueryResult, QueueQueryResult
from harebell.protocol.v091 import Table

__all__ = ["ExchangeDescription", "QueueDescription", "exchange_of", "queue_of"]


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue: how it was declared, its ready messages and its subscribers at that moment."""

    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    alternate_exchange: str | None
    arguments: Table
    message_count: int
    consumer_count: int


@dataclass(frozen=True, slots=True)
class ExchangeDescription:
    """An exchange: how it was declared."""

    name: str
    type: str
    durable: bool
    arguments: Table


def queue_of(found: QueueQueryResult) -> QueueDescription | None:
    """The description in the answer to queue.query; None when there is no such queue."""
    if not found.queue:
        return None
    return QueueDescription(
        found.queue,
        found.durable,
        found.exclusive,
        found.auto_delete,
        found.alternate_exchange or None,
        to_table(found.arguments or {})[0],
        found.message_count,
        found.subscriber_count,
    )


def exchange_of(name: str, found: ExchangeQueryResult) -> ExchangeDescription | None:
    """The description in the answer to exchange.query; None when there is no such exchange."""
    if found.not_found:
        return None
    return ExchangeDescription(name, found.type or "", found.durable, to_table(found.arguments or {})[0])
