"""How late the broker's loop is: a timer every quarter of a second, and by how much it rings late.

Whoever asks the broker for anything waits about as long. The clock is the node's, in milliseconds.
"""

from __future__ import annotations

from typing import Final

from harebell.broker.counts import Histogram
from harebell.broker.timers import Timer, Timers

__all__ = ["LoopLag"]

BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)  # seconds
EVERY_MS: Final = 250


class LoopLag:
    """Measures from `start` on. `seconds`: how often it was how late."""

    def __init__(self, timers: Timers) -> None:
        self.seconds = Histogram(BOUNDS)
        self._timers = timers
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._timers.at(self._timers.now() + EVERY_MS, self._ring)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        if self._timer is not None:
            self.seconds.observe((self._timers.now() - self._timer.deadline) / 1000)
            self.start()
