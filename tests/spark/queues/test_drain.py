"""Drains of a fake queue: every step may be the last one before a crash, and the counts stay exact."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from harebell.client.servers import BrokerIdentity
from harebell.errors import DeadlineExceeded, InvalidArgument, NotFound, SpoolError
from harebell.protocol.v091 import Properties
from harebell.spark.options import SourceOptions, source_options
from harebell.spark.queues import drain as drain_module
from harebell.spark.queues.drain import Limit, drain
from harebell.spark.queues.segments import read_segment
from harebell.spark.queues.spool import Spool, Ticket
from tests.fixtures.profiles import scaled
from tests.spark.fakes import FakeQueue

STEPS = ("received", "writing", "written", "linked", "acked", "handed", "marked")


class Crash(BaseException):
    """The process is gone: nothing after this line runs, and the broker notices the closed connections."""


def bodies(count: int) -> list[bytes]:
    return [b"%05d" % n for n in range(count)]


class Bench:
    """One spool folder and one fake queue, drained with a window of 4: segments of 2."""

    def __init__(self, folder: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
        monkeypatch.setattr(drain_module, "Link", queue.link)
        self.queue = queue
        self.options: SourceOptions = source_options(
            {"queue": "q", "spool": str(folder), "prefetch": "4", "readTimeout": "0.05", "retryTimeout": "0", **more},
            streaming=False,
        )
        self.spool = Spool(folder, "/", "q")

    def ticket(self, name: str) -> Ticket:
        return self.spool.ticket(name)

    def read(
        self,
        name: str,
        limit: int | None = None,
        part: int = 0,
        step: Callable[[str, int], None] | None = None,
        size: int | None = None,
    ) -> list[bytes]:
        got: list[bytes] = []
        try:
            for batch in drain(
                self.options, self.ticket(name), part, Limit(limit, size), step or (lambda name, number: None)
            ):
                got += batch.column("body").to_pylist()
        except Crash:
            self.queue.drop_connections()
            raise
        return got


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    return lambda queue, **more: Bench(tmp_path, queue, monkeypatch, **more)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 11])
def test_a_drain_takes_everything_once_in_order(bench: Callable[..., Bench], count: int) -> None:
    work = bench(FakeQueue(bodies(count)))
    assert work.read("t") == bodies(count)
    assert work.queue.acked == bodies(count)
    assert not work.queue.ready


def test_reading_a_ticket_again_needs_no_broker(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    work = bench(FakeQueue(bodies(9)))
    first = work.read("t")
    work.queue.ready.append((b"later", False))
    monkeypatch.setattr(drain_module, "Link", None)
    assert work.read("t") == first


def test_a_drain_of_another_broker_is_not_gone_on_with(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(9)))
    work.ticket("t").claim(BrokerIdentity("rabbit@elsewhere"))
    with pytest.raises(InvalidArgument, match=r"the broker rabbit@elsewhere, and this one is rabbit@fake: .*--spool"):
        work.read("t")
    assert len(work.queue.ready) == 9
    assert work.read("another") == bodies(9)


@pytest.mark.parametrize("limit", [1, 4, 5, 7, 8])
def test_a_limit_is_exact_and_no_message_is_given_back(bench: Callable[..., Bench], limit: int) -> None:
    work = bench(FakeQueue(bodies(20)))
    assert work.read("t", limit) == bodies(limit)
    assert list(work.queue.ready) == [(body, False) for body in bodies(20)[limit:]]


def test_what_arrives_while_draining_waits_for_the_next_drain(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(6)))
    work.read("t", step=lambda step, number: work.queue.ready.append((b"new", False)))
    assert {body for body, _ in work.queue.ready} == {b"new"}
    assert work.queue.acked == bodies(6)


@pytest.mark.parametrize("number", [0, 1, 2, 4])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("same_ticket", [True, False])
def test_after_a_crash_at_any_step_nothing_is_lost_or_twice(
    bench: Callable[..., Bench], step: str, number: int, same_ticket: bool
) -> None:
    work = bench(FakeQueue(bodies(10)))

    def crash(name: str, at: int) -> None:
        if (name, at) == (step, number):
            raise Crash

    with pytest.raises(Crash):
        work.read("a", step=crash)
    # Either Spark runs the task again, or somebody else drains the queue first and the task is run again later.
    order = ("a", "b") if same_ticket else ("b", "a")
    got = [body for name in order for body in work.read(name)]
    assert sorted(got) == bodies(10)
    assert not work.queue.ready
    assert work.read("a") + work.read("b") == [body for name in ("a", "b") for body in work.read(name)]


@settings(max_examples=scaled(60))
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.booleans()), max_size=6))
def test_any_series_of_crashes_and_broker_restarts(
    tmp_path_factory: pytest.TempPathFactory,
    crashes: list[tuple[str, int, bool]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here
        work = Bench(tmp_path_factory.mktemp("spool"), FakeQueue(bodies(14)), monkeypatch)
        for step, number, broker_too in crashes:

            def crash(name: str, at: int, wanted: tuple[str, int] = (step, number)) -> None:
                if (name, at) == wanted:
                    raise Crash

            try:
                work.read("a", step=crash)
            except Crash:
                pass
            if broker_too:
                work.queue.forget_acks()
        got = work.read("a") + work.read("b")
        assert sorted(got) == bodies(14)


def test_acks_that_the_broker_forgot_are_not_reported_again(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(9)))
    work.read("a")
    work.queue.forget_acks()
    assert work.read("b") == []
    assert not work.queue.ready


def test_after_the_window_a_redelivered_message_is_a_new_one(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(2)), dedupWindow="0")
    work.read("a")
    for mark in work.ticket("a").folder.glob("*.acked"):
        old = time.time() - 10
        os.utime(mark, (old, old))
    work.queue.forget_acks()
    assert work.read("b") == bodies(2)


def test_equal_messages_stay_as_many_as_they_were(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue([b"same"] * 7, properties=lambda body: Properties()))

    def crash(name: str, at: int) -> None:
        if (name, at) == ("linked", 0):
            raise Crash

    with pytest.raises(Crash):
        work.read("a", step=crash)
    assert len(work.read("a")) + len(work.read("b")) == 7


def test_a_cut_connection_is_opened_again(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(10)), retryTimeout="5")
    work.queue.fail_receive_after = 2
    assert sorted(work.read("t")) == bodies(10)
    assert len(work.queue.links) == 2


def test_parts_share_the_queue(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(10)))
    got = work.read("t", 3, part=0) + work.read("t", 7, part=1)
    assert got == bodies(10)


def test_two_attempts_on_one_machine_take_turns(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(10)))
    first = drain(work.options, work.ticket("t"), 0, Limit())
    second = drain(work.options, work.ticket("t"), 0, Limit())
    # Pulled in turns, as a join of a DataFrame with itself may: the second follows what the first writes.
    pairs = [(a.column("body").to_pylist(), b.column("body").to_pylist()) for a, b in zip(first, second, strict=True)]
    assert all(a == b for a, b in pairs)
    assert [body for a, _ in pairs for body in a] == bodies(10)
    assert len(work.queue.links) == 1


def test_an_attempt_that_was_overtaken_reads_the_winners_segment(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harebell.spark.file_locks.fcntl", None)
    work = bench(FakeQueue(bodies(10)))
    overtaken = False

    def overtake(name: str, number: int) -> None:
        nonlocal overtaken
        if name == "written" and not overtaken:
            overtaken = True
            other = drain(work.options, work.ticket("t"), 0, Limit())
            assert [b for batch in other for b in batch.column("body").to_pylist()] == bodies(10)[4:]

    # The first attempt holds messages 0 to 3 while another one, on a machine that shares no lock, drains the rest.
    assert work.read("t", step=overtake) == bodies(10)[4:]
    assert work.read("next") == bodies(10)[:4]


def test_a_stream_queue_is_refused(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(1), properties=lambda body: Properties(headers={"x-stream-offset": 0})))
    with pytest.raises(InvalidArgument, match="set queueType=stream"):
        work.read("t")


def test_a_stream_queue_that_gives_nothing_is_refused_without_waiting(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = bench(FakeQueue(bodies(3)))
    monkeypatch.setattr("harebell.spark.queues.drain.probe_family", lambda *asked: "stream")
    monkeypatch.setattr("tests.spark.fakes.FakeClassicLink._deliver", lambda self: None)
    with pytest.raises(InvalidArgument, match="set queueType=stream"):
        work.read("t")


def test_a_queue_that_gives_nothing_is_an_error_after_the_read_timeout(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = bench(FakeQueue(bodies(3)))
    monkeypatch.setattr("harebell.spark.queues.drain.probe_family", lambda *asked: "spool")
    monkeypatch.setattr("tests.spark.fakes.FakeClassicLink._deliver", lambda self: None)
    with pytest.raises(DeadlineExceeded, match="single active consumer"):
        work.read("t")


# -- how much ------------------------------------------------------------------------------------------------------


def sized(count: int, size: int) -> list[bytes]:
    return [b"%05d" % n + bytes(size - 5) for n in range(count)]


def test_a_limit_in_bytes_ends_the_drain_soon_after(bench: Callable[..., Bench]) -> None:
    messages = sized(300, 1000)
    work = bench(FakeQueue(messages, properties=lambda body: Properties()), prefetch="20")
    assert work.read("a", 300, size=150_000) == messages[:150]
    assert list(work.queue.ready) == [(body, False) for body in messages[150:]]
    assert work.read("b", 150, size=10_000_000) == messages[150:]


def test_a_limit_in_bytes_is_met_when_messages_grow(bench: Callable[..., Bench]) -> None:
    messages = sized(100, 10) + sized(100, 10_000)
    work = bench(FakeQueue(messages, properties=lambda body: Properties()), prefetch="20")
    got = work.read("a", 200, size=21_000)
    assert 101 < len(got) <= 102 + 20  # what was on its way is taken, not given back
    assert not any(redelivered for _, redelivered in work.queue.ready)


def test_large_bodies_end_a_segment_earlier(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "SEGMENT_BYTES", 2000)
    messages = sized(9, 1000)
    work = bench(FakeQueue(messages, properties=lambda body: Properties()), prefetch="10")
    assert work.read("t") == messages
    assert [read_segment(path).num_rows for path in work.ticket("t").segments()] == [5, 4, 0]


@pytest.mark.parametrize(("size", "windows"), [(5, [10, 1000]), (1 << 20, [10, 64])])
def test_the_window_follows_the_size_of_messages(bench: Callable[..., Bench], size: int, windows: list[int]) -> None:
    messages = [bytes(size)] * (1500 if size == 5 else 100)
    work = bench(FakeQueue(messages, properties=lambda body: Properties()), prefetch="1000")
    assert len(work.read("t")) == len(messages)
    assert work.queue.windows[:2] == windows
    assert not any(redelivered for _, redelivered in work.queue.ready)
    assert len(work.queue.acked) == len(messages)


# -- alone ---------------------------------------------------------------------------------------------------------


def test_an_ordered_drain_is_refused_beside_other_consumers(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(5)), ordered="true")
    work.queue.others = 2
    with pytest.raises(InvalidArgument, match="queue 'q' has 2 other consumers, and with ordered=true"):
        work.read("t")
    work.queue.others = 0
    assert work.read("t") == bodies(5)


@pytest.mark.parametrize("single", [False, True])
def test_an_ordered_drain_consumes_alone(bench: Callable[..., Bench], single: bool) -> None:
    work = bench(FakeQueue(bodies(110)), ordered="true", prefetch="40")
    work.queue.refuses_exclusive = single  # as one with a single active consumer does
    assert work.read("t") == bodies(110)
    assert len(work.queue.windows) > 2  # one consumer after another, and nothing given back between them


def test_an_ordered_drain_goes_on_in_order_after_a_crash(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(11)), ordered="true")

    def crash(name: str, number: int) -> None:
        if (name, number) == ("linked", 2):
            raise Crash

    with pytest.raises(Crash):
        work.read("t", step=crash)
    assert work.read("t") == bodies(11)


# -- bad days ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["writing", "linked"])
def test_a_full_disk_acknowledges_nothing_that_is_not_on_it(bench: Callable[..., Bench], step: str) -> None:
    work = bench(FakeQueue(bodies(10)), retryTimeout="60")

    def full(name: str, number: int) -> None:
        if (name, number) == (step, 2):
            raise SpoolError("full") if step == "linked" else OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SpoolError):
        work.read("t", step=full)
    assert work.queue.acked == bodies(4)
    assert work.read("t") == bodies(10)
    assert work.read("next") == []


def test_a_damaged_segment_ends_the_read_with_its_name(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(6)))
    work.read("t")
    path = work.ticket("t").segment(0, 1)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SpoolError, match=r"-000001.arrow is damaged .* put the file back from a backup, or delete it"):
        work.read("t")
    path.unlink()
    work.queue.ready.append((b"new", False))
    assert work.read("t") == [*bodies(2), b"new", *bodies(6)[4:]]


def test_a_queue_that_was_deleted_meanwhile(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    work = bench(FakeQueue(bodies(8)))

    def delete(name: str, number: int) -> None:
        if (name, number) == ("acked", 1):
            monkeypatch.setattr("tests.spark.fakes.FakeClassicLink._deliver", missing)

    def missing(link: object) -> None:
        raise NotFound("no queue 'q' in vhost '/'")

    with pytest.raises(NotFound, match=r"no queue 'q' .*; 4 messages that this drain took from it are safe in .*/t:"):
        work.read("t", step=delete)


def test_two_drains_at_once_do_not_both_get_what_one_has_lost(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(4)), retryTimeout="5")
    other: list[bytes] = []

    def cut(name: str, number: int) -> None:
        # Written, not named yet: now the broker loses this connection, and another drain gets its messages.
        if (name, number) == ("written", 0) and not other:
            work.queue.drop_connections()
            other.extend(work.read("b"))

    assert work.read("a", step=cut) == []
    assert other == bodies(4)
    assert not work.queue.ready


def test_what_was_dropped_and_not_acknowledged_is_dropped_again(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(4)), retryTimeout="5")
    work.read("a")
    work.queue.forget_acks()
    cuts = 0

    def cut(name: str, number: int) -> None:
        nonlocal cuts
        if name == "linked" and cuts < 2:
            cuts += 1
            work.queue.drop_connections()  # before the acknowledgement

    assert work.read("b", step=cut) == []
    assert cuts == 2


def test_a_reader_that_has_enough_gives_the_rest_back(bench: Callable[..., Bench]) -> None:
    work = bench(FakeQueue(bodies(10)))
    with contextlib.closing(cast("Generator[Any]", drain(work.options, work.ticket("t"), 0, Limit()))) as reading:
        assert next(reading).column("body").to_pylist() == bodies(2)
    assert [path.suffix for path in sorted(work.ticket("t").folder.iterdir())] == [".acked", ".arrow", ".lock", ""]
    assert work.read("t") == bodies(10)
