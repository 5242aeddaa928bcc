"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677): a login in which the client never sends the password.

Keys are kept for users who are to have them: whoever reads them tries passwords at the price of PBKDF2, not of scrypt.
The stored form of a password is "SCRAM-SHA-256$4096:SALT$STOREDKEY:SERVERKEY" (RFC 5803), which cannot be made from
another hash. Channel binding is not offered. An unknown user must send a proof too, for a made-up salt that is the same
each time, so that a client cannot learn which users exist.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Keys", "ScramServer", "make_keys", "made_up_keys", "parse_keys"]

ITERATIONS: Final = 600_000  # some 0.2 s, which the client bears at each login: to guess costs about as much as scrypt
_MOST_ITERATIONS: Final = 1_000_000
_NAME: Final = "SCRAM-SHA-256"


class Keys(NamedTuple):
    """The server's part of a password: enough to verify a proof, not to log in."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (_base64(each) for each in (self.salt, self.stored_key, self.server_key))
        return f"{_NAME}${self.iterations}:{salt}${stored}:{server}"

    def __repr__(self) -> str:
        return "Keys(...)"


def make_keys(password: str, iterations: int = ITERATIONS) -> Keys:
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", _prepared(password).encode(), salt, iterations)
    client_key = _hmac(salted, b"Client Key")
    return Keys(iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))


def made_up_keys(secret: bytes, user: str, iterations: Sequence[int]) -> Keys:
    """Keys that no password matches, for a name always with the same salt, and one of these numbers of iterations."""
    made_up = _hmac(secret, user.encode("utf-8", "surrogateescape"))
    salt, number = made_up[:16], int.from_bytes(made_up[16:], "big")
    return Keys(
        iterations[number % len(iterations)] if iterations else ITERATIONS,
        salt,
        secrets.token_bytes(32),
        secrets.token_bytes(32),
    )


def parse_keys(text: str) -> Keys:
    """Parse what `str(keys)` wrote. Raises ValueError for other text."""
    name, cost, keys = text.split("$")
    iterations, salt = cost.split(":")
    stored, server = keys.split(":")
    found = Keys(int(iterations), *(base64.b64decode(each, validate=True) for each in (salt, stored, server)))
    if name != _NAME or not 1 <= found.iterations <= _MOST_ITERATIONS or len(found.stored_key) != 32:
        raise ValueError("no keys of SCRAM-SHA-256")
    return found


class ScramServer:
    """One login: `begin` takes the client's first message, the caller passes keys to `challenge`; `finish` ends it.

    Raises ValueError, with the reason, when a message is malformed or the proof is wrong.
    """

    def __init__(self, nonce: str | None = None) -> None:
        self._nonce = secrets.token_urlsafe(18) if nonce is None else nonce
        self._header = ""
        self._first = ""
        self._server_first = ""
        self._keys: Keys | None = None

    def begin(self, message: bytes) -> str:
        """The user's name from the client's first message."""
        text = message.decode("utf-8")
        binding, _, rest = text.partition(",")
        authorization, _, bare = rest.partition(",")
        if binding not in ("n", "y"):
            raise ValueError("channel binding is not offered")
        fields = bare.split(",")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r=") or len(fields[1]) < 3:
            raise ValueError("malformed first message")
        user = _name(fields[0][2:])
        if authorization and (not authorization.startswith("a=") or _name(authorization[2:]) != user):
            raise ValueError("authorization as somebody else")
        self._header, self._first = f"{binding},{authorization},", bare
        self._nonce = fields[1][2:] + self._nonce
        return user

    def challenge(self, keys: Keys) -> bytes:
        self._keys = keys
        self._server_first = f"r={self._nonce},s={_base64(keys.salt)},i={keys.iterations}"
        return self._server_first.encode()

    def finish(self, message: bytes) -> bytes:
        """The server's own proof. Raises ValueError when the client's proof is wrong."""
        if self._keys is None:
            raise ValueError("no keys yet")
        text = message.decode("utf-8")
        without_proof, _, proof = text.rpartition(",p=")
        fields = without_proof.split(",")
        if len(fields) < 2 or fields[0] != f"c={_base64(self._header.encode())}" or fields[1] != f"r={self._nonce}":
            raise ValueError("malformed last message")
        auth = f"{self._first},{self._server_first},{without_proof}".encode()
        raw = base64.b64decode(proof, validate=True)
        signature = _hmac(self._keys.stored_key, auth)
        if len(raw) != len(signature):
            raise ValueError("malformed proof")
        client_key = bytes(a ^ b for a, b in zip(raw, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._keys.stored_key):
            raise ValueError("wrong password")
        return b"v=" + base64.b64encode(_hmac(self._keys.server_key, auth))


def _name(escaped: str) -> str:
    if "=" in escaped.replace("=2C", "").replace("=3D", ""):
        raise ValueError("malformed user name")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _prepared(password: str) -> str:
    """SASLprep (RFC 4013) without its prohibitions: a password with prohibited characters stays as it is."""
    kept = [each for each in password if not stringprep.in_table_b1(each)]
    normal = unicodedata.normalize("NFKC", "".join(" " if stringprep.in_table_c12(each) else each for each in kept))
    return password if any(stringprep.in_table_c21_c22(each) for each in normal) else normal


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
