"""Turns of guesses: few at once, few after failures, and nobody waits for the guesses of somebody else."""

from __future__ import annotations

import pytest

from harebell.broker.auth import throttle
from harebell.broker.auth.throttle import ADDRESS, FORGET_MS, MOST_WAIT_MS, USER, Throttle, site
from harebell.broker.timers import Timers
from tests.broker.kit import Clock


class Door:
    def __init__(self) -> None:
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.throttle = Throttle(self.timers)

    def fail(self, host: str, count: int, user: str = "u") -> None:
        """Guesses long ago enough to have no turn before them."""
        for _ in range(count):
            self.throttle.admit(host, user, lambda: None)
            self.throttle.ended(host, user, failed=True)

    def knock(self, host: str, user: str = "u") -> int | None:
        """Milliseconds until the turn of a guess, which goes on then; None: it is refused."""
        came: list[int] = []
        start = self.clock.now
        if not self.throttle.admit(host, user, lambda: came.append(self.clock.now)):
            return None
        if came:
            return 0
        deadline = self.timers.next_deadline
        assert deadline is not None
        while not came:
            self.clock.now = self.timers.next_deadline or 0
            self.timers.run()
        self.clock.now = start
        return came[0] - start


@pytest.fixture
def door() -> Door:
    return Door()


def test_one_after_the_other(door: Door) -> None:
    """Each guess waits for its turn and fails; the time between two is the pause."""
    pauses = []
    for _ in range(USER.free + 5):
        wait = door.knock("10.0.0.1")
        assert wait is not None
        pauses.append(wait)
        door.clock.now += wait
        door.throttle.ended("10.0.0.1", "u", failed=True)
    assert pauses == [0] * USER.free + [250, 500, 1000, 1000, 1000]


def test_side_by_side(door: Door) -> None:
    """250 guesses at once gain nothing over one after the other: the first are free, some wait, the rest is refused."""
    waits = [door.knock("10.0.0.1") for _ in range(250)]
    assert waits[: USER.free] == [0] * USER.free
    turns = [wait for wait in waits[USER.free :] if wait is not None]
    assert turns == [250, 750, 1750, 2750, 3750, 4750, 5750, 6750, 7750]
    assert waits.count(None) == 250 - USER.free - len(turns)
    assert max(turns) <= MOST_WAIT_MS


@pytest.mark.parametrize("host, user, wait", [
    ("10.0.0.1", "u", 1000), ("10.0.0.1", "v", 0), ("10.0.0.2", "u", 0), ("10.0.0.2", "v", 0),
])  # fmt: skip
def test_who_waits_for_the_failures_of_one(door: Door, host: str, user: str, wait: int) -> None:
    door.fail("10.0.0.1", USER.free + 5)
    door.clock.now += MOST_WAIT_MS
    assert door.knock(host, user) == wait


def test_many_users_at_one_address(door: Door) -> None:
    """One password for each of many users: the address waits, others do not."""
    for number in range(ADDRESS.free):
        door.fail("10.0.0.1", 1, f"user {number}")
    assert [door.knock("10.0.0.1", f"other {number}") for number in range(4)] == [100, 300, 550, 800]
    assert door.knock("10.0.0.2", "user 0") == 0


def test_a_minute_without_failures_forgets(door: Door) -> None:
    door.fail("10.0.0.1", USER.free + 5)
    door.clock.now += FORGET_MS - 1
    assert door.knock("10.0.0.1") == 1000
    door.throttle.ended("10.0.0.1", "u", failed=False)
    door.clock.now += 1
    assert door.knock("10.0.0.1") == 0


def test_what_succeeds_leaves_no_count(door: Door) -> None:
    for _ in range(3 * ADDRESS.free):
        assert door.knock("10.0.0.1") == 0
        door.throttle.ended("10.0.0.1", "u", failed=False)


def test_records_are_forgotten_oldest_first(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_RECORDS", 6)
    for last in range(5):
        door.fail(f"10.0.0.{last}", 20)
    door.clock.now += MOST_WAIT_MS
    assert len(door.throttle) == 6
    assert [door.knock(f"10.0.0.{last}") for last in (2, 3, 4)] == [1000, 1000, 1000]
    assert door.knock("10.0.0.0") == 0
    door.throttle.ended("10.0.0.1", "u", failed=False)
    assert len(door.throttle) == 6


def test_the_addresses_of_one_site_count_as_one(door: Door) -> None:
    door.fail("2001:db8::1", USER.free + 5)
    door.clock.now += MOST_WAIT_MS
    assert door.knock("2001:db8::2") == 1000
    assert door.knock("2001:db8:0:1::1") == 0
    assert door.knock("no address") == 0
    assert (site("::ffff:10.0.0.1"), site("fe80::1%eth0")) == ("::ffff:10.0.0.1", "fe80::/64")
