"""The sending half alone: what it keeps, what it sends again, what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol.v010 import sending as module
from harebell.protocol.v010.sending import SendingHalf
from harebell.protocol.v010.values import MAX_RANGES

WRAP = 1 << 32


def half(count: int, first: int = 0) -> SendingHalf[str]:
    sending: SendingHalf[str] = SendingHalf(first)
    for number in range(first, first + count):
        assert sending.send(f"#{number}", 10) == number
    return sending


@pytest.mark.parametrize("first", [0, WRAP - 3])
def test_completions_in_any_order(first: int) -> None:
    sending = half(6, first)
    serials = [(first + i) % WRAP for i in range(6)]
    assert sending.incomplete == 6
    assert sending.completed(((serials[2], serials[3]),)) == [(first + 2, first + 3)]
    assert sending.completed(((serials[1], serials[4]), (serials[2], serials[2]))) == [
        (first + 1, first + 1),
        (first + 4, first + 4),
    ]
    assert (sending.incomplete, sending.mark, sending.pending_bytes) == (2, first, 20)
    assert sending.known() == ((serials[1], serials[4]),)
    assert sending.completed(((serials[0], serials[0]),)) == [(first, first)]
    assert sending.completed(()) == []
    assert sending.known() == ((serials[0], serials[4]),)
    assert sending.unsafe() == [f"#{first + 5}"]
    assert half(0).known() == ()


def test_confirmed_commands_are_not_sent_again() -> None:
    sending = half(5)
    sending.confirmed(((1, 2),))
    sending.confirmed(((1, 2),))
    assert (sending.incomplete, sending.pending_bytes) == (5, 30)
    replay = sending.expected(((0, 0),))
    assert replay.gaps == [(1, 2)]
    assert replay.runs == [(0, ["#0"]), (3, ["#3", "#4"])]
    assert sending.completed(((0, 4),)) == [(0, 4)]


def test_what_is_sent_again() -> None:
    sending = half(5)
    assert sending.expected(((5, 5),)).runs == []
    assert sending.expected(((3, 3),)).runs == [(3, ["#3", "#4"])]
    assert sending.expected(((1, 1), (4, 4))).runs == [(1, ["#1"]), (4, ["#4"])]
    assert sending.expected(()).lost
    sending.completed(((0, 1),))
    replay = sending.expected(((0, 0),))
    assert (replay.gaps, replay.runs, replay.lost) == ([(0, 1)], [(2, ["#2", "#3", "#4"])], False)
    assert sending.expected(((WRAP - 3, WRAP - 3),)).gaps == [(-3, 1)]


def test_a_new_half_takes_the_number_that_is_expected() -> None:
    sending = half(0)
    replay = sending.expected(((7, 7), (100, 100)))
    assert (replay.runs, replay.lost, sending.next) == ([], False, 100)
    assert sending.send("a", 1) == 100
    assert sending.completed(((100, 100),)) == [(100, 100)]
    assert sending.completed(((1, 50),)) == []
    assert sending.successor().next == 101


@pytest.mark.parametrize("say", ["completed", "confirmed"])
def test_what_was_never_sent(say: str) -> None:
    sending = half(3)
    for ranges in (((3, 3),), ((0, 3),), ((5, 1000),)):
        with pytest.raises(errors.RemoteProtocolError, match=r"command \d+; the next to be sent is 3") as caught:
            getattr(sending, say)(ranges)
        assert (caught.value.reply_code, caught.value.scope) == (542, "channel")
    with pytest.raises(errors.RemoteProtocolError, match="run backwards"):
        getattr(sending, say)(((2, 1),))
    with pytest.raises(errors.RemoteProtocolError, match="expected names command 4"):
        sending.expected(((4, 4),))
    assert sending.incomplete == 3


def test_given_up_commands_are_a_gap() -> None:
    sending = half(5)
    sending.completed(((1, 1),))
    assert sending.abandon(0, 2) == [(0, 0), (2, 2)]
    assert sending.abandon(0, 2) == []
    assert sending.abandon(4, 99) == [(4, 4)]
    assert (sending.incomplete, sending.unsafe()) == (1, ["#3"])


def test_the_buffer_is_bounded() -> None:
    sending: SendingHalf[str] = SendingHalf(max_commands=2, max_bytes=100)
    sending.send("a", 1)
    assert sending.room
    sending.send("b", 1)
    assert not sending.room
    with pytest.raises(errors.LocalProtocolError, match=r"2 commands \(2 bytes\) are not complete"):
        sending.send("c", 1)
    sending.completed(((0, 1),))
    sending.send("d", 100)
    assert not sending.room
    with pytest.raises(errors.LocalProtocolError):
        sending.send("e", 1)


def test_when_to_ask() -> None:
    sending = half(module.FLUSH_COMMANDS - 1)
    assert not sending.flush_due
    sending.send("a", 1)
    assert sending.flush_due
    sending.flushed()
    assert not sending.flush_due
    sending.send("b", module.FLUSH_BYTES)
    assert sending.flush_due
    sending.completed(((0, 0),))
    assert not sending.flush_due


def test_hostile_sets_cost_what_they_change() -> None:
    sending = half(20_000)
    for _ in range(5):
        sending.completed(tuple((n, n) for n in range(1, 2 * MAX_RANGES, 2)))
        sending.completed(((1, 19_999), (1, 19_999)) * 100)
        sending.confirmed(((0, 19_999),) * 1000)
    assert sending.incomplete == 1
    assert sending.pending_bytes == 0


SENDS = st.tuples(st.just("send"), st.integers(1, 5), st.integers(0, 3))
SAYS = st.tuples(st.sampled_from(["completed", "confirmed", "expected"]), st.integers(0, 40), st.integers(0, 9))


@given(st.lists(st.one_of(SENDS, SAYS), max_size=40), st.integers(1, 6))
def test_commands_sent_together_are_kept_as_single_ones_are(steps: list[tuple[str, int, int]], most: int) -> None:
    alone: SendingHalf[str] = SendingHalf()
    together: SendingHalf[str] = SendingHalf()
    makes: list[Callable[[bytes], str]] = [lambda part: f"a{part.decode()}", lambda part: f"b{part.decode()}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_IN_RUN", most)
        for said, low, length in steps:
            if said == "send":
                parts = [b"%d" % number for number in range(alone.next, alone.next + low)]
                if length == 2:
                    for part in parts:
                        assert alone.send(f"c{part.decode()}", 3) == together.send(f"c{part.decode()}", 3)
                else:
                    ways = [makes[(number + length) % 2 if length == 3 else length] for number in range(low)]
                    firsts = [alone.send(make(part), len(part)) for make, part in zip(ways, parts, strict=True)]
                    size = sum(map(len, parts))
                    assert together.send_run(parts, size, ways[0], ways if length == 3 else None) == firsts[0]
            else:
                ranges = ((low, low + length),)
                if said == "expected":
                    ranges = ((min(low, alone.next), min(low, alone.next)),)
                elif low + length >= alone.next:
                    continue
                mine, other = getattr(alone, said)(ranges), getattr(together, said)(ranges)
                if said == "expected":
                    assert (mine.runs, mine.gaps, mine.lost) == (other.runs, other.gaps, other.lost)
                else:
                    assert mine == other
            for name in ("next", "pending_bytes", "incomplete", "mark", "room", "flush_due"):
                assert getattr(alone, name) == getattr(together, name), name
            assert alone.unsafe() == together.unsafe()
            assert [item for item in alone.unsafe_singles() if item[0] == "c"] == together.unsafe_singles()


def test_there_is_room_for_a_run_or_there_is_none() -> None:
    sending: SendingHalf[str] = SendingHalf(max_commands=3)
    sending.send("a", 1)
    with pytest.raises(errors.LocalProtocolError, match="1 commands"):
        sending.send_run([b"1", b"2", b"3"], 3, bytes.decode)
    assert sending.send_run([b"1", b"2"], 2, bytes.decode) == 1
    assert not sending.room


def test_a_run_is_completed_in_parts_or_whole() -> None:
    sending: SendingHalf[str] = SendingHalf()
    sending.send_run([b"1", b"22", b"333"], 6, bytes.decode)
    sending.completed(((1, 1),))
    assert (sending.pending_bytes, sending.unsafe()) == (4, ["1", "333"])
    sending.completed(((0, 2),))
    assert (sending.pending_bytes, sending.unsafe()) == (0, [])
    sending.send_run([b"4", b"5"], 2, bytes.decode)
    sending.completed(((3, 4),))
    assert (sending.pending_bytes, sending.unsafe(), sending.room) == (0, [], True)


def test_runs_with_one_maker_and_with_several() -> None:
    makers: list[Callable[[bytes], str]] = [lambda part: part.decode(), lambda part: part.hex()]
    sending: SendingHalf[str] = SendingHalf()
    one, other = makers
    for ways in ([one], [one], [other], [one, other], [one], [other, one]):
        sending.send_run([b"1"] * len(ways), len(ways), ways[0], ways if len(ways) > 1 else None)
    assert sending.unsafe() == ["1", "1", "31", "1", "31", "1", "31", "1"]
    sending = SendingHalf()
    sending.send_run([b"1"], 1, one)
    sending.send_run([b"1", b"1"], 2, one, [one, other])
    assert sending.unsafe() == ["1", "1", "31"]
