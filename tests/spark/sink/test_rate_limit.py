"""The rate limit, on a clock of its own."""

from __future__ import annotations

from harebell.spark.sink.rate_limit import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_no_more_than_the_rate_goes_over_any_time() -> None:
    clock = Clock()
    rate = RateLimit(10, clock, clock.sleep)
    for _ in range(20):
        rate.take(5)
    assert clock.now == 110.0


def test_what_was_not_used_is_kept_for_a_second() -> None:
    clock = Clock()
    rate = RateLimit(10, clock, clock.sleep)
    clock.now += 60
    rate.take(10)
    assert clock.now == 160.0
    rate.take(5)
    assert clock.now == 160.5


def test_more_than_a_second_holds_takes_its_time() -> None:
    clock = Clock()
    rate = RateLimit(0.5, clock, clock.sleep)
    rate.take(2)
    assert clock.now == 104.0
