"""How late the loop comes: by a clock of the test's own."""

from __future__ import annotations

from harebell.admin.history.lag import EVERY_MS, LoopLag
from harebell.broker.timers import Timers


def test_it_is_measured_by_a_timer_that_rings_late() -> None:
    now = 1000
    timers = Timers(lambda: now)
    lag = LoopLag(timers)
    lag.start()
    for late in (0, 3, 700):
        now += EVERY_MS + late
        timers.run()
    assert lag.seconds.count == 3
    assert lag.seconds.total == 0.703
    lag.stop()
    now += 10 * EVERY_MS
    timers.run()
    assert lag.seconds.count == 3
    assert timers.next_deadline is None
