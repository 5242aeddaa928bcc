"""Long work in slices: each work gets on, none waits for another one's end, and nothing is lost on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from harebell.broker import slices
from harebell.broker.slices import Share, Slices, Work
from tests.broker.kit import Stopwatch


class Loop:
    """What a test calls as the loop would."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.ends: list[str] = []
        self.failures: list[OSError] = []
        self.stopwatch = Stopwatch()
        self.slices = Slices(self.calls.append, self.stopwatch, lambda: self.ends.append("end"), self.failures.append)

    def turn(self) -> None:
        calls, self.calls[:] = self.calls[:], []
        for call in calls:
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def steps(log: list[str], name: str, count: int) -> Work:
    for number in range(count):
        log.append(f"{name}{number}")
        yield


def test_a_short_work_is_done_at_once(loop: Loop) -> None:
    log: list[str] = []
    assert loop.slices.run(steps(log, "a", 3))
    assert (log, loop.calls, loop.slices.idle) == (["a0", "a1", "a2"], [], True)


def test_a_work_that_waits_has_no_turn_until_it_is_resumed(loop: Loop) -> None:
    log: list[str] = []
    resumes: list[Callable[[], None]] = []

    def work() -> Work:
        log.append("begin")
        loop.slices.wait(resumes.append)
        yield
        log.append("end")

    assert not loop.slices.run(work())
    loop.slices.later(steps(log, "a", 2))
    loop.turn()
    assert (log, loop.calls) == (["begin", "a0", "a1"], [])
    for resume in resumes * 2:
        resume()
    loop.turn()
    assert log[3:] == ["end"]
    assert not loop.slices.run(work())
    loop.slices.finish()
    assert log[4:] == ["begin", "end"]
    resumes[-1]()
    assert loop.slices.idle


def test_long_works_take_turns_and_the_loop_has_its_own_in_between(loop: Loop) -> None:
    log: list[str] = []
    loop.stopwatch.step = 1.0
    assert not loop.slices.run(steps(log, "a", 3))
    assert not loop.slices.run(steps(log, "b", 3))
    assert (log, len(loop.calls)) == (["a0", "b0"], 1)
    for _ in range(6):
        loop.turn()
    assert log == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert (loop.calls, loop.slices.idle) == ([], True)
    assert loop.ends == ["end"] * 6


def test_a_work_for_later_begins_in_the_next_turn(loop: Loop) -> None:
    log: list[str] = []
    loop.slices.later(steps(log, "a", 1))
    assert log == []
    loop.turn()
    assert log == ["a0"]


def test_a_work_in_a_work_ends_with_its_slice(loop: Loop) -> None:
    log: list[str] = []

    def outer() -> Work:
        loop.slices.run(steps(log, "inner", 5))
        yield

    loop.stopwatch.step = slices.SLICE / 3
    loop.slices.run(outer())
    assert 0 < len(log) < 5
    loop.slices.finish()
    assert log == [f"inner{number}" for number in range(5)]


def test_a_refusal_of_the_disk_ends_one_work(loop: Loop) -> None:
    log: list[str] = []

    def broken() -> Work:
        yield
        raise OSError(5, "no")

    loop.stopwatch.step = 1.0
    loop.slices.run(broken())
    loop.slices.run(steps(log, "a", 2))
    loop.slices.finish()
    assert ([error.errno for error in loop.failures], log) == ([5], ["a0", "a1"])


def test_an_error_ends_one_work(loop: Loop) -> None:
    log: list[str] = []

    def broken() -> Work:
        yield
        raise ZeroDivisionError

    loop.stopwatch.step = 1.0
    loop.slices.run(broken())
    loop.slices.run(steps(log, "a", 2))
    ends = len(loop.ends)
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    assert len(loop.ends) > ends, "its batch ends all the same"
    loop.slices.finish()
    assert log == ["a0", "a1"]


@pytest.mark.pure
def test_containers_are_emptied_in_steps(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "DISCARD", 2)
    loop.stopwatch.step = 1.0
    many, few = deque(range(5)), [1, 2, 3]
    loop.slices.discard(many, few)
    assert len(many) == 3
    loop.slices.finish()
    assert (len(many), len(few)) == (0, 0)


@pytest.mark.pure
def test_a_share_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "CHECK", 10)
    stopwatch = Stopwatch()
    stopwatch.step = slices.SLICE
    share = Share(stopwatch).begin()
    assert [share.spend(4) for _ in range(6)] == [False, False, False, False, False, True]
    assert not share.begin().spend(10)
