"""Sessions of consoles: their ends."""

from __future__ import annotations

import pytest

from harebell.admin.login import sessions
from harebell.admin.login.sessions import IDLE, LONGEST, Sessions
from harebell.broker.auth.passwords import RABBITMQ_SHA256
from harebell.broker.auth.users import Users, make_user


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def found(users: Users, clock: Clock) -> Sessions:
    return Sessions(users, clock)


def test_a_session_is_found_by_its_id_alone(found: Sessions) -> None:
    session = found.begin("guest")
    assert found.find(session.id) is session
    assert found.find("") is None
    assert found.find("guest") is None
    assert found.begin("guest").id != session.id


def test_it_ends_when_it_is_idle(found: Sessions, clock: Clock) -> None:
    session = found.begin("guest")
    for _ in range(3):
        clock.now += IDLE - 1
        assert found.find(session.id) is session
    clock.now += IDLE + 1
    assert found.find(session.id) is None
    assert len(found) == 0


def test_it_ends_after_a_working_day(found: Sessions, clock: Clock) -> None:
    session = found.begin("guest")
    while clock.now <= LONGEST - IDLE:
        clock.now += IDLE
        assert found.find(session.id) is session
    clock.now = LONGEST + 1
    assert found.find(session.id) is None


def test_it_ends_with_its_password_and_with_its_user(found: Sessions, users: Users) -> None:
    session, other = found.begin("guest"), found.begin("guest")
    users.put(make_user("guest", "new", (), RABBITMQ_SHA256))
    assert found.find(session.id) is None
    users.remove("guest")
    assert found.find(other.id) is None
    third = found.begin("guest")  # of a user that is gone meanwhile
    users.put(make_user("guest", "new", (), RABBITMQ_SHA256))
    assert found.find(third.id) is None


def test_it_ends_at_the_logout(found: Sessions) -> None:
    session = found.begin("guest")
    found.end(session.id)
    found.end(session.id)
    assert found.find(session.id) is None


def test_the_one_that_was_idle_longest_gives_way(
    found: Sessions, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST", 3)
    for name in ("a", "b", "c", "d"):
        users.put(make_user(name, name, (), RABBITMQ_SHA256))
    first, second, third = (found.begin(name) for name in ("a", "b", "c"))
    assert found.find(first.id) is first
    fourth = found.begin("d")
    assert [found.find(each.id) for each in (first, second, third, fourth)] == [first, None, third, fourth]


def test_a_user_has_few(found: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_USER", 2)
    first, second, third = (found.begin("guest") for _ in range(3))
    assert found.find(first.id) is None
    assert [found.find(each.id) for each in (second, third)] == [second, third]
