"""The book of users: what can be put into it, and what goes with a user or a vhost."""

from __future__ import annotations

import json

import pytest

from harebell.broker.auth import Users
from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT, verify
from harebell.broker.auth.users import SCRAM_KEYS, UserWatcher, found, is_loopback, make_user
from harebell.errors import InvalidArgument, NotFound
from harebell.routing.definitions import (
    Definitions,
    Permission,
    TopicPermission,
    User,
    emit_definitions,
    parse_definitions,
)


@pytest.fixture
def users() -> Users:
    users = Users()
    users.put(User("a", ""))
    return users


def test_guest_is_there_from_the_start() -> None:
    users = Users()
    assert users.has_tag("guest", "administrator")
    assert users.permissions["/", "guest"] == Permission("/", "guest", ".*", ".*", ".*")


@pytest.mark.parametrize("user", [
    User(""), User("x", "?"), User("x", "c2hvcnQ="), User("x", "", "rabbit_password_hashing_md5"),
    User("x", extra={SCRAM_KEYS: "nonsense"}), User("x", extra={SCRAM_KEYS: 5}),
])  # fmt: skip
def test_users_that_cannot_be(users: Users, user: User) -> None:
    with pytest.raises(InvalidArgument):
        users.put(user)
    assert set(users.users) == {"guest", "a"}


def test_a_definition_with_a_password_gets_hashes(users: Users) -> None:
    found = parse_definitions('{"users": [{"name": "b", "password": "secret", "tags": "management", "team": "red"}]}')
    users.put(found.users[0])
    user = users.users["b"]
    assert user.hashing_algorithm == SCRYPT
    assert verify(b"secret", user.password_hash or "", SCRYPT)
    assert (user.tags, user.extra["team"]) == (("management",), "red")
    assert "secret" not in json.dumps(emit_definitions(Definitions(users=(user,))))


def test_hashes_and_keys_survive_a_file(users: Users) -> None:
    made = make_user("b", "secret", ("management",), scram=True)
    written = emit_definitions(Definitions(users=(made,)))
    text = written if isinstance(written, str) else json.dumps(written)
    users.put(parse_definitions(text).users[0])
    assert users.users["b"] == made


def test_a_hash_without_an_algorithm_is_rabbitmqs(users: Users) -> None:
    users.put(User("b", make_user("b", "secret", (), RABBITMQ_SHA256).password_hash))
    with pytest.raises(InvalidArgument):
        users.put(User("b", make_user("b", "secret").password_hash))


def test_permissions_are_of_users_who_exist_and_patterns(users: Users) -> None:
    with pytest.raises(NotFound, match="no user 'b'"):
        users.set_permission(Permission("/", "b", "", "", ""))
    for bad in (("(", "", ""), ("", "*", ""), ("", "", "[")):
        with pytest.raises(InvalidArgument, match="is not a regular expression"):
            users.set_permission(Permission("/", "a", *bad))
    with pytest.raises(InvalidArgument):
        users.set_topic_permission(TopicPermission("/", "a", "x", "(", ""))
    assert ("/", "a") not in users.permissions


def test_what_goes_with_a_user(users: Users) -> None:
    users.set_permission(Permission("/", "a", "", "", ""))
    users.set_permission(Permission("v", "a", "", "", ""))
    users.set_topic_permission(TopicPermission("v", "a", "x", "", ""))
    removed: list[str] = []
    users.watcher.removed = removed.append  # type: ignore[method-assign, assignment]
    users.remove("a")
    users.remove("a")
    assert (list(users.users), list(users.permissions), users.topic_permissions) == (["guest"], [("/", "guest")], {})
    assert removed == ["a"]


def test_what_goes_with_a_vhost_and_an_exchange(users: Users) -> None:
    told: list[tuple[str, ...]] = []

    class Watcher(UserWatcher):
        def permission_set(self, permission: Permission) -> None:
            told.append(("+", permission.vhost, permission.user))

        def permission_cleared(self, vhost: str, user: str) -> None:
            told.append(("-", vhost, user))

        def topic_permission_set(self, permission: TopicPermission) -> None:
            told.append(("+", permission.vhost, permission.user, permission.exchange))

        def topic_permission_cleared(self, vhost: str, user: str, exchange: str) -> None:
            told.append(("-", vhost, user, exchange))

    users.watcher = Watcher()
    for vhost in ("/", "v"):
        users.set_permission(Permission(vhost, "a", "", "", ""))
        for exchange in ("x", "y"):
            users.set_topic_permission(TopicPermission(vhost, "a", exchange, "", ""))
    assert told == [("+", vhost, "a", *exchange) for vhost in "/v" for exchange in ((), ("x",), ("y",))]
    told.clear()
    users.clear_topic_permission("/", "a", "x")
    assert set(users.topic_permissions) == {("/", "a", "y"), ("v", "a", "x"), ("v", "a", "y")}
    users.clear_topic_permission("/", "a")
    users.clear_permission("/", "a")
    users.clear_permission("/", "a")
    assert told == [("-", "/", "a", "x"), ("-", "/", "a", "y"), ("-", "/", "a")]
    users.forget_vhost("v")
    assert told[3:] == [("-", "v", "a"), ("-", "v", "a", "x"), ("-", "v", "a", "y")]
    assert (list(users.permissions), users.topic_permissions) == ([("/", "guest")], {})


@pytest.mark.parametrize("pattern, name, finds", [
    ("", "", True), ("", "a", False), (".*", "", True), ("a", "bab", True), ("^a$", "bab", False),
    ("^a$", "a\n", False),
])  # fmt: skip
def test_patterns(pattern: str, name: str, finds: bool) -> None:
    assert found(pattern, name) is finds


@pytest.mark.parametrize("host, is_one", [("::ffff:127.0.0.1", True), ("::ffff:10.0.0.1", False), ("localhost", False)])
def test_loopback_addresses(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one


def test_no_secret_in_a_repr(users: Users) -> None:
    users.put(make_user("b", "secret", scram=True))
    user = users.users["b"]
    assert str(user.password_hash) not in repr(user) + repr(users)
    assert str(user.extra[SCRAM_KEYS]) not in repr(user) + repr(users)
