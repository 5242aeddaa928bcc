"""Transfers that are gathered: what goes out, and what is noted, is what single ones would have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from harebell.broker.counts import ChannelCounts
from harebell.broker.message import Address, Message
from harebell.broker.queues.base import Queue
from harebell.broker.v010 import deliveries as deliveries_module, outbox as module
from harebell.broker.v010.delivered import Account, Origin, Taker
from harebell.broker.v010.deliveries import Deliveries
from harebell.broker.v010.messages import Outgoing
from harebell.broker.v010.outbox import BROWSING, IN_WINDOW, UNSETTLED, Outbox, Sent, SentTransfer
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v010.session import Session as State
from harebell.protocol.v091 import Content

KINDS = (UNSETTLED | IN_WINDOW, UNSETTLED, BROWSING, IN_WINDOW, 0)
GIVEN = Message(Address("", "q"), Content(1, b"", b"", 0))


class Subscriber:
    acked = 0
    cancelled = False

    def __init__(self, number: int, kind: int) -> None:
        self.kind = kind
        self.payload = b"transfer to %d" % number
        taker = cast("Taker", self)
        self.origin: Origin = (cast("Queue", f"queue {number}"), taker)
        self.account: Account = (taker, 0)
        self.again: Callable[[bytes], Sent] = lambda frames: SentTransfer(self.payload, frames)

    def completed(self, count: int, size: int, epoch: int) -> None:
        raise AssertionError("nothing is complete")


class FakeSession:
    """A session, and its connection, and the engine of that."""

    def __init__(self) -> None:
        self.connection = self.engine = cast("Any", self)
        self.number = 3
        self.outgoing = Outgoing()
        self.deliveries = Deliveries(ChannelCounts())
        self.state: State[Sent] = State(b"s")
        self.listens = True
        self.sent = b""
        self.output = self.reported = 0

    def send_pieces(self, pieces: tuple[bytes, ...]) -> None:
        self.sent += b"".join(pieces)

    def has_output(self, size: int) -> None:
        self.output += size

    def reports(self, number: int) -> None:
        assert number == self.number
        self.reported += 1


STEPS = st.one_of(
    st.tuples(st.just("one"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("one"), st.integers(0, 1), st.integers(0, 9)),
    st.tuples(st.just("some"), st.integers(0, 9), st.integers(1, 4)),
    st.tuples(st.just("counted"), st.integers(0, 9), st.integers(1, 4)),
    st.tuples(st.just("flush"), st.just(0), st.integers(0, 1)),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 6), st.integers(10, 200), st.booleans())
def test_together_as_one_by_one(steps: list[tuple[str, int, int]], most: int, size: int, listens: bool) -> None:
    session = FakeSession()
    session.listens = listens
    outbox = Outbox(session)
    subscribers = [Subscriber(number, KINDS[number % len(KINDS)]) for number in range(10)]
    sent: list[tuple[Subscriber, bytes, int, int]] = []  # with its place, and its cost
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_IN_RUN", most)
        patch.setattr(module, "MOST_BYTES", size)
        patch.setattr(module, "MOST_PREFIXES", 3)
        for kind, who, more in steps:
            subscriber, place = subscribers[who], len(sent)
            if kind == "one":
                sent.append((subscriber, b"m" * more, place, 0))
                outbox.add_one(subscriber, b"m" * more, place, GIVEN)
            elif kind == "flush":
                outbox.flush(written=bool(more))
                assert not outbox.frames
            else:
                frames = [b"%d" % (place + number) for number in range(more)]
                costs = list(map(len, frames)) if kind == "counted" else None
                for number, each in enumerate(frames):
                    sent.append((subscriber, each, place + number, len(each) if costs else 0))
                places = range(place, place + more)
                total = sum(map(len, frames))
                outbox.add(subscriber, list(frames), total, places, [GIVEN] * more, costs)
            assert outbox.size == sum(map(len, outbox.frames)) <= size + 9
            assert len(outbox.frames) <= max(most, 4)
            assert session.reported or not outbox.frames
        outbox.flush()
        outbox.flush()
    prefixes = {each: command_frames(3, each.payload, 65_535, content=True) for each in subscribers}
    assert session.sent == (b"".join(prefixes[by] + frames for by, frames, _, _ in sent) if listens else b"")
    kept = session.state.sending.unsafe()
    assert [(each.payload, each.frames) for each in kept if isinstance(each, SentTransfer)] == [
        (by.payload, frames) for by, frames, _, _ in sent
    ]
    assert session.state.sending.pending_bytes == sum(len(frames) for _, frames, _, _ in sent)
    deliveries = session.deliveries
    unsettled = {
        number: (*origin, position)
        for run in deliveries.unsettled
        for number, origin, position in zip(
            run.numbers(), run.origins or [run.origin] * run.left, run.positions, strict=True
        )
    }
    windows = {
        run.first + at: (account, 0 if run.costs is None else run.costs[at])
        for run in deliveries.windows
        for at, account in enumerate(run.accounts or [run.account] * run.left)
    }
    expected = list(enumerate(sent))
    assert unsettled == {n: (*by.origin, place) for n, (by, _, place, _) in expected if by.kind & UNSETTLED}
    assert deliveries.browsed == {n: (*by.origin, place) for n, (by, _, place, _) in expected if by.kind & BROWSING}
    assert windows == {n: (by.account, cost) for n, (by, _, _, cost) in expected if by.kind & IN_WINDOW}


def test_copies_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (module, deliveries_module):
        monkeypatch.setattr(where, "MOST_BROWSED", 3)
    session = FakeSession()
    outbox, browser = Outbox(session), Subscriber(0, BROWSING)
    for number in range(20):
        outbox.add_one(browser, b"m", number, None)
        outbox.flush()
        assert len(session.deliveries.browsed) <= 6
    assert [place for _, _, place in session.deliveries.browsed.values()][-1] == 19


def test_another_channel_has_other_frames() -> None:
    session = FakeSession()
    outbox, subscriber = Outbox(session), Subscriber(0, 0)
    for channel, largest in ((3, 65_535), (4, 65_535), (4, 20)):
        session.number, session.outgoing.channel, session.outgoing.largest = channel, channel, largest
        outbox.add(subscriber, [b"m"], 1, (0,), [GIVEN], None)
        session.sent = b""
        outbox.flush()
        assert session.sent == command_frames(channel, subscriber.payload, largest, content=True) + b"m"
