"""The log of a durable queue: what comes back after a stop, a kill, a power cut, a full disk, and damage."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.queue_log import segment
from harebell.broker.store.queue_log.cursor import QueueCursor
from harebell.broker.store.queue_log.log import RETIRED, QueueLog
from harebell.broker.store.queue_log.records import HEADER_BYTES, NUMBER_BYTES, NUMBERED, TRANSIENT, Stored
from tests.broker.store.faults import Disk, HandCommit
from tests.fixtures.profiles import scaled

PATH = "/data/q"


class Bench:
    """A log on a disk that may fail.

    `numbers` are what recovery found of sessions' commands; `needed`: whether any of them may be sent again.
    """

    needed = False

    def __init__(self, segment_bytes: int = 400) -> None:
        self.disk = Disk()
        self.segment_bytes = segment_bytes
        self.start()

    def start(self, *, suspect: bool = False) -> list[Stored]:
        self.commit = HandCommit(self.disk)
        self.log = QueueLog(PATH, self.commit, segment_bytes=self.segment_bytes, files=self.disk)
        self.numbers: list[list[bytes]] = []
        self.log.recover(suspect=suspect, note=self.note)
        return everything(self.log)

    def note(self, numbers: list[bytes]) -> bool:
        self.numbers.append(numbers)
        return self.needed

    def restart(self, *, needed: bool = False) -> list[Stored]:
        self.needed = needed
        self.disk.kill()
        return self.start()

    def fill(self, positions: Iterable[int], batch: int = 5, **keywords: Any) -> None:
        for number, position in enumerate(positions):
            self.log.append(position, b"address", b"frames of %d" % position, **keywords)
            if number % batch == batch - 1:
                self.log.flush()
        self.log.flush()

    def flush(self) -> None:
        self.log.flush()
        while self.log.unfinished:
            self.log.flush()

    def names(self, ending: str) -> list[str]:
        return sorted(name for name in self.disk.listdir(PATH) if name.endswith(ending))


def everything(log: QueueLog) -> list[Stored]:
    cursor = log.read(0)
    found: list[Stored] = []
    while records := cursor.read(5):
        found += records
    cursor.close()
    return found


def positions(records: Iterable[Stored]) -> list[int]:
    found = []
    for record in records:
        assert record.address == b"address"
        assert record.frames == b"frames of %d" % record.position
        found.append(record.position)
    return found


def backlog(log: QueueLog, start: int = 0) -> list[int]:
    cursor = log.read(start)
    found: list[int] = []
    while records := cursor.read(7):
        found += positions(records)
    cursor.close()
    return found


def fast(log: QueueLog, start: int = 0) -> list[tuple[int, bytes]]:
    """The same as a drain reads it: runs where there are any, with their frames."""
    cursor = log.read(start)
    found: list[tuple[int, bytes]] = []
    while True:
        first, addresses, frames = cursor.read_run(3, {b"address": "known"})
        assert addresses == ["known"] * len(frames)
        found += enumerate(frames, first)
        if not frames:
            records = cursor.read(1)
            if not records:
                break
            found += ((record.position, record.frames) for record in records)
    cursor.close()
    return found


def test_a_message_comes_back_as_it_was() -> None:
    bench = Bench()
    bench.log.append(7, b"\x01e\x01k", b"frames", expiry=1_900_000_000_000, marks=b"marks")
    assert bench.log.flush() == 1
    (record,) = bench.restart()
    assert record[:1] + record[2:] == (7, 1_900_000_000_000, 0, b"\x01e\x01k", b"marks", b"frames", False, 0)
    assert record.timestamp > 1_700_000_000_000
    assert (bench.log.next_position, bench.log.count, bench.log.cut, bench.log.damages) == (8, 1, 0, [])
    assert (bench.log.first, bench.log.expires) == (7, True)


def test_on_a_real_disk(tmp_path: Path) -> None:
    commit = GroupCommit(lambda call: call(), lambda: None, lambda error: None)
    log = QueueLog(tmp_path / "q", commit, segment_bytes=2000)
    log.recover()
    assert (log.count, log.first) == (0, 0)
    for position in range(200):
        log.append(position, b"address", b"frames of %d" % position)
        if position % 9 == 0:
            log.flush()
    log.flush()
    log.settle_many(range(50))
    log.settle_many([60, 62, 63])
    log.delivered(100)
    log.returned(61, 3)
    log.flush()
    log.close()
    commit.stop()
    left = [n for n in range(50, 200) if n not in (60, 62, 63)]
    log = QueueLog(tmp_path / "q", commit, segment_bytes=2000)
    log.recover()
    records = everything(log)
    assert log.first == 50
    assert positions(records) == left
    assert [record.position for record in records if record.delivered] == [n for n in left if n < 100]
    assert {record.position: record.delivery_count for record in records if record.delivery_count} == {61: 3}
    assert backlog(log) == left
    assert log.count == len(left)
    assert list(log.delete())
    assert not (tmp_path / "q").exists()
    commit.stop()


def test_acknowledgements_alone_ask_for_no_sync() -> None:
    bench = Bench()
    bench.fill(range(4))
    bench.commit.run()
    bench.log.settle(0, 3)
    bench.log.delivered(4)
    assert bench.log.flush() == 0
    bench.log.append(4, b"address", b"frames of 4", flags=TRANSIENT)
    assert bench.log.flush() == 0
    assert bench.commit._dirty == set()
    assert positions(bench.restart()) == [3]


def test_names_that_a_killed_process_made_are_synced_with_the_next_message() -> None:
    for seed in range(30):
        bench = Bench()
        bench.fill(range(2))
        assert positions(bench.restart()) == [0, 1]
        bench.fill([2])
        assert bench.commit.run()
        bench.disk.power_cut(Random(seed))
        assert positions(bench.start(suspect=True))[-1] == 2


def test_segments_go_when_they_are_settled_wherever_they_stand() -> None:
    bench = Bench()
    bench.fill(range(50))
    segments = bench.names(".log")
    assert len(segments) > 4
    middle = int(segments[2][:20])
    bench.log.settle(middle, int(segments[3][:20]) - middle)
    bench.log.flush()
    assert bench.names(".log") == segments[:2] + segments[3:]
    left = [n for n in range(50) if not middle <= n < int(segments[3][:20])]
    assert backlog(bench.log) == left
    assert positions(bench.restart()) == left


def test_settlements_of_segments_that_are_gone_go_too() -> None:
    bench = Bench()
    bench.fill(range(50))
    for position in range(49):
        bench.log.settle(position)
        bench.log.flush()
    assert len(bench.names(".settled")) > 4
    bench.log.sync_settled()
    bench.commit.run()
    bench.log.sync_settled()
    bench.log.settle(49)
    bench.log.close()
    bench.commit.run()
    assert bench.names(".log") == []
    assert bench.restart() == []
    assert bench.names("") == []


def test_positions_that_are_not_stored_hold_nothing_up() -> None:
    bench = Bench()
    bench.fill(range(0, 80, 2))
    count = len(bench.names(".log"))
    for position in range(0, 70, 2):
        bench.log.settle(position)
    bench.flush()
    assert len(bench.names(".log")) < count / 2
    assert bench.log.count == 5
    assert positions(bench.restart()) == [70, 72, 74, 76, 78]


def test_settling_twice_counts_once() -> None:
    bench = Bench()
    bench.fill(range(6))
    for _ in range(2):
        bench.log.settle_many([1, 2, 4])
        bench.log.flush()
    assert bench.log.count == 3


def test_transient_messages_end_with_the_process() -> None:
    bench = Bench()
    bench.fill(range(5))
    bench.fill(range(5, 10), flags=TRANSIENT)
    bench.fill(range(10, 12))
    assert backlog(bench.log) == list(range(12))
    assert positions(bench.restart()) == [0, 1, 2, 3, 4, 10, 11]
    assert backlog(bench.log) == [0, 1, 2, 3, 4, 10, 11]


def test_a_cursor_goes_on_with_what_comes() -> None:
    bench = Bench()
    cursor = bench.log.read(0)
    assert cursor.read(5) == []
    bench.fill(range(8))
    assert positions(cursor.read(100)) == list(range(8))
    assert cursor.read(5) == []
    bench.fill(range(12, 30))
    bench.log.settle(15, 10)  # not flushed, and passed all the same
    assert positions(cursor.read(100)) == [12, 13, 14, 25, 26, 27, 28, 29]
    bench.fill([31])
    assert positions(cursor.read(100)) == [31]
    assert backlog(bench.log, 27) == [27, 28, 29, 31]


def test_a_cursor_takes_no_more_than_its_limit() -> None:
    bench = Bench(segment_bytes=1 << 22)
    for position in range(20):
        bench.log.append(position, b"address", b"frames of %d" % position)
    bench.log.append(20, b"address", b"x" * 700_000)
    bench.log.append(21, b"address", b"x" * 700_000)
    bench.log.flush()
    cursor = bench.log.read(0)
    assert len(cursor.read(100, 200)) < 8
    found = 0
    while records := cursor.read(100, 300_000):
        assert sum(len(record.frames) for record in records) <= 1_000_000
        found = records[-1].position
    assert found == 21
    assert [len(record.frames) for record in bench.restart()[20:]] == [700_000, 700_000]


@pytest.mark.pure
def test_many_settlements_of_one_message_are_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.broker.store.queue_log.segment.COMPACT_BYTES", 2000)
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(20))
    bench.log.settle(3)
    bench.log.delivered(10)
    for count in range(1, 500):
        bench.log.returned(5, count)
        bench.log.flush()
    assert bench.log.size < 4000
    records = bench.restart()
    assert [record.position for record in records if record.delivered] == [0, 1, 2, *range(4, 10)]
    assert [record.delivery_count for record in records if record.position == 5] == [499]


def test_purge_and_go_on() -> None:
    bench = Bench()
    bench.fill(range(30))
    bench.log.settle(0, 30)
    bench.flush()
    assert (bench.log.count, bench.names(".log")) == (0, bench.names(".log")[-1:])
    bench.fill(range(30, 33))
    assert backlog(bench.log) == [30, 31, 32]
    assert positions(bench.restart()) == [30, 31, 32]


def test_one_flush_unlinks_a_few_segments_and_settles_the_others() -> None:
    bench = Bench()
    bench.fill(range(100))
    count = len(bench.names(".log"))
    bench.log.settle(0, 99)
    bench.log.flush()
    assert count - len(bench.names(".log")) == RETIRED
    assert positions(bench.restart()) == [99]
    bench.log.close()
    assert len(bench.names(".log")) == 1


def test_closing_unlinks_all_segments_that_are_left() -> None:
    bench = Bench()
    bench.fill(range(100))
    bench.log.settle(0, 100)
    bench.log.close()
    assert bench.names(".log") == []


def test_rest_closes_the_files() -> None:
    bench = Bench()
    bench.fill(range(3))
    bench.log.settle(0)
    bench.log.flush()
    bench.log.rest()
    bench.commit.run()
    assert bench.disk.open_files == 0
    bench.fill([3])
    assert positions(bench.restart()) == [1, 2, 3]


def test_a_newer_format_is_refused() -> None:
    bench = Bench()
    bench.fill(range(3))
    path = f"{PATH}/{0:020}.log"
    header = bytearray(bench.disk.file(path)[:HEADER_BYTES])
    from zlib import crc32

    header[5] = 2
    copy = bytes(header[: HEADER_BYTES // 2 - 4])
    bench.disk.spoil(path, 0, (copy + crc32(copy).to_bytes(4, "big")) * 2)
    with pytest.raises(OSError, match="store format 2, this version reads 1"):
        bench.restart()


# -- a full disk


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, 0])
def test_every_call_may_fail_and_be_tried_again(error: int) -> None:
    """Whatever fails, nothing that was not written is taken for written, and the next attempt goes on."""
    for after in range(60):
        bench = Bench()
        bench.disk.fail(after, error)
        done = 0
        for position in range(30):
            bench.log.append(position, b"address", b"frames of %d" % position)
            if position > 5:
                bench.log.settle(position - 4)
            with suppress(OSError):
                bench.log.flush()
                done = position + 1
        assert done == 30
        assert bench.log.flush() == 0
        left = [*range(2), *range(26, 30)]
        assert backlog(bench.log) == left
        assert positions(bench.restart()) == left
        assert bench.log.damages == []


def test_a_ticket_is_not_lost_when_what_follows_the_messages_fails() -> None:
    bench = Bench()
    bench.fill(range(3))
    bench.commit.run()
    bench.log.append(3, b"address", b"frames of 3")
    bench.log.settle(0)
    bench.disk.fail(1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        bench.log.flush()
    assert bench.log.flush() > bench.commit.synced


# -- what came and went in one batch, and what a drain reads


def test_what_is_settled_in_its_batch_is_not_written() -> None:
    bench = Bench()
    bench.fill(range(3))
    for position in range(3, 9):
        bench.log.append(position, b"address", b"frames of %d" % position)
    bench.log.settle(2, 3)
    bench.log.settle(8)
    bench.log.settle(6)
    assert bench.log.flush() == 1
    assert bench.log.count == 4
    written = b"".join(bytes(bench.disk.file(f"{PATH}/{name}")) for name in bench.names(".log"))
    assert [n for n in range(9) if b"frames of %d" % n in written] == [0, 1, 2, 5, 7]
    assert positions(bench.restart()) == [0, 1, 5, 7]


def test_a_batch_of_which_nothing_is_left_asks_for_no_sync() -> None:
    bench = Bench()
    bench.log.append(0, b"address", b"frames of 0")
    bench.log.settle(0)
    assert bench.log.flush() == 0
    bench.fill([1])
    assert positions(bench.restart()) == [1]


def test_what_may_be_written_already_is_written_whole() -> None:
    """The write failed: parts of it may be in the file, and only the same bytes are sure to cover them."""
    bench = Bench(segment_bytes=1 << 20)
    bench.fill([0])
    for position in range(1, 9):
        bench.log.append(position, b"address", b"frames of %d" % position)
    bench.disk.fail(0, 0)  # the first half is written
    bench.disk.fail(1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        bench.log.flush()
    bench.log.settle(2, 7)
    bench.log.flush()
    assert bench.log.count == 2
    written = bytes(bench.disk.file(f"{PATH}/{0:020}.log"))
    assert [n for n in range(9) if b"frames of %d" % n in written] == list(range(9))
    assert positions(bench.restart()) == [0, 1]
    assert (bench.log.cut, bench.log.damages) == (0, [])


# -- messages that sessions sent


def number(position: int) -> bytes:
    return b"%0*d" % (NUMBER_BYTES, position)


def numbered(bench: Bench, first: int, end: int) -> None:
    for position in range(first, end):
        bench.log.append(
            position, b"address", b"frames of %d" % position, flags=NUMBERED, marks=number(position) + b"more"
        )


def test_numbers_are_found_whatever_became_of_the_messages() -> None:
    bench = Bench(segment_bytes=600)
    bench.fill(range(3))
    numbered(bench, 3, 12)
    bench.log.settle(4, 5)  # in the batch in which they came
    assert bench.log.flush() == 1
    bench.fill(range(12, 14))
    numbered(bench, 14, 16)
    bench.log.flush()
    bench.log.settle(3)
    bench.log.flush()
    records = bench.restart()
    assert [each for part in bench.numbers for each in part] == [number(n) for n in (*range(3, 12), 14, 15)]
    assert positions(records) == [0, 1, 2, *range(9, 16)]
    assert [record.marks for record in records if record.flags] == [
        number(n) + b"more" for n in (*range(9, 12), 14, 15)
    ]
    assert [at for at, _ in fast(bench.log)] == positions(records)


def test_a_segment_with_numbers_stays_until_they_are_in_positions_on_disk() -> None:
    bench = Bench()
    numbered(bench, 0, 6)
    ticket = bench.log.flush()
    bench.fill(range(6, 20))
    names = bench.names(".log")
    bench.log.settle(0, 20)
    bench.flush()
    assert bench.names(".log") == [names[0], names[-1]]  # the last one is being written
    assert bench.log.count == 0
    bench.commit.covered = ticket - 1
    bench.log.flush()
    assert bench.names(".log") == [names[0], names[-1]]
    assert positions(bench.restart(needed=True)) == []
    assert bench.numbers == [[number(n) for n in range(6)]]
    bench.commit.covered = 1_000_000
    bench.log.rest()
    assert bench.names(".log")[0] == names[0]  # what was found at a start stays until the next
    assert positions(bench.restart()) == []
    assert bench.names(".log") == []


@pytest.mark.parametrize("end", ["flush", "close", "rest"])
def test_a_held_segment_goes_in_the_end(end: str) -> None:
    bench = Bench()
    numbered(bench, 0, 6)
    ticket = bench.log.flush()
    bench.fill(range(6, 20))
    bench.log.settle(0, 20)
    bench.flush()
    first = bench.names(".log")[0]
    bench.commit.covered = ticket
    getattr(bench.log, end)()
    assert first not in bench.names(".log")
    bench.fill([20])
    assert positions(bench.restart()) == [20]


def test_numbered_messages_are_read_in_runs() -> None:
    bench = Bench(segment_bytes=1 << 20)
    for position in range(60):
        bench.log.append(position, b"a", b"%06d" % position, flags=NUMBERED, marks=number(position))
    bench.log.flush()
    first, addresses, frames = bench.log.read(10).read_run(100, {b"a": 1})
    assert (first, addresses, frames) == (10, [1] * 50, [b"%06d" % n for n in range(10, 60)])


def test_a_mark_for_what_is_not_written_yet_is_kept() -> None:
    """Who reads in the middle of a batch has what was settled looked at, and the rest has to wait."""
    bench = Bench()
    bench.fill(range(3))
    bench.log.append(3, b"address", b"frames of 3")
    bench.log.settle(0)
    bench.log.delivered(4)
    assert backlog(bench.log) == [1, 2]
    bench.log.flush()
    assert [record.delivered for record in bench.restart()] == [True] * 3


def test_a_drain_finds_damage_and_goes_on_behind_it() -> None:
    bench = Bench(segment_bytes=1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "INDEX_BYTES", 150)
        bench.fill(range(20), batch=2)
        assert [position for position, _ in fast(bench.log)] == list(range(20))
        path = f"{PATH}/{0:020}.log"
        at = bytes(bench.disk.file(path)).index(b"frames of 7")
        bench.disk.spoil(path, at, b"F")
        assert [position for position, _ in fast(bench.log)] == [n for n in range(20) if n != 7]
        (damage,) = bench.log.damages
        assert damage.positions == (7, 8)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_drain_takes_runs(restarted: bool) -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(10))
    bench.log.append(10, b"address", b"frames of 10", marks=b"marks")
    bench.log.append(11, b"address", b"frames of 11", expiry=1_900_000_000_000)
    bench.fill(range(12, 20))
    bench.log.delivered(3)
    bench.log.settle(5)
    bench.log.flush()
    if restarted:
        bench.restart()
    cursor = bench.log.read(1)
    runs: list[tuple[int, int]] = []
    while True:
        first, addresses, frames = cursor.read_run(6, {b"address": 1})
        assert frames == [b"frames of %d" % n for n in range(first, first + len(addresses))]
        runs.append((first, len(frames)))
        if not frames and not cursor.read(1):
            break
    assert runs == [(1, 0), (2, 0), (3, 2), (6, 4), (10, 0), (11, 0), (12, 6), (18, 2), (20, 0)]


@settings(max_examples=scaled(60))
@given(
    stretches=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 3), st.sampled_from([b"a", b"b", b"longer"]), st.booleans()),
        max_size=12,
    ),
    count=st.integers(1, 100),
)
def test_runs_of_any_lengths_and_addresses(stretches: list[tuple[int, int, bytes, bool]], count: int) -> None:
    """Many messages of one length are taken apart in another way than those whose lengths vary."""
    bench, expected, position = Bench(segment_bytes=1 << 20), [], 0
    for messages, length, address, gap in stretches:
        position += gap
        for _ in range(messages):
            frames = b"%06d" % position + b"x" * length
            bench.log.append(position, address, frames)
            expected.append((position, address, frames))
            position += 1
    bench.log.flush()
    cursor = bench.log.read(0)
    found: list[Any] = []
    names = {b"a": b"a", b"b": b"b", b"longer": b"longer"}
    while (run := cursor.read_run(count, names))[1]:
        first, addresses, columns = run
        found += zip(range(first, first + len(columns)), addresses, columns, strict=True)
    assert found == expected


@pytest.mark.pure
def test_a_drain_passes_what_is_settled_at_the_end_of_a_chunk() -> None:
    bench = Bench(segment_bytes=1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "INDEX_BYTES", 150)
        bench.fill(range(20), batch=5)
        bench.log.settle(3, 4)
        cursor = bench.log.read(0)
        runs = [cursor.read_run(9, {b"address": 1}) for _ in range(5)]
    assert [(first, len(frames)) for first, _, frames in runs] == [(0, 3), (7, 3), (10, 5), (15, 5), (20, 0)]


# -- damage


def spots(bench: Bench) -> list[tuple[str, int, int, int]]:
    """(file, start, end, position) of each record."""
    found = []
    for name in bench.names(".log"):
        data = bytes(bench.disk.file(f"{PATH}/{name}"))
        mark = data[16:20]
        starts = [at for at in range(HEADER_BYTES, len(data)) if data[at : at + 4] == mark]
        for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
            found.append((f"{PATH}/{name}", start, end, int.from_bytes(data[start + 12 : start + 20], "big")))
    return found


@pytest.mark.slow
@settings(max_examples=scaled(100))
@given(data=st.data(), settled=st.sets(st.integers(0, 29)), size=st.integers(1, 120), zero=st.booleans())
def test_damage_takes_no_other_record_with_it(data: st.DataObject, settled: set[int], size: int, zero: bool) -> None:
    bench = Bench()
    bench.fill(range(30))
    bench.log.settle_many(sorted(settled))
    bench.log.flush()
    places = spots(bench)
    if not places:
        return
    path, start, end, _ = data.draw(st.sampled_from(places))
    at = data.draw(st.integers(start, end - 1))
    size = min(size, len(bench.disk.file(path)) - at)
    old = bytes(bench.disk.file(path)[at : at + size])
    bench.disk.spoil(path, at, bytes(size) if zero else bytes(byte ^ 0x10 for byte in old))
    if bytes(bench.disk.file(path)[at : at + size]) == old:
        return
    hit = {where for file, first, last, where in places if file == path and first < at + size and last > at}
    alive = set(positions(bench.restart()))
    expected = {where for *_, where in places} - settled
    assert expected - hit <= alive <= expected
    missing = expected - alive
    told = {n for damage in bench.log.damages for n in range(*damage.positions)}
    if bench.log.cut:
        assert path == places[-1][0]
    else:
        assert missing <= told
        assert sum(damage.lost for damage in bench.log.damages) >= len(missing)
    assert backlog(bench.log) == sorted(alive)
    bench.fill(range(bench.log.next_position, bench.log.next_position + 3))
    assert len(bench.restart()) == len(alive) + 3


def test_a_damaged_last_record_of_a_segment_does_not_end_the_one_before_it() -> None:
    bench = Bench()
    bench.fill(range(30))
    path, start, _, last = [spot for spot in spots(bench) if spot[0].endswith(bench.names(".log")[1])][-1]
    bench.log.settle(0, last - 1)
    bench.log.flush()
    bench.disk.spoil(path, start + 20, b"\xff\xfe")
    left = [last - 1, *range(last + 1, 30)]
    for _ in range(3):
        assert positions(bench.restart()) == left
        assert backlog(bench.log) == left  # reads over the damage
        assert len(bench.log.damages) == 1
        bench.log.flush()
        assert bench.log.count == len(left)


def test_damage_that_a_reader_meets_first_is_told() -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(10))
    path, start, end, _ = spots(bench)[4]
    bench.disk.spoil(path, start + 30, b"\xff\xfe")
    assert backlog(bench.log) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert [tuple(damage) for damage in bench.log.damages] == [(path, start, end - start, (4, 5), 1)]
    assert bench.log.flush() == 0
    assert bench.log.count == 9


def test_a_body_that_looks_like_a_record_is_not_one() -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(3))
    path, start, end, _ = spots(bench)[1]
    forged = bytearray(bench.disk.file(path)[start:end])
    other = Bench(segment_bytes=1 << 20)
    other.log.append(0, b"address", bytes(forged))
    other.fill(range(1, 3))
    other.disk.spoil(f"{PATH}/{0:020}.log", HEADER_BYTES + 8, b"\xff\xff")
    assert positions(other.restart()) == [1, 2]


@pytest.mark.parametrize("lost", ["first copy", "both copies", "both copies, no settlements", "settlements"])
def test_a_damaged_header(lost: str) -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(10))
    if lost != "both copies, no settlements":
        bench.log.settle(2)
        bench.log.flush()
    ending = ".settled" if lost == "settlements" else ".log"
    bench.disk.spoil(f"{PATH}/{0:020}{ending}", 0, bytes(10 if lost == "first copy" else HEADER_BYTES))
    found = positions(bench.restart())
    if lost == "both copies, no settlements":
        assert found == []
        assert [damage.at for damage in bench.log.damages] == [0]
        bench.fill([bench.log.next_position])
        assert bench.log.count == 1
    else:
        assert found == [n for n in range(10) if n != 2]
        assert len(bench.log.damages) == (0 if lost == "first copy" else 1)
        bench.log.settle(3)
        bench.log.flush()
        assert 3 not in positions(bench.restart())


def test_a_damaged_settlement_brings_one_message_back() -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(6))
    for position in (1, 3, 5):
        bench.log.settle(position)
        bench.log.flush()
    bench.disk.spoil(f"{PATH}/{0:020}.settled", HEADER_BYTES + 24 + 20, b"\xff")
    assert positions(bench.restart()) == [0, 2, 3, 4]
    assert [damage.lost for damage in bench.log.damages] == [0]


def test_a_segment_cut_between_two_records_is_told() -> None:
    bench = Bench()
    bench.fill(range(50))
    names = bench.names(".log")
    path = f"{PATH}/{names[1]}"
    starts = [start for file, start, _, _ in spots(bench) if file == path]
    del bench.disk.file(path)[starts[-3] :]
    last = int(names[2][:20])
    assert positions(bench.restart()) == [n for n in range(50) if not last - 3 <= n < last]
    (damage,) = bench.log.damages
    assert (damage.path, damage.at, damage.positions, damage.lost) == (path, starts[-3], (last - 3, last), 3)


def test_a_segment_cut_in_the_middle_is_told() -> None:
    bench = Bench()
    bench.fill(range(50))
    names = bench.names(".log")
    data = bench.disk.file(f"{PATH}/{names[1]}")
    del data[len(data) - 30 :]
    last = int(names[2][:20]) - 1
    assert positions(bench.restart()) == [n for n in range(50) if n != last]
    assert sum(damage.lost for damage in bench.log.damages) == 1
    assert bench.log.damages[0].positions == (last, last + 1)


def test_a_torn_end_is_cut_at_any_byte() -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.fill(range(4))
    path = f"{PATH}/{0:020}.log"
    whole = bytes(bench.disk.file(path))
    ends = [end for _, _, end, _ in spots(bench)]
    for size in range(len(whole)):
        torn = Bench(segment_bytes=1 << 20)
        torn.disk.mkdir(PATH)
        torn.disk.open(path, os.O_CREAT)
        torn.disk.spoil(path, 0, whole[:size])
        assert positions(torn.restart()) == [n for n in range(4) if ends[n] <= size]
        assert torn.log.cut == size - max(
            [end for end in ends if end <= size], default=HEADER_BYTES if size >= HEADER_BYTES else 0
        )
        assert torn.log.damages == []
        torn.fill([4])
        assert positions(torn.restart())[-1] == 4
        assert torn.log.cut == 0


# -- a model: whatever happens, in whatever order

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.just("transient"), st.integers(1, 3)),
    st.tuples(st.just("settle"), st.integers(0, 1 << 16)),
    st.tuples(st.just("settle first"), st.integers(1, 20)),
    st.tuples(st.just("deliver"), st.integers(1, 10)),
    st.tuples(st.just("return"), st.integers(0, 1 << 16)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("sync settled"), st.just(0)),
    st.tuples(st.just("rest"), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 40)),
    st.tuples(st.just("read"), st.integers(0, 40)),
    st.tuples(st.just("purge"), st.just(0)),
    st.tuples(st.just("fault"), st.integers(0, 12)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("power cut"), st.integers(0, 1 << 16)),
    st.tuples(st.just("close"), st.just(0)),
)  # fmt: skip


class Model:
    """What the queue knows of its messages, against what the log brings back."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.position = 0
        self.buffered: dict[int, bytes] = {}
        self.written: dict[int, bytes] = {}
        self.perhaps: dict[int, bytes] = {}
        self.tickets: dict[int, int] = {}
        self.transient: set[int] = set()
        self.settled: set[int] = set()
        self.settled_written: set[int] = set()
        self.settled_tickets: dict[int, int] = {}
        self.watermark = self.watermark_written = self.may_be_delivered = 0
        self.counts: dict[int, int] = {}
        self.counts_written: dict[int, int] = {}
        self.tried: set[int] = set()

    def step(self, action: str, number: int) -> None:
        log, commit = self.bench.log, self.bench.commit
        match action:
            case "append" | "transient":
                for _ in range(number):
                    frames = b"%d" % self.position + b"x" * (self.position * 7 % 90)
                    log.append(self.position, b"address", frames, flags=action == "transient")
                    self.buffered[self.position] = frames
                    if action == "transient":
                        self.transient.add(self.position)
                    self.position += 1 + (number == 5)
            case "settle" if self.alive:
                self.settle([self.alive[number % len(self.alive)]])
            case "settle first" if self.alive:
                self.settle(self.alive[:number])
            case "deliver":
                self.watermark = min(self.position, self.watermark + number)
                self.may_be_delivered = max(self.may_be_delivered, self.watermark)
                log.delivered(self.watermark)
            case "return" if self.alive:
                position = self.alive[number % len(self.alive)]
                self.counts[position] = self.counts.get(position, 0) + 1
                log.returned(position, self.counts[position])
            case "flush":
                self.flush()
            case "sync":
                commit.run()
            case "sync settled":
                ticket = log.sync_settled()
                for position in self.settled_written:
                    self.settled_tickets.setdefault(position, ticket)
            case "rest":
                log.rest()
            case "read":
                self.read(fast=number % 2 == 0, count=number // 2 + 1)
            case "purge":
                self.flush()
                self.settled.update(self.written)
                log.settle(0, self.position)
                self.flush()
            case "fault":
                self.bench.disk.fail(number, (errno.ENOSPC, errno.EIO, 0)[number % 3])
            case "kill":
                self.recover(self.bench.restart(), power=False)
            case "power cut":
                self.bench.disk.power_cut(Random(number))
                self.recover(self.bench.start(suspect=True), power=True)
            case "close":
                self.flush()
                log.close()
                if commit.run():
                    self.bench.disk.power_cut(Random(number))
                    self.tickets = dict.fromkeys(self.written, 0)
                    self.recover(self.bench.start(), power=False)

    @property
    def alive(self) -> list[int]:
        return sorted(position for position in {**self.written, **self.buffered} if position not in self.settled)

    def read(self, *, fast: bool, count: int) -> None:
        """What a reader gets that goes on where it was."""
        if self.cursor is None:
            self.cursor = self.bench.log.read(0)
        began = self.cursor.position
        if fast:
            first, _, frames = self.cursor.read_run(count, {b"address": "known"})
            found = list(enumerate(frames, first))
        else:
            found = [(record.position, record.frames) for record in self.cursor.read(count)]
        left = [n for n in self.alive if n >= began and n in self.written]
        unsure = self.unsure - self.settled
        sure = [(n, frames) for n, frames in found if n not in unsure]
        assert sure == [(n, self.written[n]) for n in left[: len(sure)]]
        assert all(frames == self.buffered[n] for n, frames in found if n in unsure)
        if not fast and not unsure:
            assert len(found) == min(count, len(left))

    def settle(self, positions: list[int]) -> None:
        self.bench.log.settle_many(positions)
        self.settled.update(positions)

    @property
    def unsure(self) -> set[int]:
        """Messages that a flush which failed may have written before it did."""
        return self.buffered.keys() & self.tried

    def flush(self) -> None:
        self.tried = set(self.buffered)
        ticket = self.bench.log.flush()
        for position in self.buffered:
            self.tickets[position] = ticket
        if self.buffered.keys() - self.transient - self.settled:
            assert ticket > self.bench.commit.synced
        self.written |= self.buffered
        self.buffered = {}
        self.settled_written = set(self.settled)
        self.watermark_written = self.watermark
        self.counts_written = dict(self.counts)
        assert self.bench.log.count == len(self.alive)

    def recover(self, records: list[Stored], *, power: bool) -> None:
        log, synced = self.bench.log, 1 << 62
        known = {**self.perhaps, **self.written, **self.buffered}
        found = [record.position for record in records]
        assert found == sorted(set(found))
        for record in records:
            assert record.frames == known[record.position]
        back = set(found)
        assert not back & self.transient
        synced = self.last_synced if power else synced
        must = {n for n, ticket in self.tickets.items() if ticket <= synced} - self.transient - self.settled
        assert must <= back
        gone = self.settled_written if not power else {n for n, t in self.settled_tickets.items() if t <= synced}
        assert not gone & back
        if not power:
            assert self.power_was_cut or not log.damages
            for record in records:
                if record.position < self.watermark_written or record.position in self.counts_written:
                    assert record.delivered
                if record.position >= self.may_be_delivered and record.position not in self.counts:
                    assert not record.delivered
                assert self.counts_written.get(record.position, 0) <= record.delivery_count
        else:
            self.power_was_cut = True
            assert all(record.delivered for record in records)
        self.cursor = None
        assert fast(log) == [(record.position, record.frames) for record in records]
        assert log.count == len(records)
        assert log.first == min(back, default=log.next_position)
        self.position = max(log.next_position, self.position if not power else 0)
        self.written = {n: known[n] for n in found}
        self.perhaps = {} if power else known  # a power cut may bring back what was unlinked before
        self.buffered, self.transient, self.settled, self.settled_written = {}, set(), set(), set()
        self.tickets = dict.fromkeys(found, 1 << 61)  # on disk perhaps, but nobody was promised
        self.settled_tickets = {}
        if power:
            self.watermark_written = self.may_be_delivered = self.position
        self.watermark = self.watermark_written
        self.counts = {r.position: r.delivery_count for r in records if r.delivery_count}
        self.counts_written = dict(self.counts)

    last_synced = 0
    power_was_cut = False
    cursor: QueueCursor | None = None


@pytest.mark.slow
@settings(max_examples=scaled(300))
@given(st.lists(STEPS, max_size=60))
def test_the_log_against_a_model(steps: list[tuple[str, int]]) -> None:
    model = Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "INDEX_BYTES", 150)
        for action, number in [*steps, ("kill", 0)]:
            model.last_synced = model.bench.commit.synced
            with suppress(OSError) if action not in ("kill", "power cut") else nullcontext():
                model.step(action, number)
