"""The table of unsettled deliveries, against a naive model and by hand."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.client.core.unacked import Deliveries
from harebell.client.core.unconfirmed import Batch, Publishes


class Channel:
    """The table as a core uses it: deliveries in, acknowledgements out, losses between."""

    def __init__(self) -> None:
        self.table = Deliveries()
        self.sent: list[tuple[int, bool]] = []  # (wire tag, multiple)
        self.raised: errors.HarebellError | None = None

    def deliver(self, count: int = 1) -> None:
        for _ in range(count):
            self.table.last_tag += 1
            self.table.unacked.add(self.table.last_tag)

    def ack(self, tag: int, multiple: bool = False) -> errors.HarebellError | None:
        send, error = self.table.settle(tag, multiple)
        if send:
            self.sent.append((tag - self.table.offset if tag else 0, multiple))
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
    channel.table.lost([])
    channel.deliver(2)
    assert [channel.ack(tag) for tag in (4, 5)] == [None] * 2
    assert channel.sent == [(1, False), (2, False), (3, False), (1, False), (2, False)]


def test_single_and_multiple_acknowledgements_mixed_over_a_loss_are_told_exactly() -> None:
    channel = Channel()
    channel.deliver(5)
    assert channel.ack(2) is None
    assert channel.ack(4) is None
    channel.table.lost([])
    channel.deliver(3)  # 6, 7, 8
    assert channel.ack(7) is None
    assert orphans(channel.ack(8, multiple=True)) == (1, 5, 3, 6, 8, 2)  # 1, 3, 5 are gone; 6 and 8 went out
    assert channel.sent[-1] == (3, True)
    assert not channel.table.orphans
    assert not channel.table.unacked


def test_stale_acknowledgements_after_two_losses() -> None:
    channel = Channel()
    channel.deliver(2)
    channel.table.lost([])
    channel.deliver(2)
    channel.table.lost([])
    assert orphans(channel.ack(1)) == (1, 1, 1, 0, 0, 0)
    assert orphans(channel.ack(4, multiple=True)) == (2, 4, 3, 0, 0, 0)
    assert channel.sent == []


def test_a_delivery_that_was_settled_before_the_loss_is_not_an_orphan() -> None:
    channel = Channel()
    channel.deliver(3)
    assert channel.ack(3, multiple=True) is None
    channel.table.lost([])
    for multiple in (False, True):
        error = channel.ack(3, multiple)
        assert isinstance(error, errors.LocalProtocolError)
        assert "settle each delivery once" in str(error)


def test_tags_that_nobody_was_handed_are_given_again() -> None:
    channel = Channel()
    channel.deliver(5)
    channel.table.lost([4, 5])
    assert channel.table.orphans == {1, 2, 3}
    channel.deliver()
    assert channel.table.unacked == {4}
    assert channel.ack(4) is None
    assert channel.sent == [(1, False)]


def test_a_gap_in_what_was_handed_out_stays() -> None:
    channel = Channel()
    channel.deliver(3)
    channel.table.lost([1, 2])  # another consumer of the channel was handed 3
    assert channel.table.orphans == {3}
    channel.deliver()
    assert channel.table.unacked == {4}


def test_recover_invalidates_what_was_delivered() -> None:
    channel = Channel()
    channel.deliver(3)
    channel.table.invalidated([3])
    channel.deliver(1)  # 4: what comes again has new tags
    assert orphans(channel.ack(2)) == (2, 2, 1, 0, 0, 0)
    assert orphans(channel.ack(0, multiple=True)) == (1, 1, 1, 4, 4, 1)
    assert channel.sent == [(0, True)]


def test_an_unknown_tag_is_the_brokers_to_refuse() -> None:
    channel = Channel()
    channel.deliver(1)
    assert channel.ack(99) is None
    assert channel.ack(2**62, multiple=True) is None
    assert channel.sent == [(99, False), (2**62, True)]


def test_the_error_can_be_copied_and_reads_well() -> None:
    error = errors.AcknowledgeOrphans(1, 3, 4, 9, 2, 5)
    assert str(copy.copy(error)) == str(error) == "2 tags orphaned (1 - 3), 5 tags successfully acknowledged (4 - 9)"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 4), st.just(False)),
        st.tuples(st.just("ack"), st.integers(0, 25), st.booleans()),
        st.tuples(st.just("lose"), st.integers(0, 2), st.just(False)),
    ),
    max_size=30,
)


@given(steps)
def test_every_delivery_is_acknowledged_orphaned_or_waiting(steps: list[tuple[str, int, bool]]) -> None:
    channel = Channel()
    state: dict[int, str] = {}  # public tag -> waiting, acked, orphan, told
    for what, number, multiple in steps:
        table = channel.table
        if what == "deliver":
            for _ in range(number):
                channel.deliver()
                state[table.last_tag] = "waiting"
        elif what == "lose":
            waiting = sorted(tag for tag, s in state.items() if s == "waiting")
            unseen = [tag for tag in waiting[-number:] if number and tag > table.last_tag - number]
            table.lost(unseen)
            for tag in waiting:
                if tag in unseen:
                    del state[tag]
                else:
                    state[tag] = "orphan"
        else:
            up_to = number or table.last_tag
            covered = [t for t in state if t <= up_to] if multiple else [t for t in state if t == number]
            gone = [t for t in covered if state[t] == "orphan"]
            good = [t for t in covered if state[t] == "waiting"]
            before = len(channel.sent)
            error = channel.ack(number, multiple)
            if gone:
                expected = (min(gone), max(gone), len(gone), min(good, default=0), max(good, default=0), len(good))
                assert orphans(error) == expected
                assert len(channel.sent) - before == bool(good)
            for t in gone:
                state[t] = "told"
            for t in good:
                state[t] = "acked"
                assert len(channel.sent) == before + 1
        assert table.unacked == {t for t, s in state.items() if s == "waiting"}
        assert table.orphans == {t for t, s in state.items() if s == "orphan"}


def test_publish_tags_go_on_over_a_loss() -> None:
    publishes, batch = Publishes(), Batch()
    publishes.confirming = True
    for _ in range(3):
        publishes.add(batch, b"", b"", b"", False)
    publishes.settle(1, False, True)
    publishes.orphan()
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
