"""Computes the size of a micro-batch: pure arithmetic over offsets, ends and limits. No Spark, no sockets, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from harebell.spark.streams.offsets import Offsets

__all__ = ["available", "rows_for_bytes"]


def available(start: Offsets, tails: Mapping[str, int]) -> dict[str, int]:
    """How many messages each queue has behind `start`."""
    return {queue: max(0, tails[queue] - entry["next"]) for queue, entry in start.items() if queue in tails}


def rows_for_bytes(limit: int, waiting: Mapping[str, int], sizes: Mapping[str, float]) -> int | None:
    """About how many messages have `limit` bytes of bodies; at least 1, and None when all of them have no more.

    sizes  mean bytes of a body in each queue; a queue that is not in it counts nothing
    """
    messages = sum(waiting.values())
    total = sum(count * sizes.get(queue, 0.0) for queue, count in waiting.items())
    return None if total <= limit else max(1, int(messages * limit / total))
