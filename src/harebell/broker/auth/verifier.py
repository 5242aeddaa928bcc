"""Verification of passwords without blocking the broker's loop.

A scrypt hash takes tens of milliseconds, so a few threads compute them. The addresses take turns: where one sends many
passwords, the others wait for one of them and not for all. When MOST_WAITING wait, the address that has most waiting
loses its last.

What was found right or wrong is remembered as a digest, which covers the hash, under a random key of this process: a
client that logs in again, or that goes on with a password that is wrong, costs no hash; a changed password is verified
anew.

A wrong password takes one scrypt hash, whatever hash the user has, and whether the user exists.

A password that cannot be verified, as the hash is none or the memory is short, is refused, and not remembered as wrong.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT, hash_nobody_has, is_quick, verify
from harebell.routing.definitions import User

__all__ = ["Verdict", "Verifier"]

log = logging.getLogger("harebell.broker.login")

THREADS: Final = max(1, min(4, (os.cpu_count() or 1) // 2))  # the loop needs a processor too
MOST_WAITING: Final = 200  # some ten seconds of work: later clients would have given up
MOST_REMEMBERED: Final = 10_000  # right ones, and as many wrong ones

Verdict: TypeAlias = bool | None
"""Whether a password is right; None: it was not verified, because too many wait."""

Hasher: TypeAlias = Callable[[bytes, str, str], bool]


@dataclass(slots=True)
class _Job:
    """A password to verify against a scrypt hash; `given_up`: it was answered already, without a thread."""

    name: str
    password: bytes
    password_hash: str
    ticket: bytes
    answer: Callable[[Verdict], None]
    given_up: bool = False


class Verifier:
    """`call_soon` runs a callable in the broker's thread, from any thread; `hasher` is `passwords.verify`."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        hasher: Hasher = verify,
        start: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`start` runs a callable in a thread; without it, the verifier has threads of its own."""
        self.running = 0  # passwords in threads
        self._call_soon = call_soon
        self._hasher = hasher
        self._start = start
        self._secret = secrets.token_bytes(32)
        self._right: dict[bytes, None] = {}
        self._wrong: dict[bytes, None] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._queues: dict[str, deque[_Job]] = {}  # by address, the next in turn first
        self._nobody = hash_nobody_has()

    @property
    def waiting(self) -> int:
        """The number of passwords that wait for a thread."""
        return sum(map(len, self._queues.values()))

    def ticket(self, name: str, user: User | None, password: bytes) -> bytes:
        """The digest of a password that is tried for that name, and of the hash that it is tried against."""
        tried = (name, *_hash_of(user))
        return hmac.digest(self._secret, repr(tried).encode("utf-8", "replace") + b"\0" + password, "sha256")

    def recall(self, ticket: bytes) -> Verdict:
        """Whether the password was found right or wrong before; None when it was not tried."""
        return True if ticket in self._right else False if ticket in self._wrong else None

    def verify(
        self, site: str, name: str, user: User | None, password: bytes, answer: Callable[[Verdict], None]
    ) -> None:
        """Verify a password that a client at the address `site` gave for the name `name`, the one of `user` if any.

        Calls `answer` at once or later, in the broker's thread.
        """
        ticket = self.ticket(name, user, password)
        verdict = self.recall(ticket)
        if verdict is not None:
            answer(verdict)
            return
        algorithm, password_hash = _hash_of(user)
        if is_quick(algorithm):
            if self._is_right(name, password, password_hash, algorithm):
                self._remember(ticket, True)
                answer(True)
                return
            password_hash = ""
        self._put(site, _Job(name, password, password_hash or self._nobody, ticket, answer))

    def stop(self) -> None:
        self._queues.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _put(self, site: str, job: _Job) -> None:
        if self.waiting >= MOST_WAITING:
            longest = max(self._queues, key=lambda each: len(self._queues[each]))
            if len(self._queues[longest]) <= len(self._queues.get(site, ())) + 1:
                job.answer(None)
                return
            self._queues[longest].pop().answer(None)
        self._queues.setdefault(site, deque()).append(job)
        self._next()

    def _next(self) -> None:
        """Start what the threads are free for."""
        while self._queues and self.running < THREADS:
            site = next(iter(self._queues))
            queue = self._queues.pop(site)
            job = queue.popleft()
            if queue:
                self._queues[site] = queue  # behind the others
            self.running += 1
            try:
                self._in_thread(lambda job=job: self._work(job))  # type: ignore[misc]
            except RuntimeError as error:  # the system has no thread; the pool may find one later for what it was given
                log.error("the password of user '%s' cannot be verified now: %s", job.name, error)
                self.running -= 1
                job.given_up = True
                job.answer(None)

    def _in_thread(self, work: Callable[[], None]) -> None:
        if self._start is not None:
            self._start(work)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "harebell-login")
        self._pool.submit(work)

    def _work(self, job: _Job) -> None:
        """Verify one password, in a thread."""
        if not job.given_up:
            right = self._is_right(job.name, job.password, job.password_hash, SCRYPT)
            self._call_soon(lambda: self._done(job, right))

    def _is_right(self, name: str, password: bytes, password_hash: str, algorithm: str) -> Verdict:
        """Whether the password is right, in any thread; None when that cannot be known."""
        try:
            return self._hasher(password, password_hash, algorithm)
        except Exception:  # whatever it is, the thread is free again, and the client is answered
            log.exception("the password of user '%s' cannot be verified: set it anew, if this comes again", name)
            return None

    def _done(self, job: _Job, right: Verdict) -> None:
        self.running -= 1
        if right is not None:
            self._remember(job.ticket, right)
        self._next()
        job.answer(right is True)

    def _remember(self, ticket: bytes, right: bool) -> None:
        book = self._right if right else self._wrong
        book[ticket] = None
        if len(book) > MOST_REMEMBERED:
            del book[next(iter(book))]


def _hash_of(user: User | None) -> tuple[str, str]:
    if user is None:
        return SCRYPT, ""
    return user.hashing_algorithm or RABBITMQ_SHA256, user.password_hash or ""
