"""The receiving half alone: numbers, completions, what is known, what is saved."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol.v010 import receiving as module
from harebell.protocol.v010.receiving import ReceivingHalf
from harebell.protocol.v010.values import MAX_RANGES

WRAP = 1 << 32


def half(count: int, first: int = 0, **limits: int) -> ReceivingHalf:
    receiving = ReceivingHalf(**limits)
    receiving.command_point(first, 0)
    assert [receiving.receive() for _ in range(count)] == list(range(first, first + count))
    return receiving


@pytest.mark.parametrize("first", [0, 7, WRAP - 2])
def test_every_command_is_executed_once(first: int) -> None:
    receiving = half(5, first)
    assert receiving.expected() == (((first + 5) % WRAP,) * 2,)
    receiving.complete(first, first + 2)
    receiving.detached()
    receiving.command_point((first + 1) % WRAP, 0)
    assert [receiving.receive() for _ in range(6)] == [None] * 4 + [first + 5, first + 6]
    assert (receiving.mark, receiving.incomplete) == (first + 3, 4)


def test_a_command_needs_a_command_point() -> None:
    receiving = ReceivingHalf()
    assert (receiving.expected(), receiving.save(), receiving.incomplete) == ((), bytes(25), 0)
    for _ in range(2):
        with pytest.raises(errors.RemoteProtocolError, match=r"before session\.command-point") as caught:
            receiving.receive()
        assert (caught.value.reply_code, caught.value.scope) == (409, "channel")
        receiving.command_point(0, 0)
        receiving.receive()
        receiving.detached()
    with pytest.raises(errors.RemoteProtocolError, match="octet 3 of a command") as caught:
        receiving.command_point(0, 3)
    assert caught.value.reply_code == 540


def test_a_command_point_leaves_nothing_out() -> None:
    receiving = half(3)
    with pytest.raises(errors.RemoteProtocolError, match="command-point 5 leaves out commands 3 to 4") as caught:
        receiving.command_point(5, 0)
    assert (caught.value.reply_code, caught.value.scope) == (542, "channel")
    receiving.gap(((3, 3),))
    with pytest.raises(errors.RemoteProtocolError, match="leaves out commands 4 to 4"):
        receiving.command_point(5, 0)
    receiving.gap(((4, 9), (1, 1)))
    receiving.command_point(10, 0)
    assert receiving.receive() == 10
    assert receiving.expected() == ((11, 11),)
    assert receiving.unknown() == [((1, 1), (3, 9))]
    receiving.complete(1)
    receiving.gap(((20, 29),))
    assert receiving.expected() == ((11, 11),)
    receiving.gap(((11, 19),))
    assert receiving.expected() == ((30, 30),)


def test_a_gap_leaves_what_is_complete() -> None:
    """Nor is a command in it that is being executed complete before it is."""
    receiving = half(4)
    receiving.complete(0, 1)
    assert receiving.completed() == [((0, 1),)]
    receiving.gap(((0, 9),))
    assert [receiving.is_complete(number) for number in range(10)] == [True] * 10
    receiving.command_point(0, 0)
    assert [receiving.receive() for _ in range(11)] == [None] * 10 + [10]
    receiving.complete(2, 3)
    assert receiving.incomplete == 1


def test_a_million_ranges_of_gaps_are_refused_early() -> None:
    receiving = half(0)
    with pytest.raises(errors.RemoteProtocolError, match="more than 65536 ranges"):
        for start in range(1, 2_000_000, 2 * MAX_RANGES):
            receiving.gap(tuple((n, n) for n in range(start, start + 2 * MAX_RANGES, 2)))
    assert len(receiving._complete) <= 65_537


def test_gaps_are_bounded_and_need_a_command_point() -> None:
    with pytest.raises(errors.RemoteProtocolError, match="gap before"):
        ReceivingHalf().gap(((0, 1),))
    receiving = half(0, max_incomplete=100)
    with pytest.raises(errors.RemoteProtocolError, match="more than 100 ranges"):
        receiving.gap(tuple((n, n) for n in range(10, 1000, 2)))
    with pytest.raises(errors.RemoteProtocolError, match="run backwards"):
        receiving.gap(((3, 1),))


def test_who_waits_for_a_completion() -> None:
    receiving = ReceivingHalf()
    receiving.command_point(0, 0)
    for sync in (False, True, False, True):
        receiving.receive(sync)
    receiving.complete(0)
    receiving.complete(2)
    assert not receiving.due
    receiving.complete(1)
    assert receiving.due
    assert receiving.completed() == [((0, 2),)]
    assert (receiving.due, receiving.fresh) == (False, 0)
    receiving.command_point(1, 0)
    assert receiving.receive(True) is None
    assert receiving.due  # complete before: the answer was lost
    receiving.completed()
    receiving.command_point(3, 0)
    assert receiving.receive(True) is None
    assert not receiving.due
    receiving.complete(3)
    assert receiving.due
    assert receiving.fresh == 1


def test_execution_sync_waits_for_those_before_it() -> None:
    receiving = half(3)
    for number in (3, 4):
        assert receiving.receive(True) == number
        receiving.complete_in_order(number)
    receiving.complete(0, 1)
    assert (receiving.mark, receiving.due) == (2, False)
    receiving.complete(2)
    assert (receiving.mark, receiving.due, receiving.incomplete) == (5, True, 0)
    assert receiving.receive() == 5
    receiving.complete_in_order(5)
    assert receiving.mark == 6


def test_what_is_known_is_not_reported_again() -> None:
    receiving = half(10)
    receiving.complete(0, 7)
    receiving.known_completed(((2, 3),))
    assert receiving.unknown() == [((0, 1), (4, 7))]
    receiving.known_completed(((0, 1), (5, 9)))
    assert receiving.unknown() == [((4, 4),)]
    receiving.complete(8)
    assert receiving.unknown() == [((4, 4), (8, 8))]  # what is known before it is complete is not believed
    receiving.known_completed(((0, 8),))
    assert receiving.unknown() == [()]
    with pytest.raises(errors.RemoteProtocolError, match=r"session.known-completed: commands 3 to 1 run backwards"):
        receiving.known_completed(((3, 1),))


def test_what_is_known_out_of_order_is_bounded() -> None:
    receiving = half(20_000)
    receiving.complete(0, 19_999)
    for start in range(1, 20_000, 4000):
        receiving.known_completed(tuple((n, n) for n in range(start, start + 4000, 2)))
    assert len(receiving._known) == module.MAX_KNOWN
    receiving.known_completed(((0, 19_999),))
    assert receiving.unknown() == [()]


def test_reports_fit_the_wire() -> None:
    receiving = half(40_000)
    for number in range(1, 40_000, 2):
        receiving.complete(number)
    sets = receiving.completed()
    assert [len(ranges) for ranges in sets] == [MAX_RANGES, MAX_RANGES, 20_000 - 2 * MAX_RANGES]
    assert sets[1][0] == (2 * MAX_RANGES + 1,) * 2


def test_the_number_of_incomplete_commands_is_bounded() -> None:
    receiving = half(10, max_incomplete=10)
    with pytest.raises(errors.RemoteProtocolError, match="more than 10 commands are not complete") as caught:
        receiving.receive()
    assert (caught.value.reply_code, caught.value.scope) == (506, "channel")
    receiving = half(10, max_incomplete=10)
    receiving.complete(5)
    receiving.receive()


def test_a_saved_half_expects_what_was_not_complete() -> None:
    receiving = half(8, WRAP - 3)
    receiving.complete(WRAP - 3, WRAP - 1)
    receiving.complete(WRAP + 1)
    receiving.complete(WRAP + 4)
    receiving.known_completed(((WRAP - 3, WRAP - 3),))
    raw = receiving.save()
    assert len(raw) == 25 + 2 * 16
    loaded = ReceivingHalf.load(raw)
    assert loaded.expected() == ((0, 0), (2, 3), (5, 5))
    assert loaded.unknown() == [((WRAP - 2, WRAP - 1), (1, 1), (4, 4))]
    assert [n for n in range(WRAP, WRAP + 6) if loaded.is_complete(n)] == [WRAP + 1, WRAP + 4]
    loaded.command_point(0, 0)
    assert [loaded.receive(True) for _ in range(6)] == [WRAP, None, WRAP + 2, WRAP + 3, None, WRAP + 5]
    assert loaded.incomplete == 4
    assert ReceivingHalf.load(loaded.save()).expected() == ((0, 0), (2, 3), (5, 6))


def test_new_commands_may_come_before_those_that_a_restart_has_lost() -> None:
    receiving = half(8)
    receiving.complete(0, 2)
    receiving.complete(5)
    loaded = ReceivingHalf.load(receiving.save())
    assert loaded.expected() == ((3, 4), (6, 8))
    loaded.command_point(8, 0)
    assert [loaded.receive(), loaded.receive()] == [8, 9]
    assert loaded.expected() == ((3, 4), (6, 7), (10, 10))
    loaded.command_point(3, 0)
    assert [loaded.receive() for _ in range(8)] == [3, 4, None, 6, 7, None, None, 10]


@given(st.sets(st.integers(0, 20)), st.integers(0, 8), st.sets(st.integers(0, 20)))
def test_a_saved_half_leaves_out_what_is_to_be_executed_again(done: set[int], known: int, without: set[int]) -> None:
    receiving = half(20)
    for number in (*range(known), *done):
        if number < 20:
            receiving.complete(number)
    receiving.known_completed(((0, known - 1),) if known else ())
    loaded = ReceivingHalf.load(receiving.save(without))
    for number in range(21):
        again = number in without and number >= known
        assert loaded.is_complete(number) is (receiving.is_complete(number) and not again)
    assert loaded.received == receiving.received


@pytest.mark.parametrize(
    "raw",
    [b"", bytes(24), b"\1" + bytes(24), bytes(26), b"\0" + bytes(7) + b"\2" + bytes(16),
     bytes(24) + b"\x09" + bytes(15) + b"\0", bytes(24) + b"\x09" + (5).to_bytes(8, "big") + (4).to_bytes(8, "big")],
)  # fmt: skip
def test_what_was_not_saved_by_us(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no saved session"):
        ReceivingHalf.load(raw)


@given(st.integers(0, 1 << 33), st.sets(st.integers(0, 30)), st.integers(1, 31))
def test_saved_and_loaded(first: int, complete: set[int], count: int) -> None:
    receiving = ReceivingHalf()
    receiving.command_point(first % WRAP, 0)
    base = first % WRAP
    for _ in range(count):
        receiving.receive()
    for offset in complete:
        if offset < count:
            receiving.complete(base + offset)
    loaded = ReceivingHalf.load(receiving.save())
    loaded.command_point(base, 0)
    executed = [loaded.receive() for _ in range(count)]
    assert executed == [None if offset in complete else base + offset for offset in range(count)]


def in_one(receiving: ReceivingHalf, count: int, sync: bool) -> list[int | None]:
    first = receiving.receive_run(count, sync)
    if first is None:
        return one_by_one(receiving, count, sync)
    return list(range(first, first + count))


def one_by_one(receiving: ReceivingHalf, count: int, sync: bool) -> list[int | None]:
    return [receiving.receive(sync) for _ in range(count)]


RECEIVED = st.tuples(st.just("receive"), st.integers(1, 4), st.booleans())
COMPLETED = st.tuples(st.just("complete"), st.integers(0, 12), st.integers(0, 4))
POINTS = st.tuples(st.just("point"), st.integers(0, 12), st.just(0))
GAPS = st.tuples(st.just("gap"), st.integers(0, 12), st.integers(0, 2))


@given(st.lists(st.one_of(RECEIVED, RECEIVED, COMPLETED, POINTS, GAPS), max_size=20))
def test_commands_that_come_together_are_received_as_single_ones_are(steps: list[tuple[str, int, int]]) -> None:
    ways = (one_by_one, in_one)
    halves = [ReceivingHalf(max_incomplete=9) for _ in ways]
    for half in halves:
        half.command_point(0, 0)
    for kind, low, more in steps:
        outcomes: list[object] = []
        for half, receive in zip(halves, ways, strict=True):
            try:
                match kind:
                    case "receive":
                        outcomes.append(receive(half, low, bool(more)))
                    case "complete":
                        if low + more < (half.received or 0):
                            half.complete(low, low + more)
                        outcomes.append(half.completed())
                    case "gap":
                        half.gap(((low, low + more),))
                    case _:
                        half.command_point(low, 0)
            except errors.RemoteProtocolError as error:
                outcomes.append(str(error))
        assert all(outcome == outcomes[0] for outcome in outcomes)
        for name in ("next", "received", "mark", "incomplete", "due", "fresh"):
            assert getattr(halves[0], name) == getattr(halves[1], name), name
        assert halves[0].expected() == halves[1].expected()


def test_nothing_comes_together_before_the_command_point() -> None:
    half = ReceivingHalf()
    assert half.receive_run(2) is None


def test_gaps_that_were_announced_ahead_are_saved() -> None:
    """Numbers above what came count as complete; what comes before them is expected."""
    receiving = ReceivingHalf()
    receiving.command_point(0, 0)
    assert receiving.receive() == 0
    receiving.complete(0)
    receiving.gap(((3, 4), (7, 7)))
    loaded = ReceivingHalf.load(receiving.save())
    assert loaded.expected() == receiving.expected() == ((1, 1),)
    for half in (receiving, loaded):
        half.command_point(1, 0)
        assert [half.receive(), half.receive()] == [1, 2]
        half.complete(1, 2)
        assert half.expected() == ((5, 5),)
        half.command_point(5, 0)
        assert half.completed() == [((0, 4), (7, 7))]
