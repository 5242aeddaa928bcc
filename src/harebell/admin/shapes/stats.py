"""`message_stats` and the other figures that have `..._details` beside them, in RabbitMQ's form.

An object that nothing happened to has no `message_stats`, as with RabbitMQ.
"""

from __future__ import annotations

from typing import Any, TypeVar

from harebell.admin.context import Context
from harebell.admin.history.ranges import NONE, Range, Ranges
from harebell.admin.history.sampler import CHANNEL, EXCHANGE, QUEUE_COUNTS, Group
from harebell.broker.counts import ChannelCounts, ExchangeCounts, QueueCounts

__all__ = ["channel_stats", "exchange_stats", "lengths", "queue_stats", "summed", "summed_stats", "with_details"]

K = TypeVar("K")

DELIVERED = ("deliver", "deliver_no_ack", "get", "get_no_ack")


def queue_stats(context: Context, key: Any, counts: QueueCounts, ranges: Ranges = NONE) -> dict[str, Any]:
    """The message_stats of a queue; {} when nothing happened to it."""
    return _stats(context, context.sampler.queues, key, counts, QUEUE_COUNTS, ranges)


def channel_stats(
    context: Context, group: Group[K], key: K, counts: ChannelCounts, ranges: Ranges = NONE
) -> dict[str, Any]:
    """The message_stats of a channel, or the sum of many; {} when nothing happened."""
    return _stats(context, group, key, counts, CHANNEL, ranges)


def exchange_stats(context: Context, key: Any, counts: ExchangeCounts, ranges: Ranges = NONE) -> dict[str, Any]:
    return _stats(context, context.sampler.exchanges, key, counts, EXCHANGE, ranges)


def _stats(
    context: Context, group: Group[K], key: K, counts: object, names: tuple[str, ...], ranges: Ranges
) -> dict[str, Any]:
    values = [getattr(counts, name) for name in names]
    if not any(values):
        return {}
    found: dict[str, Any] = {}
    details, span = context.rates.details, ranges.msg_rates
    for name, value in zip(names, values, strict=True):
        found[name] = value
        found[f"{name}_details"] = details(group, key, name, value, span)
    if "deliver" in found:
        found["deliver_get"] = sum(found[name] for name in DELIVERED)
        found["deliver_get_details"] = summed([found[f"{name}_details"] for name in DELIVERED])
    return found


def summed(details: list[dict[str, Any]]) -> dict[str, Any]:
    """The details of a sum of figures, from those of each."""
    total = {name: sum(each[name] for each in details) for name in details[0] if name != "samples"}
    if "samples" in details[0]:
        rows = zip(*(each["samples"] for each in details), strict=True)
        total["samples"] = [
            {"sample": sum(each["sample"] for each in row), "timestamp": row[0]["timestamp"]} for row in rows
        ]
    return total


def lengths(
    context: Context, group: Group[K], key: K, ready: int, unacked: int, span: Range | None = None
) -> dict[str, Any]:
    """The numbers of messages of an object, with their details."""
    details = context.rates.details
    of_ready = details(group, key, "messages_ready", ready, span)
    of_unacked = details(group, key, "messages_unacknowledged", unacked, span)
    return {
        "messages": ready + unacked,
        "messages_details": summed([of_ready, of_unacked]),
        "messages_ready": ready,
        "messages_ready_details": of_ready,
        "messages_unacknowledged": unacked,
        "messages_unacknowledged_details": of_unacked,
    }


def with_details(
    context: Context, group: Group[K], key: K, values: dict[str, int], span: Range | None = None
) -> dict[str, Any]:
    """The values, each with its details beside it."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found[name] = value
        found[f"{name}_details"] = context.rates.details(group, key, name, value, span)
    return found


def summed_stats(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of several objects of figures with their details; {} of none."""
    found: dict[str, Any] = {}
    for name in parts[0] if parts else ():
        each = [part[name] for part in parts if name in part]
        found[name] = summed(each) if name.endswith("_details") else sum(each)
    return found
