"""Damage in a segment log: what it did not hit comes out at its offset, and what is lost is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.store import checksums
from harebell.broker.store.files import Damage
from harebell.broker.store.stream_log import records as log_records
from harebell.broker.store.stream_log.log import StreamCursor, StreamLog
from tests.broker.store.stream_log.test_log import everything, fill, only_file, open_log
from tests.fixtures.profiles import scaled


def spoil(file: Path, at: int, *, mask: int = 0x10) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= mask
    with file.open("r+b") as opened:  # the same file: it may be open
        opened.write(data)


def old_record(offset: int, frames: bytes, timestamp: int = 1000) -> bytes:
    """As versions before wrote it: the checksum without a seed, no mark."""
    rest = pack(">QH", timestamp, 7) + b"address" + b"%d:" % offset + frames
    return pack(">II", len(rest), crc32(rest)) + rest


def found(cursor: StreamCursor) -> list[tuple[int, int]]:
    """Each offset, and the number that its record says."""
    pairs = []
    while records := cursor.read(3):
        pairs += [(record.offset, int(record.frames.split(b":")[0])) for record in records]
    return pairs


def starts(data: bytes) -> list[int]:
    """Where the records of a whole segment begin, and where the last one ends."""
    places = [0]
    while places[-1] < len(data):
        places.append(places[-1] + 8 + int.from_bytes(data[places[-1] : places[-1] + 4], "big"))
    return places


def test_any_flipped_bit_costs_its_record_only(tmp_path: Path) -> None:
    log = open_log(tmp_path / "whole")
    fill(log, 4)
    log.close()
    file = only_file(log.path)
    data = file.read_bytes()
    record = len(data) // 4
    for at in range(record, 2 * record):  # every byte of the second record
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / file.name).write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        for _ in range(2):
            log = open_log(folder)
            assert (log.first, log.durable, log.cut) == (0, 4, 0)
            assert log.damages == [Damage(str(folder / file.name), record, record, (1, 2), 1)]
            assert everything(log.cursor(0)) == [0, 2, 3]
            assert everything(log.cursor(1)) == [2, 3]
            log.close()
        log = open_log(folder)
        fill(log, 1)
        assert everything(log.cursor(0)) == [0, 2, 3, 4]
        log.close()


@settings(max_examples=scaled(60))
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    old=st.integers(0, 12),
    base=st.sampled_from([0, 65_520, 131_060]),
    segment=st.integers(50, 2000),
    flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(1, 255)), max_size=12),
    late=st.booleans(),
    torn=st.integers(0, 30),
)
def test_records_that_are_not_touched_come_out_at_their_offsets(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], old: int, base: int, segment: int,
    flips: list[tuple[float, int]], late: bool, torn: int,
) -> None:  # fmt: skip
    """Any bytes anywhere, before a start or behind its back; the oldest records may be of the format before."""
    path = tmp_path_factory.mktemp("log")
    name = f"{base:020}.log" if old else f"{base:020}-00c0ffee.log"
    (path / name).write_bytes(b"".join(old_record(base + number, b"x" * number) for number in range(old)))
    log = open_log(path, segment)
    for size in sizes:
        log.append(b"address", [b"%d:" % log.next_offset + b"x" * size])
    log.close()
    end = base + old + len(sizes)

    if late:
        log = open_log(path, segment)
    touched: set[int] = set()
    files = sorted(path.glob("*.log"))
    if torn and not late:
        data = files[-1].read_bytes()
        cut = starts(data)
        first = int(files[-1].stem[:20])
        touched |= {first + number for number in range(len(cut) - 1) if cut[number + 1] > len(data) - torn}
    places = {file: starts(file.read_bytes()) for file in files}
    for where, mask in flips:
        file = files[int(where * len(files))]
        size = places[file][-1]
        at = int((where * len(files)) % 1 * size)
        if size:
            spoil(file, at, mask=mask)
    for file in files:
        for number, (start, stop) in enumerate(zip(places[file], places[file][1:], strict=False)):
            log_data = file.read_bytes()[start:stop]
            offset = int(file.stem[:20]) + number
            rest = log_data[8:]
            seed = int(file.stem[21:] or "0", 16)
            if log_data[:8] != pack(">II", len(rest), crc32(rest, seed)):
                touched.add(offset)
    if torn and not late:
        with files[-1].open("r+b") as opened:
            opened.truncate(max(0, places[files[-1]][-1] - torn))
    if not late:
        log = open_log(path, segment)

    left = [offset for offset in range(base, end) if offset not in touched]
    pairs = found(log.cursor(0))
    assert [number for _, number in pairs] == left
    run = touched & set(range(base, base + old))
    exact = not any({offset, offset + 1} <= run for offset in run)  # two side by side count as one
    assert [offset for offset, _ in pairs if exact or offset >= base + old] == [
        number for number in left if exact or number >= base + old
    ]
    assert [offset for offset, _ in pairs] == sorted({offset for offset, _ in pairs})
    for offset in left:
        if exact or offset >= base + old:
            assert found(log.cursor(offset))[0] == (offset, offset)
    lost = touched - set(range(log.durable, end))
    assert sum(damage.lost for damage in log.damages) >= len(lost)
    if not lost:
        assert log.damages == []
    told = len(log.damages)
    fill(log, 2)
    after = log.durable - 2, log.durable - 1
    assert [offset for offset, _ in found(log.cursor(0))] == [*(offset for offset, _ in pairs), *after]
    assert len(log.damages) == told
    log.close()


def test_the_end_of_a_segment_that_is_not_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    fill(log, 30)
    log.close()
    file, following = sorted(tmp_path.glob("*.log"))[1:3]
    size = file.stat().st_size
    last = int(following.stem[:20]) - 1
    spoil(file, size - 1)
    log = open_log(tmp_path, segment_bytes=300)
    assert (log.cut, log.durable, file.stat().st_size) == (0, 30, size)
    assert [(damage.path, damage.positions, damage.lost) for damage in log.damages] == [
        (str(file), (last, last + 1), 1)
    ]
    assert everything(log.cursor(0)) == [offset for offset in range(30) if offset != last]
    log.close()


@pytest.mark.parametrize("count", [1, 2, 40])
def test_records_of_the_format_before(tmp_path: Path, count: int) -> None:
    old = b"".join(old_record(number, b"x", 1000 + number) for number in range(count))
    (tmp_path / f"{0:020}.log").write_bytes(old)
    log = open_log(tmp_path, segment_bytes=2000)
    assert (log.written, log.cut, log.damages) == (count, 0, [])
    fill(log, 60, timestamp=1000 + count)
    log.close()
    log = open_log(tmp_path, segment_bytes=2000)
    assert everything(log.cursor(0)) == list(range(count + 60))
    assert [record.timestamp for record in log.cursor(0).read(1000)] == list(range(1000, 1060 + count))
    assert log.offset_at(1000 + count) == count
    assert not log.damages
    log.close()


def test_a_body_that_looks_like_records_is_not_taken_for_them(tmp_path: Path) -> None:
    other = open_log(tmp_path / "other")
    fill(other, 10)
    other.close()
    log = open_log(tmp_path / "log")
    fill(log, 2)
    log.append(b"address", [b"2:", only_file(other.path).read_bytes()])
    log.append(b"address", [b"3:", b"".join(old_record(number, b"of somebody") for number in range(10))])
    fill(log, 2)
    log.close()
    file = only_file(log.path)
    place = starts(file.read_bytes())
    spoil(file, place[2] + 2)  # their lengths
    spoil(file, place[3] + 2)
    log = open_log(log.path)
    assert everything(log.cursor(0)) == [0, 1, 4, 5]
    assert sum(damage.lost for damage in log.damages) == 2
    log.close()


def test_a_record_in_the_place_of_another_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 9)
    log.close()
    file = only_file(tmp_path)
    data = file.read_bytes()
    second, third, sixth, seventh = (starts(data)[number] for number in (2, 3, 6, 7))
    file.write_bytes(data[:sixth] + data[second:third] + data[seventh:])
    log = open_log(tmp_path)
    assert everything(log.cursor(0)) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert [damage.positions for damage in log.damages] == [(6, 7)]
    log.close()


def test_a_body_of_many_lengths_costs_no_more_than_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each 18 bytes look like the next record but for the checksum, and like one that is as long as what follows."""
    size = 18 * 5_000
    body = b"".join(
        pack(">IIQH", size - at - 100, 0, ((at // 18) + 2) << 48, 7) for at in range(0, size - 2000, 18)
    )  # fmt: skip
    log = open_log(tmp_path)
    log.append(b"address", [b"0:", body, b"x" * 4000])
    fill(log, 3)
    log.close()
    spoil(only_file(tmp_path), 2)
    summed: list[int] = []

    def counting(data: bytes, seed: int = 0) -> int:
        summed.append(len(data))
        return crc32(data, seed)

    for module in (log_records, checksums):
        monkeypatch.setattr(module, "crc32", counting)
    log = open_log(tmp_path)
    assert everything(log.cursor(0)) == [1, 2, 3]
    assert len(summed) > 5_000
    assert sum(summed) < 5_000 * 4 * 1024 + 2 * size  # of each place, not of each pair of places: that is 200 MB
    log.close()


@pytest.fixture
def rotting(tmp_path: Path) -> tuple[StreamLog, Callable[[int], None]]:
    """A log of 20 records in several segments, and what spoils one of them in its file."""
    log = open_log(tmp_path, segment_bytes=400)
    fill(log, 20)

    def rot(offset: int) -> None:
        file = [file for file in sorted(tmp_path.glob("*.log")) if int(file.stem[:20]) <= offset][-1]
        spoil(file, starts(file.read_bytes())[offset - int(file.stem[:20])] + 20)

    return log, rot


@pytest.mark.parametrize("offset", range(20))
def test_bytes_that_rot_while_the_log_is_open(
    rotting: tuple[StreamLog, Callable[[int], None]], offset: int
) -> None:  # fmt: skip
    log, rot = rotting
    rot(offset)
    told: list[Damage] = []
    log.on_damage = told.append
    expected = [number for number in range(20) if number != offset]
    cursors = [log.cursor(0), log.cursor(offset)]
    assert everything(cursors[0]) == expected
    assert everything(cursors[1]) == expected[offset:]
    assert [cursor.offset for cursor in cursors] == [20, 20]
    assert [(damage.positions, damage.lost) for damage in told] == [((offset, offset + 1), 1)]
    fill(log, 1)
    assert [everything(cursor) for cursor in cursors] == [[20], [20]]
    assert everything(log.cursor(0)) == [*expected, 20]
    assert len(told) == 1
    log.close()


def test_more_that_rots_is_told_once_each(rotting: tuple[StreamLog, Callable[[int], None]]) -> None:
    log, rot = rotting
    for offset in (3, 9, 4):
        rot(offset)
        everything(log.cursor(0))
        everything(log.cursor(offset))
    assert everything(log.cursor(0)) == [number for number in range(20) if number not in (3, 4, 9)]
    assert {offset for damage in log.damages for offset in range(*damage.positions)} == {3, 4, 9}
    log.close()


def test_a_time_whose_record_is_lost_leads_to_the_next(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 10, timestamp=1000)
    log.close()
    file = only_file(tmp_path)
    place = starts(file.read_bytes())
    for number in (4, 5):
        spoil(file, place[number] + 1)
    log = open_log(tmp_path)
    assert log.offset_at(1003) == 3
    assert log.offset_at(1004) == 6
    log.close()
