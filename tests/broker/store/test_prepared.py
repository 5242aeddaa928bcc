"""The file of prepared branches: what it says after a stop, a kill and damage."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from harebell.broker.message import Address, MarkedMessage, Message
from harebell.broker.store import prepared as module
from harebell.broker.store.positions import NUMBER
from harebell.broker.store.prepared import LOCAL, KeptBranch, KeptMessage, PreparedBranches
from harebell.protocol.v091 import Content, Properties
from harebell.protocol.v091.content import encode_content
from tests.broker.store.faults import Disk, HandCommit

PATH = Path("/data/transactions")


class Bench:
    def __init__(self) -> None:
        self.disk = Disk()
        self.changed = 0
        self.start()

    def start(self, expected: int | None = None) -> list[KeptBranch]:
        self.commit = HandCommit(self.disk, on_synced=lambda: None)
        self.branches = PreparedBranches(PATH, self.commit, self.note, files=self.disk, expected=expected)
        self.branches.recover()
        return list(self.branches.found.values())

    def note(self, branches: PreparedBranches) -> None:
        self.changed += 1

    def restart(self) -> list[KeptBranch]:
        self.disk.kill()
        return self.start()

    def keep(self, name: bytes = b"g", *, decided: bool = False) -> KeptBranch:
        kept = branch(name)
        self.branches.keep(kept, decided=decided)
        self.branches.flush()
        self.branches.advance()
        return kept


def message(body: bytes, channel: int = 1, **properties: object) -> Content:
    given = Properties(delivery_mode=2)
    for name, value in properties.items():
        setattr(given, name, value)
    return Content(channel, b"", encode_content(channel, given, body, 200), len(body))


def branch(name: bytes = b"g") -> KeptBranch:
    messages = [
        KeptMessage(Message(Address("x", "k"), message(b"a" * 500, 3)), ("q", "r")),
        KeptMessage(
            MarkedMessage(
                Address("", "ключ"),
                message(b"", headers={"h": 1}),
                ("a", "b"),
                ("b",),
                died=True,
                ttl=5,
                origin=b"\0\1",
            ),
            None,
        ),
    ]
    return KeptBranch((7, name, b"\xff"), "/", "u", messages, [("q", 3, "queues/1"), ("r", 0, "")])


def same(one: KeptBranch, other: KeptBranch) -> bool:
    def told(each: KeptBranch) -> object:
        messages = [
            (
                kept.queues, kept.message.address.wire, kept.message.content.body, kept.message.keys, kept.message.bcc,
                kept.message.died, kept.message.ttl, kept.message.origin,
                kept.message.content.decode_properties().headers,
            )
            for kept in each.messages
        ]  # fmt: skip
        return each.key, each.xid, each.vhost, each.user, messages, each.taken, each.decided, each.by_hand, each.outcome

    return told(one) == told(other)


@pytest.mark.parametrize("decided", [False, True])
def test_a_branch_comes_back(decided: bool) -> None:
    bench = Bench()
    assert bench.branches.found == {}
    kept = bench.keep(decided=decided)
    assert bench.changed == 1
    (found,) = bench.restart()
    assert same(found, kept)
    (found,) = bench.restart()  # the file was written anew
    assert same(found, kept)
    numbered = found.number(found.messages[1].message, 1)
    assert numbered.number == NUMBER.pack(kept.key, 1)
    assert (numbered.keys, numbered.ttl, numbered.origin) == (("a", "b"), 5, b"\0\1")


def test_decided_and_over() -> None:
    bench = Bench()
    one, two = bench.keep(b"one"), bench.keep(b"two")
    bench.branches.decide(one, by_hand=False)
    bench.branches.end(two)
    bench.branches.close()
    (found,) = bench.restart()
    assert same(found, one)
    assert (found.decided, found.by_hand) == (True, False)
    bench.branches.end(found)
    bench.branches.close()
    assert bench.restart() == []


def test_what_is_to_be_forgotten() -> None:
    """Its outcome takes the place of what it held; one that was not on disk gets there with it."""
    bench = Bench()
    one, two = bench.keep(b"one"), KeptBranch((1, b"two", b""), "/", "u", [], [])
    bench.branches.decide(one, by_hand=True)
    bench.branches.close()
    (found,) = bench.restart()
    assert same(found, one)
    assert (found.decided, found.by_hand) == (True, True)
    bench.branches.remember(found, "committed by hand")
    bench.branches.remember(two, "mixed")
    bench.branches.close()
    for _ in range(2):
        first, second = bench.restart()
        assert (first.key, first.xid, first.user) == (found.key, found.xid, found.user)
        assert same(second, two)
        assert (first.messages, first.taken, first.decided) == ([], [], False)
        assert (first.outcome, second.outcome) == ("committed by hand", "mixed")
        assert not bench.branches.note("q", [NUMBER.pack(first.key, 0)])
    assert len(bench.disk.file(str(PATH))) < 400
    bench.branches.end(first)
    bench.branches.end(second)
    bench.branches.close()
    assert bench.restart() == []


def test_the_queues_that_have_a_message_are_noted_for_commits() -> None:
    bench = Bench()
    one, two = bench.keep(decided=True), bench.keep()
    bench.restart()
    numbers = [NUMBER.pack(one.key, 1), NUMBER.pack(two.key, 0), NUMBER.pack(b"12345678", 0)]
    assert bench.branches.note("q", numbers)
    assert not bench.branches.note("r", numbers[1:])
    assert bench.branches.found[one.key].stored == {1: {"q"}}
    assert bench.branches.found[two.key].stored == {}


def test_a_torn_end_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    one, _ = bench.keep(), bench.keep()
    del bench.disk.file(str(PATH))[-5:]
    (found,) = bench.restart()
    assert same(found, one)
    assert "cut" in caplog.text


def test_after_damage_all_are_in_doubt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    bench = Bench()
    one = bench.keep()
    bench.branches.decide(one, by_hand=True)
    bench.branches.flush()
    size = len(bench.disk.file(str(PATH)))
    bench.keep()
    bench.branches.end(one)
    bench.branches.flush()
    bench.disk.file(str(PATH))[size + 40] ^= 1
    (found,) = bench.restart()
    assert (found.key, found.decided, found.by_hand) == (one.key, False, False)
    assert f"is damaged at byte {size}" in caplog.text


def test_another_size_than_at_the_last_stop_is_damage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bench = Bench()
    bench.branches.end(bench.keep(b"over"))
    one = bench.keep(decided=True)
    bench.branches.close()
    size = len(bench.disk.file(str(PATH)))
    (found,) = bench.start(size)
    assert (found.key, found.decided, caplog.text) == (one.key, True, "")
    assert len(bench.disk.file(str(PATH))) == size
    (found,) = bench.start(size + 8)
    assert (found.key, found.decided) == (one.key, False)
    assert f"has {size} bytes of records, and had {size + 8} at the last stop" in caplog.text
    del bench.disk.file(str(PATH))[:]
    assert bench.start(size) == []
    assert "is gone or empty" in caplog.text


def test_a_commit_in_parts_is_there_when_its_last_one_is() -> None:
    bench = Bench()
    kept, whole = branch(), branch()
    kept.xid, kept.rejected = LOCAL, [("q", 9, "queues/1")]
    first, second = kept.messages
    kept.messages, kept.taken = [first], []
    bench.branches.keep_part(kept)
    bench.branches.flush()
    assert bench.restart() == []
    bench.branches.keep_part(kept)
    kept.messages, kept.taken = [second], whole.taken
    bench.branches.keep(kept, decided=True)
    bench.branches.flush()
    for _ in range(2):
        (found,) = bench.restart()
        kept.messages, kept.rejected = (
            [first, second],
            [("q", 9, "queues/1"), ("q", 9, "queues/1")],
        )  # each part had it here
        assert same(found, kept)
        assert found.rejected == kept.rejected
        assert (found.xid, found.decided) == (LOCAL, True)


def test_the_end_of_a_commit_is_written_later() -> None:
    bench = Bench()
    kept, calls, over = bench.keep(decided=True), list[Callable[[], None]](), list[int]()
    bench.branches.later = calls.append
    bench.commit.run()
    bench.branches.end_later(kept, lambda: over.append(1))
    bench.branches.end_later(bench.keep(decided=True), lambda: over.append(2))
    bench.branches.advance()
    assert over == []
    bench.commit.run()
    bench.branches.advance()
    assert over == [1]  # it went with the record that came next
    bench.changed = 0
    for call in calls:
        call()
    assert bench.changed == 1
    bench.branches.flush()
    bench.commit.run()
    bench.branches.advance()
    assert over == [1, 2]
    assert bench.restart() == []


def test_after_damage_commits_stay_as_they_are() -> None:
    bench = Bench()
    kept = branch()
    kept.xid = LOCAL
    bench.branches.keep(kept, decided=True)
    bench.branches.flush()
    size = len(bench.disk.file(str(PATH)))
    bench.keep()
    bench.keep()
    bench.disk.file(str(PATH))[size + 40] ^= 1
    assert bench.restart() == []


def test_a_long_file_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 10_000)
    bench = Bench()
    stays = bench.keep(b"stays")
    sizes = []
    for _ in range(100):
        bench.branches.end(bench.keep())
        bench.branches.flush()
        sizes.append(len(bench.disk.file(str(PATH))))
    assert max(sizes) < 15_000
    (found,) = bench.restart()
    assert same(found, stays)


def test_a_record_of_an_older_version_has_no_folders() -> None:
    kept = branch()
    kept.rejected, kept.streams = [("q", 9, "queues/1")], {"log": (7, "streams/1")}
    data = kept.encode()
    again = KeptBranch.decode(data)
    assert (again.taken, again.rejected, again.streams) == (kept.taken, kept.rejected, kept.streams)
    at = 4 + int.from_bytes(data[:4], "big")
    told = json.loads(data[4:at])
    del told["folders"], told["stream_folders"]
    head = json.dumps(told).encode()
    again = KeptBranch.decode(len(head).to_bytes(4, "big") + head + data[at:])
    assert again.taken == [("q", 3, ""), ("r", 0, "")]
    assert (again.rejected, again.streams) == ([("q", 9, "")], {"log": (7, "")})
