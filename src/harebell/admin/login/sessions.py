"""Sessions of consoles: a browser logs in once, and sends a cookie with an opaque id instead of the password.

A session ends IDLE seconds after its last request, LONGEST seconds after its login, at a logout, and when its user is
deleted or gets another password: then the user is another one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from harebell.broker.auth.users import Users

__all__ = ["Session", "Sessions"]

IDLE: Final = 30 * 60.0  # seconds
LONGEST: Final = 12 * 3600.0  # seconds: a working day
MOST: Final = 1000  # sessions; beyond that the one that was idle longest ends
MOST_OF_USER: Final = 50


class Session:
    """One session. `id` is what the cookie has."""

    __slots__ = ("began", "id", "secret", "used", "user")

    def __init__(self, user: str, secret: object, now: float) -> None:
        self.id = secrets.token_urlsafe(32)
        self.user = user
        self.secret = secret  # what the user's password was verified against
        self.began = self.used = now


class Sessions:
    """The sessions of one node. `clock` gives seconds."""

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        self._users, self._clock = users, clock
        self._sessions: dict[str, Session] = {}  # the one that was used last at the end

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: str) -> Session:
        """A new session of the user, whose password was verified just now."""
        own = [each for each in self._sessions.values() if each.user == user]
        if len(own) >= MOST_OF_USER:
            del self._sessions[own[0].id]
        if len(self._sessions) >= MOST:
            del self._sessions[next(iter(self._sessions))]
        session = Session(user, self.secret(user), self._clock())
        self._sessions[session.id] = session
        return session

    def find(self, id: str) -> Session | None:
        """The session with that id, which counts as used now; None when there is none (any more)."""
        session = self._sessions.pop(id, None)
        if session is None:
            return None
        now = self._clock()
        if self._ended(session, now):
            return None
        session.used = now
        self._sessions[id] = session
        return session

    def holds(self, id: str) -> bool:
        """Whether there is a session with that id, without using it."""
        session = self._sessions.get(id)
        return session is not None and not self._ended(session, self._clock())

    def _ended(self, session: Session, now: float) -> bool:
        late = now - session.used > IDLE or now - session.began > LONGEST
        return late or session.secret != self.secret(session.user)

    def end(self, id: str) -> None:
        self._sessions.pop(id, None)

    def secret(self, name: str) -> object:
        """What a user's password is verified against now; None without such a user."""
        user = self._users.users.get(name)
        return None if user is None else (user.hashing_algorithm, user.password_hash)
