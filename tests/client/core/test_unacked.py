"""The table of unsettled deliveries, against a naive model and by hand."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.client.core import unacked
from harebell.client.core.unacked import Deliveries
from harebell.client.core.unconfirmed import Batch, Publishes


class Buffer(set[int]):
    """The tags that the program has not got yet."""

    def first(self) -> int:
        return min(self, default=0)


class Channel:
    """The table as a core uses it: deliveries in, acknowledgements out, losses between."""

    def __init__(self) -> None:
        self.table = Deliveries()
        self.buffer = Buffer()
        self.sent: list[tuple[int, bool]] = []  # (wire tag, multiple)

    def deliver(self, count: int = 1, *, seen: bool = True) -> None:
        for _ in range(count):
            self.table.last_tag += 1
            self.buffer.add(self.table.last_tag)
            if seen:
                self.take(self.table.last_tag)

    def take(self, tag: int) -> None:
        self.buffer.remove(tag)
        self.table.unacked.add(tag)

    def lose(self) -> None:
        self.table.lost(self.buffer)
        self.buffer.clear()

    def ack(self, tag: int, multiple: bool = False, how: str = "ack") -> errors.HarebellError | None:
        sent, error = self.table.settle(tag, multiple, how, self.buffer)
        self.sent += [(tag - self.table.offset, several) for tag, several in sent]
        return error


def orphans(error: errors.HarebellError | None) -> tuple[int, int, int, int, int, int]:
    assert isinstance(error, errors.AcknowledgeOrphans)
    return (
        error.first, error.last, error.orphan_count, error.success_first, error.success_last, error.success_count
    )  # fmt: skip


def test_wire_tags_begin_anew_and_public_tags_go_on() -> None:
    channel = Channel()
    channel.deliver(3)
    assert [channel.ack(tag) for tag in (1, 2, 3)] == [None] * 3
    channel.lose()
    channel.deliver(2)
    assert [channel.ack(tag) for tag in (4, 5)] == [None] * 2
    assert channel.sent == [(1, False), (2, False), (3, False), (1, False), (2, False)]


def test_single_and_multiple_acknowledgements_mixed_over_a_loss_are_told_exactly() -> None:
    channel = Channel()
    channel.deliver(5)
    assert channel.ack(2) is None
    assert channel.ack(4) is None
    channel.lose()
    channel.deliver(3)  # 6, 7, 8
    assert channel.ack(7) is None
    assert orphans(channel.ack(8, multiple=True)) == (1, 5, 3, 6, 8, 2)  # 1, 3, 5 are gone; 6 and 8 went out
    assert channel.sent[-1] == (3, True)
    assert not channel.table.orphans
    assert not channel.table.unacked


def test_stale_acknowledgements_after_two_losses() -> None:
    channel = Channel()
    channel.deliver(2)
    channel.lose()
    channel.deliver(2)
    channel.lose()
    assert orphans(channel.ack(1)) == (1, 1, 1, 0, 0, 0)
    assert orphans(channel.ack(4, multiple=True)) == (2, 4, 3, 0, 0, 0)
    assert channel.sent == []


def test_a_delivery_that_was_settled_before_the_loss_is_not_an_orphan() -> None:
    channel = Channel()
    channel.deliver(3)
    assert channel.ack(3, multiple=True) is None
    channel.lose()
    for multiple in (False, True):
        error = channel.ack(3, multiple)
        assert isinstance(error, errors.LocalProtocolError)
        assert "settle each delivery once" in str(error)


def test_tags_that_nobody_was_handed_are_given_again() -> None:
    channel = Channel()
    channel.deliver(3)
    channel.deliver(2, seen=False)
    channel.lose()
    assert channel.table.orphans == {1, 2, 3}
    channel.deliver()
    assert channel.table.unacked == {4}
    assert channel.ack(4) is None
    assert channel.sent == [(1, False)]


def test_a_gap_in_what_was_handed_out_stays() -> None:
    channel = Channel()
    channel.deliver(2, seen=False)
    channel.deliver()  # another consumer of the channel was handed 3
    channel.lose()
    assert channel.table.orphans == {3}
    channel.deliver()
    assert channel.table.unacked == {4}


def test_recover_invalidates_what_was_delivered() -> None:
    channel = Channel()
    channel.deliver(2)
    channel.deliver(seen=False)
    channel.table.invalidated(channel.buffer)
    channel.buffer.clear()
    channel.deliver(1)  # 4: what comes again has new tags
    assert orphans(channel.ack(2)) == (2, 2, 1, 0, 0, 0)
    assert orphans(channel.ack(0, multiple=True)) == (1, 1, 1, 4, 4, 1)
    assert channel.sent == [(4, True)]


@pytest.mark.parametrize("how", ["ack", "nack(requeue=True)"])
def test_multiple_leaves_out_what_the_program_has_not_got(how: str) -> None:
    channel = Channel()
    channel.deliver(6, seen=False)
    for tag in (1, 2, 4, 6):
        channel.take(tag)
    assert channel.ack(6, True, how) is None
    assert channel.sent == [(2, True), (4, False), (6, False)]
    assert channel.table.unacked == set()
    for tag in (3, 5):
        channel.take(tag)
    assert channel.ack(5, True, how) is None
    assert channel.sent[3:] == [(5, True)]


def test_all_is_what_the_program_has_got_and_not_what_is_on_its_way() -> None:
    channel = Channel()
    assert channel.ack(0, multiple=True) is None
    assert channel.sent == []
    channel.deliver(3)
    assert channel.ack(3) is None
    assert channel.ack(0, multiple=True) is None  # 3 is settled: the broker would refuse it
    assert channel.sent == [(3, False), (2, True)]


def refusal(error: errors.HarebellError | None) -> str:
    assert isinstance(error, errors.LocalProtocolError)
    return str(error)


def test_the_second_of_two_names_the_first() -> None:
    channel = Channel()
    channel.deliver(5)
    for tag, how in ((1, "ack"), (2, "reject(requeue=False)")):
        assert channel.ack(tag, how=how) is None
        assert f"nack(requeue=True) of delivery {tag}, which was settled before ({how}): settle each" in refusal(
            channel.ack(tag, how="nack(requeue=True)")
        )
    assert channel.ack(4, True, "nack(requeue=False)") is None
    assert "ack of delivery 3, which was settled before (nack(requeue=False))" in refusal(channel.ack(3))
    assert "ack of delivery 4, which was settled before (nack(requeue=False))" in refusal(channel.ack(4, True))
    assert channel.table.unacked == {5}
    assert len(channel.sent) == 3
    channel.lose()
    assert "settled before (reject(requeue=False)), on a connection that is gone" in refusal(channel.ack(2))


def test_refusals_are_remembered_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unacked, "MAX_REMEMBERED", 3)
    channel = Channel()
    channel.deliver(5)
    assert channel.ack(5, True, "nack(requeue=True)") is None
    assert "settled before (nack(requeue=True))" in refusal(channel.ack(3))
    assert "settled before: settle each" in refusal(channel.ack(2))


def test_what_never_came_is_refused_here() -> None:
    channel = Channel()
    channel.deliver(1)
    channel.deliver(1, seen=False)
    for tag, multiple in ((99, False), (2**62, True), (0, False)):
        assert "never came: the last delivery of this channel is 2" in refusal(channel.ack(tag, multiple))
    assert "in the buffer of a consumer" in refusal(channel.ack(2))
    assert channel.sent == []
    assert channel.table.unacked == {1}


def test_a_rollback_makes_it_unsettled_again() -> None:
    channel = Channel()
    channel.table.begin()
    channel.deliver(4)
    assert channel.ack(3, True) is None
    assert channel.ack(4, how="reject(requeue=False)") is None
    channel.table.rolled_back()
    assert channel.table.unacked == {1, 2, 3, 4}
    assert channel.ack(4, True) is None
    assert "settled before (ack)" in refusal(channel.ack(4))
    channel.lose()
    assert orphans(channel.ack(4, True)) == (1, 4, 4, 0, 0, 0)


def test_the_error_can_be_copied_and_reads_well() -> None:
    error = errors.AcknowledgeOrphans(1, 3, 4, 9, 2, 5)
    assert str(copy.copy(error)) == str(error) == "2 tags orphaned (1 - 3), 5 tags successfully acknowledged (4 - 9)"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("take"), st.integers(0, 9), st.just(False)),
        st.tuples(st.sampled_from(["ack", "nack(requeue=True)"]), st.integers(0, 25), st.booleans()),
        st.tuples(st.just("lose"), st.just(0), st.just(False)),
    ),
    max_size=30,
)


@given(steps)
def test_every_delivery_is_acknowledged_orphaned_or_waiting(steps: list[tuple[str, int, bool]]) -> None:
    channel = Channel()
    table = channel.table
    state: dict[int, str] = {}  # public tag -> unseen, waiting, settled, orphan, told
    for what, number, flag in steps:
        if what == "deliver":
            for _ in range(number):
                channel.deliver(seen=flag)
                state[table.last_tag] = "waiting" if flag else "unseen"
        elif what == "take":
            if channel.buffer:
                tag = sorted(channel.buffer)[number % len(channel.buffer)]
                channel.take(tag)
                state[tag] = "waiting"
        elif what == "lose":
            channel.lose()
            for tag in [tag for tag, s in state.items() if s == "unseen"]:
                del state[tag]
            state = {tag: "orphan" if s == "waiting" else s for tag, s in state.items()}
        else:
            up_to = number or table.last_tag
            covered = [t for t in state if t <= up_to] if flag else [t for t in state if t == number]
            if flag and number > table.last_tag:
                covered = []
            gone = [t for t in covered if state[t] == "orphan"]
            good = [t for t in covered if state[t] == "waiting"]
            before, offset = len(channel.sent), table.offset
            error = channel.ack(number, flag, what)
            if gone:
                expected = (min(gone), max(gone), len(gone), min(good, default=0), max(good, default=0), len(good))
                assert orphans(error) == expected
            elif good or (flag and not number):
                assert error is None
            else:
                refusal(error)
            assert reached(channel.sent[before:], state, offset) == good
            for t in gone:
                state[t] = "told"
            for t in good:
                state[t] = "settled"
        assert table.unacked == {t for t, s in state.items() if s == "waiting"}
        assert table.orphans == {t for t, s in state.items() if s == "orphan"}


def reached(sent: list[tuple[int, bool]], state: dict[int, str], offset: int) -> list[int]:
    """The public tags that a broker settles by these: it refuses a tag that it does not know."""
    known = {tag for tag, s in state.items() if s in ("waiting", "unseen") and tag > offset}
    settled: list[int] = []
    for wire_tag, multiple in sent:
        tag = wire_tag + offset
        assert tag in known
        taken = {t for t in known if t <= tag} if multiple else {tag}
        known -= taken
        settled += taken
    return sorted(settled)


def test_publish_tags_go_on_over_a_loss() -> None:
    publishes, batch = Publishes(), Batch()
    batch.numbered(1, 0)
    publishes.confirming = True
    for _ in range(3):
        publishes.add(batch, b"", b"", b"", False)
    publishes.settle(1, False, True)
    publishes.end(errors.ConnectionLost("gone"))
    assert (batch.settled, batch.orphans, publishes.confirming) == (3, [2, 3], False)
    assert publishes.add(batch, b"", b"", b"", False) == 4
    assert publishes.add(batch, b"", b"", b"", False) == 5
    publishes.settle(2, True, True)  # the broker counts from 1 again
    assert (batch.settled, publishes.waiters) == (5, {})
    batch.sent = 5
    with pytest.raises(errors.PublishOrphaned, match="2 of 5") as caught:
        batch.raise_refused()
    assert isinstance(caught.value, errors.Nacked)
    assert caught.value.orphaned == (2, 3)
