"""Counts of what a layer has sent, as ASGI 1's statistics want them: in all and for each channel, and per second.

For any thread. Pure but for the clock.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import Final

__all__ = ["Counts", "LayerCounts"]

WINDOW: Final = 10  # seconds over which a rate is taken
CHANNELS: Final = 10_000  # with counts of their own: those that were sent to last


class Counts:
    """How many, and how many per second lately."""

    __slots__ = ("_seconds", "total")

    def __init__(self) -> None:
        self.total = 0
        self._seconds: deque[tuple[int, int]] = deque(maxlen=WINDOW + 1)  # (second, total at its begin)

    def add(self, second: int) -> None:
        seconds = self._seconds
        if not seconds or seconds[-1][0] != second:
            seconds.append((second, self.total))
        self.total += 1

    def rate(self, second: int) -> float:
        """Per second, over the last seconds."""
        begin = next((total for at, total in self._seconds if at > second - WINDOW), self.total)
        return (self.total - begin) / WINDOW


class LayerCounts:
    """Messages sent, and sends refused as full."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent, self._full = Counts(), Counts()
        self._channels: OrderedDict[str, tuple[Counts, Counts]] = OrderedDict()

    @property
    def full(self) -> int:
        return self._full.total

    def sent(self, channel: str | None) -> None:
        """Count a message; None: to a group."""
        self._count(channel, 0)

    def refused(self, channel: str) -> None:
        """Count a send that was refused because the channel is full."""
        self._count(channel, 1)

    def _count(self, channel: str | None, which: int) -> None:
        second = int(time.monotonic())
        with self._lock:
            (self._sent, self._full)[which].add(second)
            if channel is None:
                return
            counts = self._channels.get(channel)
            if counts is None:
                counts = self._channels[channel] = Counts(), Counts()
                if len(self._channels) > CHANNELS:
                    self._channels.popitem(last=False)
            counts[which].add(second)

    def of(self, channel: str | None) -> dict[str, float]:
        """The counts of a channel; None: of all, messages to groups included."""
        second = int(time.monotonic())
        with self._lock:
            if channel is None:
                sent, full = self._sent, self._full
            else:
                sent, full = self._channels.get(channel) or (Counts(), Counts())
            return {
                "messages_count": sent.total,
                "messages_count_per_second": sent.rate(second),
                "channel_full_count": full.total,
                "channel_full_count_per_second": full.rate(second),
            }
