"""Users and their permissions, for logins and access checks. The module verifies no password.

A new broker has the user `guest` with the password `guest`, an administrator with every permission in "/", who may log
in from the machine's own addresses only (`loopback_users`), as with RabbitMQ. Its hash is RabbitMQ's quick one, because
the password is public anyway.

A pattern is searched for in a name (`harebell.routing.pattern_language`); an empty one matches the empty name only.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Iterator
from functools import lru_cache

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT, check_hash, hash_password
from harebell.broker.auth.refusals import Refusals
from harebell.broker.auth.scram import make_keys, parse_keys
from harebell.broker.patterns import PATTERNS
from harebell.errors import InvalidArgument, NotFound
from harebell.printable import printable
from harebell.routing.definitions import Permission, TopicPermission, User
from harebell.routing.pattern_language import BadPattern, literal
from harebell.routing.table_values import Table
from harebell.routing.wire_limits import check_name, check_value

__all__ = [
    "SCRAM_KEYS",
    "UserWatcher",
    "Users",
    "found",
    "is_loopback",
    "make_user",
    "refused_patterns",
    "topic_pattern",
]

SCRAM_KEYS = "scram_sha_256"
"""The key of `User.extra` with SCRAM's keys, beside the hash, in definitions too."""


class UserWatcher:
    """A watcher of `Users`: the methods are called after each change. This one does nothing."""

    def put(self, user: User, before: User | None) -> None:
        """A user was added or changed; `before` is the previous user of that name, or None."""

    def removed(self, name: str) -> None:
        """A user was removed, and its permissions with it: no other method is called for those."""

    def permission_set(self, permission: Permission) -> None: ...

    def permission_cleared(self, vhost: str, user: str) -> None: ...

    def topic_permission_set(self, permission: TopicPermission) -> None: ...

    def topic_permission_cleared(self, vhost: str, user: str, exchange: str) -> None: ...


class Users:
    """All users and permissions of the broker.

    `users` are by name, `permissions` by vhost and user, `topic_permissions` by vhost, user and exchange. Callers may
    read them, and change them by the methods only. `watcher` is notified of changes. `refusals` are what their
    permissions did not allow.
    """

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        self.loopback_users = {"guest"}
        self.watcher = UserWatcher()
        self.refusals = Refusals()
        self._scram_iterations: tuple[int, ...] | None = None
        self.put(make_user("guest", "guest", ("administrator",), RABBITMQ_SHA256))
        self.set_permission(Permission("/", "guest", ".*", ".*", ".*"))

    def __repr__(self) -> str:
        return f"Users({', '.join(self.users)})"

    # -- users ---------------------------------------------------------------------------------------------------

    def put(self, user: User) -> None:
        """Add the user, or replace the one of that name.

        A definition without an algorithm means RabbitMQ's SHA-256; one with a password in place of a hash gets hashes.
        Raises InvalidArgument for a hash that cannot be verified.
        """
        check_name(user.name, "user name")
        check_value(list(user.tags), f"tags of user '{user.name}'")
        extra = dict(user.extra)
        password = extra.pop("password", None)
        if isinstance(password, str) and password and not user.password_hash:
            made = make_user(user.name, password, user.tags, user.hashing_algorithm)
            user = dataclasses.replace(made, limits=user.limits, extra={**extra, **made.extra})
        try:
            check_hash(user.password_hash or "", user.hashing_algorithm or RABBITMQ_SHA256)
            if SCRAM_KEYS in user.extra:
                parse_keys(str(user.extra[SCRAM_KEYS]))
        except InvalidArgument as error:
            raise InvalidArgument(f"user '{user.name}': {error}") from error
        except ValueError:
            raise InvalidArgument(f"user '{user.name}': {SCRAM_KEYS} is not as SCRAM-SHA-256 has it") from None
        before = self.users.get(user.name)
        self.users[user.name] = user
        self._scram_iterations = None
        self.watcher.put(user, before)

    def remove(self, name: str) -> None:
        """Remove the user and its permissions, if it exists; the broker then closes its connections."""
        if self.users.pop(name, None) is None:
            return
        self._scram_iterations = None
        self.permissions = {k: v for k, v in self.permissions.items() if k[1] != name}
        self.topic_permissions = {k: v for k, v in self.topic_permissions.items() if k[1] != name}
        self.watcher.removed(name)

    @property
    def scram_iterations(self) -> tuple[int, ...]:
        """The numbers of iterations in SCRAM's keys, one for each user who has some."""
        if self._scram_iterations is None:
            kept = (user.extra.get(SCRAM_KEYS) for user in self.users.values())
            self._scram_iterations = tuple(parse_keys(str(keys)).iterations for keys in kept if keys is not None)
        return self._scram_iterations

    def has_tag(self, name: str, tag: str) -> bool:
        user = self.users.get(name)
        return user is not None and tag in user.tags

    def may_come_from(self, name: str, peer_host: str) -> bool:
        """Whether a user of that name may connect from that address."""
        return name not in self.loopback_users or is_loopback(peer_host)

    # -- permissions ---------------------------------------------------------------------------------------------

    def set_permission(self, permission: Permission) -> None:
        """Set a permission. Raises NotFound for an unknown user, InvalidArgument for a malformed pattern."""
        self._check(permission.user, permission.configure, permission.write, permission.read)
        self.permissions[permission.vhost, permission.user] = permission
        self.watcher.permission_set(permission)

    def clear_permission(self, vhost: str, user: str) -> None:
        if self.permissions.pop((vhost, user), None) is not None:
            self.watcher.permission_cleared(vhost, user)

    def set_topic_permission(self, permission: TopicPermission) -> None:
        """Set a topic permission, as `set_permission`; {username}, {vhost} in a pattern are the connection's."""
        check_name(permission.exchange, "exchange name", empty=True)
        self._check(permission.user, *(topic_pattern(permission, each) for each in (permission.write, permission.read)))
        self.topic_permissions[permission.vhost, permission.user, permission.exchange] = permission
        self.watcher.topic_permission_set(permission)

    def clear_topic_permission(self, vhost: str, user: str, exchange: str | None = None) -> None:
        """Remove the user's topic permission for that exchange, or all of the vhost."""
        for key in tuple(self.topic_permissions):
            if key[:2] == (vhost, user) and exchange in (None, key[2]):
                del self.topic_permissions[key]
                self.watcher.topic_permission_cleared(*key)

    def forget_vhost(self, name: str) -> None:
        """Remove all permissions in a vhost that was deleted."""
        for vhost, user in tuple(self.permissions):
            if vhost == name:
                self.clear_permission(vhost, user)
        for vhost, user, exchange in tuple(self.topic_permissions):
            if vhost == name:
                self.clear_topic_permission(vhost, user, exchange)

    def restore(
        self, users: Iterable[User], permissions: Iterable[Permission], topic_permissions: Iterable[TopicPermission]
    ) -> None:
        """Replace all users and permissions; `watcher` is not notified."""
        self.users = {user.name: user for user in users}
        self._scram_iterations = None
        self.permissions = {(each.vhost, each.user): each for each in permissions}
        self.topic_permissions = {(each.vhost, each.user, each.exchange): each for each in topic_permissions}

    def _check(self, user: str, *patterns: str) -> None:
        if user not in self.users:
            raise NotFound(f"no user '{user}'")
        for pattern in patterns:
            check_value(pattern, "pattern")
            try:
                PATTERNS.check(pattern)
            except BadPattern as error:
                raise InvalidArgument(f"'{printable(pattern, 100)}' is not a regular expression: {error}") from error


def make_user(
    name: str, password: str | None, tags: tuple[str, ...] = (), algorithm: str | None = None, *, scram: bool = False
) -> User:
    """A user with a hash of the password, and with `scram` SCRAM's keys; without a password it cannot log in with one.

    Takes some 50 ms, and 0.2 s more with `scram`. Raises InvalidArgument for an empty password.
    """
    algorithm = algorithm or SCRYPT
    if password is None:
        return User(name, "", algorithm, tags)
    keys: Table = {SCRAM_KEYS: str(make_keys(password))} if password and scram else {}
    return User(name, hash_password(password, algorithm), algorithm, tags, extra=keys)


@lru_cache(maxsize=1024)
def found(pattern: str, name: str) -> bool:
    """Whether a permission's pattern allows a name."""
    return PATTERNS.search(pattern or "^$")(name)


def topic_pattern(permission: TopicPermission, pattern: str) -> str:
    """One of the permission's patterns with the names for {username} and {vhost}, literally."""
    for variable, value in (("{username}", permission.user), ("{vhost}", permission.vhost)):
        pattern = pattern.replace(variable, literal(value))
    return pattern


def refused_patterns(
    permissions: Iterable[Permission], topic_permissions: Iterable[TopicPermission]
) -> Iterator[tuple[Permission | TopicPermission, BadPattern]]:
    """The patterns that cannot be used: they give no access."""
    for permission in permissions:
        for pattern in (permission.configure, permission.write, permission.read):
            if (error := PATTERNS.problem(pattern)) is not None:
                yield permission, error
    for topic in topic_permissions:
        for pattern in (topic.write, topic.read):
            if (error := PATTERNS.problem(topic_pattern(topic, pattern))) is not None:
                yield topic, error


def is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False
