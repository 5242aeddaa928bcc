"""Verification of passwords without blocking the broker's loop.

RabbitMQ's hashes are quick and verified at once. A scrypt hash takes tens of milliseconds, so one thread verifies them
in turn. A right password is remembered as a digest, which covers the hash, under a random key of this process: a client
that logs in again does not wait, and a changed password is verified anew.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT, hash_password, is_quick, verify
from harebell.routing.definitions import User

__all__ = ["Verifier"]

MOST_REMEMBERED: Final = 10_000
MOST_WAITING: Final = 200  # some ten seconds of work: later clients would have given up


class Verifier:
    """`call_soon` runs a callable in the broker's thread, from any thread."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._secret = secrets.token_bytes(32)
        self._remembered: dict[bytes, None] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._nobody = ""  # a hash for unknown users, so that their verification takes as long as that of known ones

    def verify(self, user: User | None, password: bytes, answer: Callable[[bool], None]) -> None:
        """Call `answer` with the result, at once or later in the broker's thread."""
        algorithm = SCRYPT if user is None else user.hashing_algorithm or RABBITMQ_SHA256
        password_hash = "" if user is None else user.password_hash or ""
        if user is not None and (is_quick(algorithm) or not password_hash):
            answer(verify(password, password_hash, algorithm))
            return
        ticket = hmac.digest(self._secret, password_hash.encode() + b"\0" + password, "sha256")
        if user is not None and ticket in self._remembered:
            answer(True)
        elif self._waiting >= MOST_WAITING:
            answer(False)
        else:
            self._waiting += 1
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "harebell-login")
            self._pool.submit(self._work, password, password_hash, ticket, answer)

    def _work(self, password: bytes, password_hash: str, ticket: bytes, answer: Callable[[bool], None]) -> None:
        """Verify one password, in the thread."""
        if not password_hash:
            self._nobody = self._nobody or hash_password(secrets.token_urlsafe())
            verify(password, self._nobody, SCRYPT)
            right = False
        else:
            right = verify(password, password_hash, SCRYPT)
        self._call_soon(lambda: self._done(right, ticket, answer))

    def _done(self, right: bool, ticket: bytes, answer: Callable[[bool], None]) -> None:
        self._waiting -= 1
        if right:
            self._remembered[ticket] = None
            if len(self._remembered) > MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        answer(right)

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
