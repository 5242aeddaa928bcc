"""How many messages each of several queues or tasks gets of a limit. Whole numbers only: no Spark, no sockets."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["even_shares", "water_fill"]


def even_shares(rows: int, parts: int) -> list[int]:
    """`rows` in so many parts that differ by at most one."""
    return [(rows + part) // parts for part in range(parts)]


def water_fill(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Shares of `limit`, none above what is available: every queue gets the same until it has all it wants.

    What does not divide goes to the first queues by name, so the same input gives the same answer.
    """
    shares = dict.fromkeys(sorted(available), 0)
    left = limit
    thirsty = [queue for queue in shares if available[queue] > 0]
    while left > 0 and thirsty:
        level = left // len(thirsty)
        for queue in thirsty if level else thirsty[:left]:
            share = min(level or 1, available[queue] - shares[queue])
            shares[queue] += share
            left -= share
        thirsty = [queue for queue in thirsty if available[queue] > shares[queue]]
    return shares
