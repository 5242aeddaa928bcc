"""Pieces of a batch, and their CRC-32s put together."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from zlib import crc32

import pytest
from hypothesis import given, strategies as st

from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.queue_log import log
from harebell.broker.store.queue_log.pieces import Piece, combined
from tests.broker.store.faults import HandCommit
from tests.broker.store.held_syncs import PATIENCE
from tests.broker.store.queue_log import test_log as log_tests


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_checks_are_those_of_the_whole(first: bytes, second: bytes, seed: int) -> None:
    before, whole = crc32(first, seed), crc32(first + second, seed)
    assert combined(before, crc32(second), len(second)) == whole
    for piece in (Piece.of(second), Piece(second, crc32(second))):
        assert piece.continued(before) == whole


def test_a_long_piece() -> None:
    data = os.urandom(1 << 20) * 5
    assert combined(crc32(b"a"), crc32(data), len(data)) == crc32(b"a" + data)


@pytest.mark.repeats
@pytest.mark.parametrize(
    "run",
    [
        log_tests.test_the_log_against_a_model,
        log_tests.test_a_torn_end_is_cut_at_any_byte,
        lambda: log_tests.test_every_call_may_fail_and_be_tried_again(errno.ENOSPC),
        log_tests.test_a_drain_finds_damage_and_goes_on_behind_it,
        log_tests.test_a_cursor_goes_on_with_what_comes,
    ],
    ids=["the model", "a torn end", "a full disk", "damage", "a cursor"],
)
def test_a_log_of_large_messages(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the log, where each message is a piece of its own."""
    monkeypatch.setattr(log, "LARGE", 1)
    run()


def test_small_and_large_messages_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LARGE", 50)
    bench = log_tests.Bench(segment_bytes=10_000)
    sizes = [1, 60, 2, 3, 49, 50, 51, 0, 300, 1]
    for start in (0, 10):
        for position, size in enumerate(sizes, start):
            bench.log.append(position, b"a", b"%03d" % position + b"x" * size)
        bench.log.flush()
    expected = [b"%03d" % (start + at) + b"x" * size for start in (0, 10) for at, size in enumerate(sizes)]
    assert [each.frames for each in log_tests.everything(bench.log)] == expected
    assert [each.frames for each in bench.restart()] == expected
    assert bench.log.damages == []


@pytest.mark.parametrize(
    "run",
    [
        log_tests.test_a_message_comes_back_as_it_was,
        log_tests.test_a_torn_end_is_cut_at_any_byte,
        log_tests.test_a_drain_finds_damage_and_goes_on_behind_it,
        log_tests.test_a_cursor_goes_on_with_what_comes,
        log_tests.test_a_cursor_takes_no_more_than_its_limit,
        log_tests.test_purge_and_go_on,
        log_tests.test_rest_closes_the_files,
    ],
)
def test_a_log_that_another_thread_writes(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the log, where each message is so large that the group commit writes it, soon."""

    def write_soon(commit: HandCommit, fd: int, write: Callable[[], None]) -> int:
        ticket = GroupCommit.write(commit, fd, write)
        commit.wait_written()
        return ticket

    monkeypatch.setattr(HandCommit, "write", write_soon)
    monkeypatch.setattr(log, "LARGE", 1)
    monkeypatch.setattr(log, "LATE", 1)
    run()


def late_bench(monkeypatch: pytest.MonkeyPatch) -> log_tests.Bench:
    monkeypatch.setattr(log, "LARGE", 50)
    monkeypatch.setattr(log, "LATE", 100)
    return log_tests.Bench(segment_bytes=10_000)


def late(position: int) -> bytes:
    return b"%03d" % position + b"x" * (200 if position % 3 == 1 else 60 if position % 3 else 10)


def test_what_follows_a_late_batch_is_written_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = late_bench(monkeypatch)
    tickets = []
    for position in range(7):
        bench.log.append(position, b"a", late(position))
        tickets.append(bench.log.flush())
    assert tickets == sorted(tickets)
    bench.commit.run()
    assert bench.commit.synced >= tickets[-1]
    bench.log.append(7, b"a", late(7))
    bench.log.flush()
    bench.commit.wait_written()
    bench.disk.kill()
    assert [each.frames for each in bench.start()] == [late(position) for position in range(8)]
    assert (bench.log.damages, bench.log.cut) == ([], 0)


@pytest.mark.pure
def test_a_kill_before_a_late_batch_is_written_leaves_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = late_bench(monkeypatch)
    for position in range(5):
        bench.log.append(position, b"a", late(position))
        bench.log.flush()
    assert [each.frames for each in bench.restart()] == [late(0)]
    assert bench.log.damages == []


def test_a_reader_waits_for_a_late_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = late_bench(monkeypatch)
    for position in range(5):
        bench.log.append(position, b"a", late(position))
        bench.log.flush()
    assert [each.frames for each in log_tests.everything(bench.log)] == [late(position) for position in range(5)]


def test_a_late_batch_of_a_log_that_is_deleted_or_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = late_bench(monkeypatch)
    bench.log.append(1, b"a", late(1))
    bench.log.flush()
    bench.log.settle(1)
    bench.log.flush()
    bench.log.close()
    bench.commit.run()
    assert bench.restart() == []
    bench.log.append(4, b"a", late(4))
    bench.log.flush()
    assert list(bench.log.delete())
    bench.commit.run()
    assert bench.disk.listdir("/data") == []


@pytest.mark.parametrize("sync", [True, False])
def test_late_batches_on_a_real_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sync: bool) -> None:
    monkeypatch.setattr(log, "LATE", 1 << 20)
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    failures: list[OSError] = []
    commit = GroupCommit(calls.put, lambda: None, failures.append, sync=sync)
    written = log.QueueLog(tmp_path / "q", commit)
    bodies = [bytes([number]) * size for number, size in enumerate((10, 3 << 20, 10, 9 << 20, 2 << 20, 5))]
    ticket = 0
    for position, frames in enumerate(bodies):
        written.append(position, b"a", frames)
        ticket = max(ticket, written.flush())
    while commit.synced < ticket:
        calls.get(timeout=PATIENCE)()
    assert [each.frames for each in log_tests.everything(written)] == bodies
    commit.stop()
    again = log.QueueLog(tmp_path / "q", commit)
    again.recover()
    assert [each.frames for each in log_tests.everything(again)] == bodies
    assert (again.damages, again.cut, failures) == ([], 0, [])
