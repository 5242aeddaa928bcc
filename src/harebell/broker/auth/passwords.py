"""Password hashes: how they are made, written and verified. The module knows no users.

Algorithms, by their names in definitions:

- `harebell_password_hashing_scrypt`, the default: "ln=14,r=8,p=1$SALT$KEY", where 2**ln, r and p are scrypt's cost (RFC
  7914) and salt (16 bytes) and key (32 bytes) are in base64. One takes some 50 ms and 16 MB; the hash contains the
  cost, so that later versions can raise it.
- `rabbit_password_hashing_sha256` and `rabbit_password_hashing_sha512`, RabbitMQ's: base64 of a salt of 4 bytes and the
  digest of salt and password. For users who come from RabbitMQ or will be exported to it.
- MD5, which RabbitMQ used until 3.6, is refused: such a password must be set anew.

No password matches an empty hash. All comparisons take constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

from harebell.errors import InvalidArgument

__all__ = [
    "RABBITMQ_SHA256",
    "RABBITMQ_SHA512",
    "SCRYPT",
    "check_hash",
    "hash_nobody_has",
    "hash_password",
    "is_quick",
    "verify",
]

SCRYPT: Final = "harebell_password_hashing_scrypt"
RABBITMQ_SHA256: Final = "rabbit_password_hashing_sha256"
RABBITMQ_SHA512: Final = "rabbit_password_hashing_sha512"

_DIGESTS: Final = {RABBITMQ_SHA256: "sha256", RABBITMQ_SHA512: "sha512"}
_SALT_BYTES: Final = 4  # RabbitMQ's
_COST: Final = (14, 8, 1)
_MOST_MEMORY: Final = 257 << 20  # bytes that scrypt may use, so that an imported hash cannot exhaust the memory
_FORM: Final = re.compile(r"ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)", re.ASCII)


def hash_password(password: str, algorithm: str = SCRYPT) -> str:
    """The hash to store. Raises InvalidArgument for an empty password or an unknown algorithm."""
    if not password:
        raise InvalidArgument("a password cannot be empty: give one, or none at all for a user who logs in without")
    if algorithm == SCRYPT:
        salt = secrets.token_bytes(16)
        log_n, r, p = _COST
        key = _scrypt(password.encode(), salt, log_n, r, p, 32)
        return f"ln={log_n},r={r},p={p}${_base64(salt)}${_base64(key)}"
    salt = secrets.token_bytes(_SALT_BYTES)
    return _base64(salt + hashlib.new(_digest(algorithm), salt + password.encode()).digest())


def hash_nobody_has() -> str:
    """A scrypt hash of no password: to verify one against it takes as long as against a user's."""
    log_n, r, p = _COST
    return f"ln={log_n},r={r},p={p}${_base64(secrets.token_bytes(16))}${_base64(secrets.token_bytes(32))}"


def check_hash(password_hash: str, algorithm: str) -> None:
    """Raise InvalidArgument unless `verify` can use the hash; the text does not contain the hash."""
    if algorithm == SCRYPT:
        if password_hash:
            _scrypt_parts(password_hash)
        return
    size = _SALT_BYTES + hashlib.new(_digest(algorithm)).digest_size
    try:
        right = len(base64.b64decode(password_hash, validate=True)) in (0, size)
    except binascii.Error:
        right = False
    if not right:
        raise InvalidArgument(f"password hash is not base64 of {size} bytes, as {algorithm} makes it")


def is_quick(algorithm: str) -> bool:
    """Whether verifying takes microseconds, so that an event loop may do it."""
    return algorithm in _DIGESTS


def verify(password: bytes, password_hash: str, algorithm: str) -> bool:
    """Whether the password is right. False for an empty hash and for an empty password."""
    if not password_hash or not password:
        return False
    if algorithm == SCRYPT:
        log_n, r, p, salt, key = _scrypt_parts(password_hash)
        return hmac.compare_digest(_scrypt(password, salt, log_n, r, p, len(key)), key)
    raw = base64.b64decode(password_hash)
    salt, digest = raw[:_SALT_BYTES], raw[_SALT_BYTES:]
    return hmac.compare_digest(hashlib.new(_digest(algorithm), salt + password).digest(), digest)


def _digest(algorithm: str) -> str:
    digest = _DIGESTS.get(algorithm)
    if digest is None:
        known = ", ".join((SCRYPT, *_DIGESTS))
        raise InvalidArgument(f"hashing algorithm '{algorithm}' is not one of {known}: set the user's password anew")
    return digest


def _scrypt(password: bytes, salt: bytes, log_n: int, r: int, p: int, size: int) -> bytes:
    memory = _memory(log_n, r, p)
    return hashlib.scrypt(password, salt=salt, n=1 << log_n, r=r, p=p, maxmem=memory, dklen=size)


def _memory(log_n: int, r: int, p: int) -> int:
    """The bytes that scrypt uses, as OpenSSL counts them."""
    return 128 * r * ((1 << log_n) + 2 + p)


def _scrypt_parts(password_hash: str) -> tuple[int, int, int, bytes, bytes]:
    match = _FORM.fullmatch(password_hash)
    try:
        if match is None:
            raise ValueError
        log_n, r, p = (int(match[at]) for at in (1, 2, 3))
        salt, key = (base64.b64decode(match[at], validate=True) for at in (4, 5))
        costs = 0 < log_n < 16 * r and 0 < p <= 16  # N < 2**(16 r): RFC 7914
        if not costs or _memory(log_n, r, p) > _MOST_MEMORY or len(key) < 16:
            raise ValueError
    except ValueError:
        raise InvalidArgument(
            f'password hash is not "ln=N,r=R,p=P$SALT$KEY" with N below 16 R and P up to 16, within '
            f"{_MOST_MEMORY >> 20} MiB, as {SCRYPT} makes it: set the user's password anew"
        ) from None
    return log_n, r, p, salt, key


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
