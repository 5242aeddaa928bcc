"""Users, their permissions, and the PLAIN mechanism (RFC 4616).

Records are those of a definitions file, and are kept as they are. Permissions are kept, not enforced. `guest` may come
from the machine's own addresses only, as with RabbitMQ.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import secrets
from dataclasses import replace
from typing import Final

from warren.errors import InvalidArgument, NotFound
from warren.routing.definitions import Permission, TopicPermission, User

__all__ = ["MECHANISMS", "Users", "read_plain"]

MECHANISMS = b"PLAIN"
HASHING: Final = "rabbit_password_hashing_sha256"
SALT_BYTES: Final = 4
_DIGESTS: Final = {HASHING: "sha256", "rabbit_password_hashing_sha512": "sha512", "rabbit_password_hashing_md5": "md5"}


class Users:
    """`users` by name, `permissions` by (vhost, user), `topic_permissions` by (vhost, user, exchange)."""

    def __init__(self) -> None:
        guest = User("guest", _hashed("guest"), HASHING, ("administrator",))
        self.users: dict[str, User] = {guest.name: guest}
        everything = Permission("/", "guest", ".*", ".*", ".*")
        self.permissions: dict[tuple[str, str], Permission] = {("/", "guest"): everything}
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}

    def put(self, user: User) -> None:
        """Keep the user, in place of one of that name; a password, which a file written by hand may have, is hashed.

        InvalidArgument for a hash that cannot be one.
        """
        extra = dict(user.extra)
        password = extra.pop("password", None)
        if isinstance(password, str):
            user = replace(user, password_hash=_hashed(password), hashing_algorithm=HASHING, extra=extra)
        try:
            base64.b64decode(user.password_hash or "", validate=True)
        except binascii.Error:
            raise InvalidArgument(f"user '{user.name}': password hash is not base64") from None
        self.users[user.name] = user

    def remove(self, name: str) -> None:
        """Forget the user and what it may do. NotFound when there is none."""
        self._check_known(name)
        del self.users[name]
        self.permissions = {key: each for key, each in self.permissions.items() if key[1] != name}
        self.topic_permissions = {key: each for key, each in self.topic_permissions.items() if key[1] != name}

    def set_permission(self, permission: Permission) -> None:
        """NotFound for an unknown user, InvalidArgument for a pattern that is none."""
        self._check_known(permission.user)
        _check_patterns(permission.configure, permission.write, permission.read)
        self.permissions[permission.vhost, permission.user] = permission

    def clear_permission(self, vhost: str, user: str) -> None:
        self.permissions.pop((vhost, user), None)

    def set_topic_permission(self, permission: TopicPermission) -> None:
        """As `set_permission`."""
        self._check_known(permission.user)
        _check_patterns(permission.write, permission.read)
        self.topic_permissions[permission.vhost, permission.user, permission.exchange] = permission

    def clear_topic_permission(self, vhost: str, user: str, exchange: str) -> None:
        self.topic_permissions.pop((vhost, user, exchange), None)

    def forget_vhost(self, name: str) -> None:
        self.permissions = {key: each for key, each in self.permissions.items() if key[0] != name}
        self.topic_permissions = {key: each for key, each in self.topic_permissions.items() if key[0] != name}

    def login(self, user: str, password: str, peer_host: str) -> bool:
        """Whether the credentials are right and good for a peer at that address."""
        known = self.users.get(user)
        right = known is not None and _is_right(known, password)
        return right and (user != "guest" or is_loopback(peer_host))

    def _check_known(self, user: str) -> None:
        if user not in self.users:
            raise NotFound(f"no user '{user}'")


def _check_patterns(*patterns: str) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(f"'{pattern}' is not a regular expression: {error}") from None


def _hashed(password: str) -> str:
    """The hash that RabbitMQ keeps: base64 of four bytes of salt and the SHA-256 of salt and password."""
    salt = secrets.token_bytes(SALT_BYTES)
    return base64.b64encode(salt + _digest("sha256", salt, password)).decode()


def _is_right(user: User, password: str) -> bool:
    digest = _DIGESTS.get(user.hashing_algorithm or HASHING)
    try:
        kept = base64.b64decode(user.password_hash or "", validate=True)
    except binascii.Error:
        return False
    if digest is None or len(kept) <= SALT_BYTES:
        return False
    return hmac.compare_digest(kept[SALT_BYTES:], _digest(digest, kept[:SALT_BYTES], password))


def _digest(name: str, salt: bytes, password: str) -> bytes:
    return hashlib.new(name, salt + password.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def read_plain(response: bytes) -> tuple[str, str] | None:
    """User and password of a PLAIN response (authzid NUL user NUL password); None when it is none."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        return None
    return parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "surrogateescape")
