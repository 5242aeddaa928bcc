"""Failures make the next logins from there wait, for a while, and cost bounded memory."""

from __future__ import annotations

import pytest

from harebell.broker.auth import throttle
from harebell.broker.auth.throttle import Throttle
from harebell.broker.timers import Timers
from tests.broker.kit import Clock


class Door:
    def __init__(self) -> None:
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.throttle = Throttle(self.timers)

    def fail(self, host: str, count: int) -> None:
        for _ in range(count):
            self.throttle.failed(host)

    def wait(self, host: str) -> int:
        """Milliseconds until a login from there is looked at."""
        came: list[int] = []
        start = self.clock.now
        assert self.throttle.admit(host, lambda: came.append(self.clock.now))
        while not came:
            deadline = self.timers.next_deadline
            assert deadline is not None
            self.clock.now = deadline
            self.timers.run()
        self.clock.now = start
        return came[0] - start


@pytest.fixture
def door() -> Door:
    return Door()


def test_pauses_double_up_to_a_limit(door: Door) -> None:
    waits = []
    for _ in range(18):
        waits.append(door.wait("10.0.0.1"))
        door.fail("10.0.0.1", 1)
    assert waits == [0] * 10 + [250, 500, 1000, 2000, 4000, 4000, 4000, 4000]
    assert door.wait("10.0.0.2") == 0, "another address"


def test_a_minute_without_failures_forgets(door: Door) -> None:
    door.fail("10.0.0.1", 30)
    door.clock.now += throttle.FORGET_MS - 1
    assert door.wait("10.0.0.1") == 4000
    door.clock.now += 1
    assert door.wait("10.0.0.1") == 0
    door.fail("10.0.0.1", 1)
    assert door.wait("10.0.0.1") == 0, "counting began anew"


def test_too_many_that_wait_are_turned_away(door: Door) -> None:
    door.fail("10.0.0.1", 30)
    for _ in range(throttle.MOST_WAITING):
        assert door.throttle.admit("10.0.0.1", lambda: None)
    assert not door.throttle.admit("10.0.0.1", lambda: None)
    assert door.wait("10.0.0.2") == 0
    door.clock.now += 4000
    door.timers.run()
    assert door.throttle.admit("10.0.0.1", lambda: None)


def test_addresses_are_forgotten_oldest_first(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_ADDRESSES", 3)
    for last in range(5):
        door.fail(f"10.0.0.{last}", 20)
    assert len(door.throttle) == 3
    assert [door.wait(f"10.0.0.{last}") for last in range(5)] == [0, 0, 4000, 4000, 4000]


def test_the_addresses_of_one_site_count_as_one(door: Door) -> None:
    door.fail("2001:db8::1", 20)
    assert door.wait("2001:db8::2") == 4000
    assert door.wait("2001:db8:0:1::1") == 0
    assert door.wait("no address") == 0
