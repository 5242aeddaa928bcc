"""The segment log: offsets, roll-over, seeking, and what recovery cuts. What is damaged: test_log_damage."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.stream_log import log as log_module
from harebell.broker.store.stream_log.log import READ_BYTES, StreamCursor, StreamLog
from tests.broker.store.faults import Died, Disk, HandCommit
from tests.fixtures.profiles import scaled


def no_sync() -> GroupCommit:
    return GroupCommit(lambda call: call(), lambda: None, lambda error: None, sync=False)


def open_log(path: Path, segment_bytes: int = 1 << 20) -> StreamLog:
    log = StreamLog(path, no_sync(), segment_bytes=segment_bytes)
    log.advance()
    return log


def fill(log: StreamLog, count: int, *, size: int = 10, batch: int = 1, timestamp: int = 0) -> None:
    for number in range(count):
        frames = b"%d:" % log.next_offset, b"x" * size
        log.append(b"address", frames, timestamp + number if timestamp else None)
        if number % batch == batch - 1:
            log.flush()
    log.flush()
    log.advance()


def everything(cursor: StreamCursor) -> list[int]:
    """The offsets that a cursor gives, after checking that each record is the one of its offset."""
    offsets = []
    while records := cursor.read(7):
        for record in records:
            assert record.frames.startswith(b"%d:" % record.offset)
            assert record.address == b"address"
            offsets.append(record.offset)
    return offsets


def only_file(path: Path) -> Path:
    (file,) = path.glob("*.log")
    return file


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 20)
    assert (log.first, log.written, log.durable) == (0, 20, 20)
    assert everything(log.cursor(0)) == list(range(20))
    log.close()


@pytest.mark.parametrize("segment_bytes", [1, 300, 1 << 20])
def test_numbers_of_transactions(tmp_path: Path, segment_bytes: int) -> None:
    """They are found from any offset on, after a restart too, and readers do not see them."""
    log = open_log(tmp_path, segment_bytes)
    numbers = {offset: b"%016d" % offset for offset in range(60) if offset % 3}
    for offset in range(60):
        log.append(b"address", (b"%d:" % offset, b"x" * offset), number=numbers.get(offset, b""))
    log.flush()
    log.advance()
    for _ in range(2):
        for offset in range(62):
            assert everything(log.cursor(offset)) == list(range(offset, 60))
            assert [*log.numbers(offset)] == [number for at, number in numbers.items() if at >= offset]
        log.close()
        log = open_log(tmp_path, segment_bytes)
    log.close()


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_segments_roll_over(tmp_path: Path, batch: int) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    fill(log, 60, batch=batch)
    assert len(bases(log)) > 5
    assert bases(log)[0] == 0
    for offset in range(60):
        assert everything(log.cursor(offset)) == list(range(offset, 60))
    log.close()
    log = open_log(tmp_path, segment_bytes=300)
    assert (log.written, log.cut) == (60, 0)
    assert everything(log.cursor(0)) == list(range(60))
    fill(log, 3)
    assert everything(log.cursor(58)) == [58, 59, 60, 61, 62]
    log.close()


def test_the_index_finds_every_offset_of_a_large_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1 << 22)
    fill(log, 600, size=1000, batch=50)
    assert len(log._segments[0].index) > 5
    for offset in (0, 1, 64, 65, 66, 300, 599, 600):
        assert everything(log.cursor(offset)) == list(range(offset, 600))
    log.close()


def test_records_larger_than_a_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 4, size=700_000)
    assert everything(log.cursor(0)) == [0, 1, 2, 3]
    log.close()
    log = open_log(tmp_path)
    assert log.written == 4
    log.close()


def test_a_read_takes_no_more_than_a_share_of_large_records(tmp_path: Path) -> None:
    """A reader of a thousand messages of a megabyte has a few in memory."""
    log = open_log(tmp_path, segment_bytes=1 << 30)
    fill(log, 12, size=READ_BYTES // 3)
    cursor = log.cursor(0)
    shares = []
    while records := cursor.read(1000):
        shares.append(len(records))
    assert sum(shares) == 12
    assert max(shares) <= 4
    log.close()


def test_a_cursor_goes_on_with_what_comes(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    cursor = log.cursor(0)
    assert everything(cursor) == []
    fill(log, 5)
    assert everything(cursor) == [0, 1, 2, 3, 4]
    fill(log, 5)
    assert everything(cursor) == [5, 6, 7, 8, 9]
    log.close()


def test_a_cursor_waits_for_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    fill(log, 2)
    cursor = log.cursor(6)
    assert everything(cursor) == []
    fill(log, 3)
    assert everything(cursor) == []
    fill(log, 3)
    assert everything(cursor) == [6, 7]
    log.close()


def test_readers_see_only_what_is_durable(tmp_path: Path) -> None:
    calls: list[Callable[[], None]] = []
    commit = GroupCommit(calls.append, lambda: None, lambda error: None)
    log = StreamLog(tmp_path, commit)
    log.append(b"address", [b"0:"])
    assert log.flush() > 0
    log.advance()
    assert (log.written, log.durable) == (1, 0)
    assert everything(log.cursor(0)) == []
    commit.stop()
    for call in calls:
        call()
    assert log.advance()
    assert everything(log.cursor(0)) == [0]
    log.close()


def test_offsets_by_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3000)
    fill(log, 200, timestamp=1000)
    assert log.offset_at(0) == 0
    assert log.offset_at(1000) == 0
    for offset in (1, 50, 120, 199):
        assert log.offset_at(1000 + offset) == offset
    assert log.offset_at(1200) == 200
    log.close()


def test_offsets_by_time_in_an_empty_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_at(5) == 0
    log.close()


def test_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_record(tmp_path: Path) -> None:
    log = open_log(tmp_path / "whole")
    ends = [0]
    for _ in range(4):
        fill(log, 1)
        ends.append(only_file(log.path).stat().st_size)
    log.close()
    data = only_file(log.path).read_bytes()
    for size in range(len(data) + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / only_file(tmp_path / "whole").name).write_bytes(data[:size])
        log = open_log(folder)
        whole = max(n for n, end in enumerate(ends) if end <= size)
        assert (log.written, log.cut) == (whole, size - ends[whole])
        fill(log, 1)
        assert everything(log.cursor(0)) == list(range(whole + 1))
        log.close()


def test_garbage_behind_the_last_record_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    log.close()
    for garbage in (b"\0" * 40, b"\xff" * 40, os.urandom(100)):
        with only_file(tmp_path).open("ab") as file:
            file.write(garbage)
        log = open_log(tmp_path)
        assert (log.written, log.cut) == (3, len(garbage))
        log.close()


@settings(max_examples=scaled(30))
@given(sizes=st.lists(st.integers(0, 300), max_size=40), batch=st.integers(1, 7), segment=st.integers(50, 2000))
def test_any_log_comes_back(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], batch: int, segment: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    log = open_log(path, segment)
    for number, size in enumerate(sizes):
        log.append(b"address", [b"%d:" % log.next_offset + b"x" * size])
        if number % batch == 0:
            log.flush()
    log.close()
    log = open_log(path, segment)
    assert everything(log.cursor(0)) == list(range(len(sizes)))
    assert list(log.delete())
    assert not path.exists()


def bases(log: StreamLog) -> list[int]:
    return sorted(int(file.stem[:20]) for file in log.path.glob("*.log"))


def test_retention_by_size_drops_whole_segments_from_the_front(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    fill(log, 60)
    before = bases(log)
    sizes = [file.stat().st_size for file in sorted(tmp_path.glob("*.log"))]
    log.max_bytes = sum(sizes[3:])
    assert log.rolled
    assert log.retain(0)
    assert bases(log) == before[3:]
    assert (log.first, log.written, log.durable) == (before[3], 60, 60)
    assert not log.rolled
    assert not log.retain(0)
    log.max_bytes = 0
    assert log.retain(0)
    assert bases(log) == before[-1:]
    assert everything(log.cursor(0)) == list(range(before[-1], 60))
    fill(log, 1)
    log.close()
    log = open_log(tmp_path, segment_bytes=300)
    assert everything(log.cursor(0)) == list(range(before[-1], 61))
    log.close()


def test_retention_by_age_looks_at_the_last_record_of_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    fill(log, 60, timestamp=1000)
    second, third = bases(log)[1:3]
    log.close()
    log = open_log(tmp_path, segment_bytes=300)
    log.max_age = 50
    assert not log.retain(1000 + second - 1 + 50)
    assert log.retain(1000 + second + 50)
    assert log.first == second
    assert not log.retain(1000 + third - 1 + 50)
    assert log.retain(1_000_000)
    assert everything(log.cursor(0))[-1] == 59
    log.close()


def test_readers_whose_place_is_gone_go_on_at_the_first(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    fill(log, 60)
    begun, far = log.cursor(0), log.cursor(55)
    assert [record.offset for record in begun.read(3)] == [0, 1, 2]
    log.max_bytes = 600
    assert log.retain(0)
    assert log.first > 10
    assert everything(begun) == list(range(log.first, 60))
    assert everything(far) == list(range(55, 60))
    log.close()


def test_what_is_not_durable_is_not_dropped(tmp_path: Path) -> None:
    calls: list[Callable[[], None]] = []
    commit = GroupCommit(calls.append, lambda: None, lambda error: None)
    log = StreamLog(tmp_path, commit, segment_bytes=100)
    log.max_bytes = 0
    for _ in range(20):
        log.append(b"address", [b"x" * 30])
    log.flush()
    assert not log.retain(0)
    assert (log.first, log.rolled) == (0, True)
    commit.stop()
    for call in calls:
        call()
    log.advance()
    assert log.retain(0)
    assert bases(log) == [log.first] != [0]
    assert not log.rolled
    log.close()
    commit.stop()


def test_segments_of_no_size_hold_one_record_each(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=0)
    fill(log, 4)
    assert bases(log) == [0, 1, 2, 3]
    log.close()


STREAM = Path("/data/stream")


def on_disk(disk: Disk) -> tuple[StreamLog, HandCommit]:
    commit = HandCommit(disk)
    return StreamLog(STREAM, commit, segment_bytes=60, files=disk), commit


def test_one_small_segment_is_begun_at_a_time() -> None:
    """Each one takes the thread that syncs two syncs, for which the confirms of other publishers wait."""
    log, commit = on_disk(Disk())
    for segments in range(2, 6):
        fill(log, 100)
        assert len(log._segments) == segments
        assert commit.run()
    log.advance()
    assert everything(log.cursor(0)) == list(range(400))
    log.close()


def test_a_segment_does_not_grow_without_limit_while_the_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1000)
    log, commit = on_disk(Disk())
    fill(log, 100)
    assert 4 < len(log._segments) < 10
    assert commit.run()
    log.close()


@pytest.mark.parametrize("seed", range(5))
def test_what_a_recovered_log_shows_outlives_a_power_cut(seed: int) -> None:
    for after in range(30):  # the process dies within any call, and leaves what it has not synced
        disk = Disk()
        disk.die(after)
        with suppress(Died):
            log, _ = on_disk(disk)
            for _ in range(4):
                log.append(b"address", [b"%d:" % log.next_offset + b"x" * 20])
                log.flush()
        disk.kill()
        log, commit = on_disk(disk)
        disk.fsync(disk.open("/data", os.O_RDONLY))  # the name of the stream's folder: its maker's business
        shown = everything(log.cursor(0))
        log.append(b"address", [b"%d:" % log.next_offset])
        log.flush()
        assert commit.run()
        log.advance()
        disk.power_cut(Random(seed))
        log, _ = on_disk(disk)
        assert everything(log.cursor(0)) == [*shown, len(shown)]


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_leaves_no_gap_between_segments(seed: int) -> None:
    disk = Disk()
    log, _ = on_disk(disk)
    disk.fsync(disk.open("/data", os.O_RDONLY))
    for _ in range(10):
        log.append(b"address", [b"%d:" % log.next_offset + b"x" * 20])
    log.flush()
    disk.power_cut(Random(seed))
    log, _ = on_disk(disk)
    assert everything(log.cursor(0)) == list(range(log.written))


def test_a_new_segment_waits_for_the_one_before(tmp_path: Path) -> None:
    """On disk by a thread; what comes meanwhile is kept, is read once it is synced, and is there at the end."""
    calls: list[Callable[[], None]] = []
    commit = GroupCommit(calls.append, lambda: None, lambda error: None)
    log = StreamLog(tmp_path / "stream", commit, segment_bytes=100)
    for _ in range(60):
        log.append(b"address", [b"%d:" % log.next_offset + b"x" * 20])
        log.flush()
        while calls:
            calls.pop(0)()
        log.advance()
        assert everything(log.cursor(0)) == list(range(log.durable))
    log.close()
    assert not list((tmp_path / "stream").glob("*.next"))
    assert everything(open_log(tmp_path / "stream").cursor(0)) == list(range(60))
    commit.stop()


def test_an_unnamed_segment_is_nobodys(tmp_path: Path) -> None:
    log = open_log(tmp_path / "stream")
    fill(log, 3)
    log.close()
    (tmp_path / "stream" / "00000000000000000003-00000000.log.next").write_bytes(b"")
    log = open_log(tmp_path / "stream")
    assert log.next_offset == 3
    assert len(list((tmp_path / "stream").iterdir())) == 1


def test_a_log_is_deleted_with_whatever_stands_in_its_folder(tmp_path: Path) -> None:
    log = open_log(tmp_path / "stream")
    fill(log, 3)
    (tmp_path / "stream" / "left.bak").write_text("of somebody")
    assert list(log.delete())
    assert not list(tmp_path.iterdir())
