"""The file of positions: what it says after a stop, a kill, a power cut, and damage."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from harebell.broker.store import positions as module
from harebell.broker.store.positions import NUMBER, Known, Positions
from harebell.protocol.v010.receiving import ReceivingHalf
from tests.broker.store.faults import Disk, HandCommit

PATH = Path("/data/sessions")


class Bench:
    def __init__(self) -> None:
        self.disk = Disk()
        self.changed = 0
        self.start()

    def start(self, expected: int | None = None) -> dict[tuple[str, str, bytes], Known]:
        self.commit = HandCommit(self.disk, on_synced=lambda: self.positions.advance())
        self.positions = Positions(PATH, self.commit, self.note, files=self.disk, expected=expected)
        self.positions.recover()
        return self.positions.known

    def note(self, positions: Positions) -> None:
        self.changed += 1

    def restart(self) -> dict[tuple[str, str, bytes], Known]:
        self.disk.kill()
        return self.start()

    def begin(self, name: bytes, done: int = 0) -> bytes:
        return self.positions.begin("/", "guest", name, 60, half(done).save())

    def sync(self) -> None:
        self.positions.flush()
        self.commit.run()


def half(done: int) -> ReceivingHalf:
    receiving = ReceivingHalf()
    receiving.command_point(0, 0)
    for number in range(done):
        receiving.receive()
        receiving.complete(number)
    receiving.receive()
    return receiving


def reached(known: Known) -> int:
    return next(number for number in range(10_000) if not known.has_executed(number))


def test_sessions_come_back_where_they_were() -> None:
    bench = Bench()
    assert bench.positions.known == {}
    one, two = bench.begin(b"one\xff", 3), bench.begin(b"two")
    assert bench.changed == 1
    bench.sync()
    bench.positions.moved(two, half(5).save)
    bench.positions.moved(two, half(7).save)
    assert bench.changed == 2
    bench.positions.flush()
    known = bench.restart()
    assert {key: (each.timeout, reached(each)) for key, each in known.items()} == {
        ("/", "guest", b"one\xff"): (60, 3),
        ("/", "guest", b"two"): (60, 7),
    }
    found = bench.positions.take("/", "guest", b"two")
    assert found is not None
    assert found.session == two
    assert bench.positions.take("/", "guest", b"two") is None
    bench.positions.renew(two, "/", "guest", b"two", 90)
    bench.positions.moved(two, half(9).save)
    bench.sync()
    bench.positions.end(one)
    bench.positions.end(one)
    bench.positions.moved(one, half(9).save)
    bench.positions.flush()
    assert [(each.name, each.timeout, reached(each)) for each in bench.restart().values()] == [(b"two", 90, 9)]


def test_an_end_is_on_disk_at_once() -> None:
    for seed in range(20):
        bench = Bench()
        session = bench.begin(b"one")
        bench.sync()
        bench.positions.end_now(session)
        bench.positions.end_now(session)
        bench.disk.power_cut(Random(seed))
        assert bench.start() == {}


def test_an_end_that_nobody_relies_on_is_on_disk_with_the_next_sync() -> None:
    for seed in range(20):
        bench = Bench()
        session = bench.begin(b"one")
        bench.sync()
        bench.positions.end(session)
        assert bench.changed == 2
        bench.sync()
        bench.disk.power_cut(Random(seed))
        assert bench.start() == {}


def test_a_session_that_ends_before_it_was_written() -> None:
    bench = Bench()
    bench.positions.end(bench.begin(b"one"))
    assert bench.restart() == {}


def test_queues_say_what_they_have_beyond_the_position() -> None:
    bench = Bench()
    session = bench.begin(b"one", 3)
    bench.positions.flush()
    known = bench.restart()["/", "guest", b"one"]
    assert not bench.positions.note("a", [NUMBER.pack(session, 2), NUMBER.pack(bytes(8), 9)])
    assert bench.positions.note("a", [NUMBER.pack(session, n) for n in range(5)])
    assert bench.positions.note("b", [NUMBER.pack(session, 4)])
    assert known.stored == {3: {"a"}, 4: {"a", "b"}}


def test_what_is_covered_follows_the_disk() -> None:
    bench = Bench()
    session = bench.begin(b"one")
    bench.sync()
    assert (bench.commit.synced, bench.commit.covered) == (1, 0)  # written before the first sync was done
    bench.positions.moved(session, half(1).save)
    bench.positions.flush()
    assert bench.commit.covered == 0
    bench.commit.run()
    assert (bench.commit.synced, bench.commit.covered) == (2, 1)
    works = [bench.positions.begin_work() for _ in range(2)]
    bench.positions.moved(session, half(2).save)
    bench.sync()
    bench.sync()
    assert (bench.commit.synced, bench.commit.covered) == (4, 2)  # the last one before they began
    works.append(bench.positions.begin_work())
    bench.positions.end_work(works.pop(0))
    bench.positions.end_work(works.pop(0))
    bench.sync()
    assert (bench.commit.synced, bench.commit.covered) == (5, 4)  # though there is always one
    bench.positions.end_work(works.pop())
    bench.sync()
    assert (bench.commit.synced, bench.commit.covered) == (6, 5)


def test_a_position_waits_for_the_catalog() -> None:
    bench = Bench()
    session = bench.begin(b"one")
    bench.sync()
    bench.positions.waits = lambda: True
    bench.positions.moved(session, half(1).save)
    changed = bench.changed
    assert bench.positions.flush() == 0
    assert bench.changed == changed + 1
    bench.positions.waits = lambda: False
    bench.positions.flush()
    assert reached(bench.restart()["/", "guest", b"one"]) == 1


def test_the_file_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 1000)
    bench = Bench()
    session = bench.begin(b"one")
    for done in range(200):
        bench.positions.moved(session, half(done).save)
        bench.sync()
        assert len(bench.disk.file(str(PATH))) < 1200
    bench.positions.close()
    bench.commit.run()
    assert bench.disk.open_files == 0
    assert reached(bench.restart()["/", "guest", b"one"]) == 199


def test_a_torn_end_is_cut_at_any_byte(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    session = bench.begin(b"one")
    bench.positions.flush()
    before = len(bench.disk.file(str(PATH)))
    bench.positions.moved(session, half(1).save)
    bench.positions.flush()
    whole = bytes(bench.disk.file(str(PATH)))
    for length in range(before, len(whole)):
        bench = Bench()
        fd = bench.disk.open(str(PATH), 0o102)
        bench.disk.pwrite(fd, whole[:length], 0)
        bench.disk.close(fd)
        assert reached(bench.start()["/", "guest", b"one"]) == 0
        assert "cut" in caplog.text or length == before


def test_after_damage_no_session_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    session = bench.begin(b"one")
    bench.positions.flush()
    for done in range(3):
        bench.positions.moved(session, half(done).save)
        bench.positions.flush()
    bench.disk.spoil(str(PATH), len(bench.disk.file(str(PATH))) - 100, b"\xff\xff")
    assert bench.restart() == {}
    assert "is damaged" in caplog.text
    assert bench.restart() == {}


def test_another_size_than_at_the_last_stop_is_damage(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    session = bench.begin(b"one")
    for done in range(3):
        bench.positions.moved(session, half(done).save)
        bench.positions.flush()
    bench.positions.close()
    size = len(bench.disk.file(str(PATH)))
    assert reached(bench.start(size)["/", "guest", b"one"]) == 2
    assert len(bench.disk.file(str(PATH))) == size
    assert caplog.text == ""
    assert bench.start(size + 8) == {}
    assert f"has {size} bytes of records, and had {size + 8} at the last stop" in caplog.text


def test_a_power_cut_leaves_a_position_that_was_reached() -> None:
    for seed in range(100):
        bench = Bench()
        session = bench.begin(b"one")
        bench.sync()
        for done in range(1, 6):
            bench.positions.moved(session, half(done).save)
            bench.positions.flush()
            if done == 3:
                bench.commit.run()
        bench.disk.power_cut(Random(seed))
        known = bench.start()
        assert not known or 3 <= reached(known["/", "guest", b"one"]) <= 5


def test_a_position_that_cannot_be_read_is_of_no_session(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.begin(b"odd", 3)
    bench.begin(b"plain", 5)
    bench.sync()
    load, odd = ReceivingHalf.load, half(3).save()

    def of_this_version(raw: bytes) -> ReceivingHalf:
        if raw == odd:
            raise ValueError("no saved session: version 9")
        return load(raw)

    monkeypatch.setattr(ReceivingHalf, "load", of_this_version)
    assert set(bench.restart()) == {("/", "guest", b"plain")}
    assert "session b'odd' of user 'guest' does not go on: no saved session: version 9" in caplog.text
