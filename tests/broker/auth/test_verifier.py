"""Verification with a hasher that takes time by a scripted clock: who gets an answer, which, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harebell.broker.auth import verifier
from harebell.broker.auth.login import Logins
from harebell.broker.auth.passwords import RABBITMQ_SHA256, RABBITMQ_SHA512, SCRYPT
from harebell.broker.auth.throttle import USER
from harebell.broker.auth.users import Users, make_user
from harebell.broker.auth.verifier import MOST_WAITING, Verdict, Verifier
from harebell.broker.timers import Timers
from harebell.errors import InvalidArgument
from harebell.routing.definitions import User
from tests.broker.kit import Clock

HASH_MS = 50
NAT = "10.0.0.1"


class Room:
    """Logins with one hashing thread, whose every hash takes HASH_MS; a password is right when the hash names it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int = 1) -> None:
        monkeypatch.setattr(verifier, "THREADS", threads)
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.users = Users()
        self.hashed: list[bytes] = []
        self.failing: dict[bytes, Exception] = {}  # by the password: what the hasher raises
        self.without_thread = False
        self.most_at_once = self._at_once = 0
        self.logins = Logins(self.users, self.timers, self._soon)
        self.logins.verifier = Verifier(self._soon, self._hash, self._start)
        self.answers: dict[str, tuple[Verdict, int]] = {}
        self._start_ms = self.clock.now

    def add(self, name: str, password: str = "right", algorithm: str = SCRYPT) -> None:
        self.users.users[name] = User(name, password, algorithm)

    def knock(self, who: str, host: str, user: str, password: str) -> None:
        """Somebody, `who`, tries a password."""

        def answer(verdict: Verdict) -> None:
            self.answers[who] = verdict, self.clock.now - self._start_ms

        self._start_ms = min(self._start_ms, self.clock.now)
        self.logins.try_password(host, user, password.encode(), answer)

    def pass_time(self, milliseconds: int) -> None:
        end = self.clock.now + milliseconds
        while (deadline := self.timers.next_deadline) is not None and deadline <= end:
            self.clock.now = max(deadline, self.clock.now)
            self.timers.run()
        self.clock.now = end

    def _hash(self, password: bytes, password_hash: str, algorithm: str) -> bool:
        self.hashed.append(password)
        if password in self.failing:
            raise self.failing[password]
        return password.decode() == password_hash

    def _start(self, work: Callable[[], None]) -> None:
        if self.without_thread:
            raise RuntimeError("can't start new thread")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)

        def done() -> None:
            self._at_once -= 1
            work()

        self.timers.at(self.clock.now + HASH_MS, done)

    def _soon(self, callback: Callable[[], None]) -> None:
        callback()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    room = Room(monkeypatch)
    for name in ("u", "v"):
        room.add(name)
    return room


def test_the_innocent_behind_the_address(room: Room) -> None:
    """24 clients know the password and one has an old one, which it tries again and again: nobody else notices."""
    for number in range(24):
        room.knock(f"good {number}", NAT, "u", "right")
    room.knock("stale", NAT, "u", "old")
    room.pass_time(10 * HASH_MS)
    assert room.hashed == [b"right", b"old"], "the same password is verified once"
    assert {verdict for who, (verdict, _) in room.answers.items() if who != "stale"} == {True}
    assert room.answers["stale"][0] is False
    for again in range(500):
        room.knock(f"stale {again}", NAT, "u", "old")
        assert room.answers[f"stale {again}"][0] is False
    room.answers.clear()
    before = room.clock.now - room._start_ms
    room.knock("good again", NAT, "u", "right")
    room.knock("another user", NAT, "v", "right")
    assert room.answers["good again"] == (True, before), "at once"
    room.pass_time(HASH_MS)
    assert room.answers["another user"] == (True, before + HASH_MS), "after its own hash"


def test_parallel_guesses(room: Room) -> None:
    """250 passwords at once: few are tried, most are refused, and another address hardly waits."""
    for number in range(250):
        room.knock(f"guess {number}", NAT, "u", f"guess {number}")
    assert sum(verdict is None for verdict, _ in room.answers.values()) > 200
    room.knock("elsewhere", "10.0.0.2", "u", "right")
    room.knock("neighbour", NAT, "v", "right")
    room.pass_time(3 * HASH_MS)
    assert room.answers["elsewhere"] == (True, 3 * HASH_MS), "behind the hash that was under way and one more"
    room.pass_time(USER.free * HASH_MS)
    assert room.answers["neighbour"][0] is True, "behind the free guesses of its address"
    room.pass_time(60_000)
    assert len(room.hashed) <= 2 + USER.free + 10
    assert room.most_at_once == 1


def test_who_logged_in_before_never_waits(room: Room) -> None:
    room.knock("first", NAT, "u", "right")
    room.pass_time(HASH_MS)
    for number in range(250):
        room.knock(f"guess {number}", NAT, "u", f"guess {number}")
    now = room.clock.now - room._start_ms
    room.knock("again", NAT, "u", "right")
    room.knock("again elsewhere", "10.0.0.9", "u", "right")
    assert room.answers["again"] == room.answers["again elsewhere"] == (True, now)


def test_a_full_queue(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses at many users fill the queue: the address that has most waiting loses, a new one gets its turn."""
    monkeypatch.setattr(verifier, "MOST_WAITING", 20)
    for number in range(40):
        room.knock(f"guess {number}", NAT, f"user {number}", "guess")
    assert room.logins.verifier.waiting == 20
    refused = [who for who, (verdict, _) in room.answers.items() if verdict is None]
    assert refused == [f"guess {number}" for number in range(21, 40)]
    for number in range(3):
        room.knock(f"good {number}", f"10.0.1.{number}", "u", "right")
    assert room.logins.verifier.waiting == 20
    room.pass_time(5 * HASH_MS)
    assert [room.answers[f"good {number}"][0] for number in range(3)] == [True] * 3
    assert room.answers["guess 20"][0] is room.answers["guess 18"][0] is None, "they gave way"
    room.pass_time(30 * HASH_MS)
    assert room.answers["guess 17"][0] is False


def test_a_full_queue_of_many_addresses(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MOST_WAITING", 3)
    for number in range(6):
        room.knock(f"{number}", f"10.0.1.{number}", "u", f"guess {number}")
    assert [who for who, (verdict, _) in room.answers.items() if verdict is None] == ["4", "5"]


def test_the_limits_hold_together(room: Room) -> None:
    """Whatever one address sends, what waits for a thread is bounded."""
    for number in range(10_000):
        room.knock(str(number), f"10.0.{number % 50}.1", f"user {number % 400}", f"guess {number}")
    assert room.logins.verifier.waiting <= MOST_WAITING
    assert room.most_at_once == 1


KINDS = {
    "scrypt": SCRYPT,
    "sha256": RABBITMQ_SHA256,
    "sha512": RABBITMQ_SHA512,
    "no hash": SCRYPT,
    "quick and no hash": RABBITMQ_SHA256,
    "nobody": None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_password_takes_as_long_for_every_kind_of_user(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    room = Room(monkeypatch)
    algorithm = KINDS[kind]
    if algorithm is not None:
        room.add("who", "" if "no hash" in kind else "right", algorithm)
    room.knock("wrong", NAT, "who", "wrong")
    assert room.answers == {}
    room.pass_time(HASH_MS)
    assert room.answers == {"wrong": (False, HASH_MS)}
    room.knock("again", NAT, "who", "wrong")
    assert room.answers["again"] == (False, HASH_MS), "it is known to be wrong"


def test_a_changed_password_counts_at_once(room: Room) -> None:
    room.knock("before", NAT, "u", "right")
    room.add("u", "new")
    room.pass_time(HASH_MS)
    assert room.answers["before"][0] is False, "it was right when it was tried, and is not any more"
    room.knock("old", NAT, "u", "right")
    room.knock("new", NAT, "u", "new")
    room.pass_time(2 * HASH_MS)
    assert (room.answers["old"][0], room.answers["new"][0]) == (False, True)


def test_other_tags_are_no_other_password(room: Room) -> None:
    room.knock("u", NAT, "u", "right")
    room.users.users["u"] = User("u", "right", SCRYPT, ("management",))
    room.pass_time(HASH_MS)
    assert room.answers["u"][0] is True


def test_memory_is_bounded(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MOST_REMEMBERED", 2)
    room.logins.throttle.user = USER._replace(free=1000)
    for number in range(5):
        room.knock(f"{number}", NAT, "u", f"guess {number}")
        room.pass_time(HASH_MS)
    known = [
        room.logins.verifier.recall(room.logins.verifier.ticket("u", room.users.users["u"], f"guess {number}".encode()))
        for number in range(5)
    ]
    assert known == [None, None, None, False, False]


def test_threads_work_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(monkeypatch, threads=3)
    for number in range(6):
        room.knock(f"{number}", f"10.0.1.{number}", "u", f"guess {number}")
    assert room.most_at_once == 3
    room.pass_time(2 * HASH_MS)
    assert len(room.answers) == 6


def test_real_hashes() -> None:
    """With the real hasher in real threads."""
    from queue import SimpleQueue

    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    checker = Verifier(calls.put)
    answers: list[Verdict] = []
    user = make_user("u", "secret")
    for password in (b"secret", b"wrong"):
        checker.verify(NAT, "u", user, password, answers.append)
    checker.verify(NAT, "x", None, b"secret", answers.append)
    for _ in range(3):
        calls.get(timeout=60)()
    assert sorted(answers, key=str) == [False, False, True]
    checker.stop()


@pytest.mark.parametrize("algorithm", [SCRYPT, RABBITMQ_SHA256])
@pytest.mark.parametrize("error", [ValueError("memory limit exceeded"), MemoryError(), InvalidArgument("no hash")])
def test_what_cannot_be_verified_keeps_no_thread_and_is_asked_again(
    room: Room, caplog: pytest.LogCaptureFixture, error: Exception, algorithm: str
) -> None:
    room.add("odd", "odd", algorithm)
    room.failing[b"odd"] = error
    for number in range(3):
        room.knock(f"odd {number}", NAT, "odd", "odd")
    room.knock("good", "10.0.0.2", "u", "right")
    room.pass_time(60_000)
    assert room.answers["good"][0] is True
    assert [room.answers[f"odd {number}"][0] for number in range(3)] == [False] * 3
    assert room.logins.verifier.running == 0
    assert "the password of user 'odd' cannot be verified: set it anew" in caplog.text
    room.failing.clear()
    room.knock("again", NAT, "odd", "odd")
    room.pass_time(60_000)
    assert room.answers["again"][0] is True, "it was not remembered as wrong"


def test_no_thread_is_to_be_had(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.without_thread = True
    for number in range(5):
        room.knock(f"{number}", NAT, "u", f"guess {number}")
    room.pass_time(60_000)
    assert {verdict for verdict, _ in room.answers.values()} == {None}
    assert "the password of user 'u' cannot be verified now: can't start new thread" in caplog.text
    room.without_thread = False
    room.knock("good", NAT, "u", "right")
    room.pass_time(60_000)
    assert room.answers["good"][0] is True
    assert room.logins.verifier.running == 0
