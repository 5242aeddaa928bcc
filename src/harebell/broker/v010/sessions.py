"""The sessions of a node by virtual host, user and name: takeover, and how long and how many outlive their connection.

Limits (`config.Limits`): a session is granted at most `session_timeout` seconds, and none where `max_sessions`, or
`max_sessions_per_user`, last already. Sessions without a connection hold at most `session_memory` bytes, half of that
one user's: one that exceeds them ends when it loses its connection. The client learns of each: by the timeout that it
is granted, and by a session that is new when it attaches again.

After a restart of the broker, sessions that only publish are there again (`survival`), without a connection and with
their whole timeout; all others are new.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, TypeAlias

from harebell.broker.node import Node
from harebell.broker.slices import Work
from harebell.broker.timers import Timer
from harebell.broker.v010.fragments import Fragments
from harebell.broker.v010.link import Link
from harebell.broker.v010.session import Session
from harebell.broker.vhost import VirtualHost

__all__ = ["Sessions"]

log = logging.getLogger("harebell.broker.session")

Key: TypeAlias = "tuple[VirtualHost, str, bytes]"

FOREVER: Final = 0xFFFF_FFFF  # seconds: how a request for no end is counted


class Sessions:
    """All sessions of a node that are attached, or last."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sessions: dict[Key, Session] = {}
        self._expiries: dict[Session, Timer] = {}  # of detached ones
        self._held: dict[Session, int] = {}  # bytes of these
        self._bytes: Counter[str] = Counter()  # ..., by user
        self._lasting: Counter[str] = Counter()  # sessions with a timeout, by user; those of before a restart are known
        self._closing = False
        self.fragments = Fragments(node)
        for known in node.store.positions.known.values():
            node.timers.at(node.timers.now() + 1000 * known.timeout, partial(node.store.positions.forget, known))

    def find(self, connection: Link, name: bytes) -> Session | None:
        """The session of that name of the connection's user."""
        found = self._sessions.get((connection.vhost, connection.user, name))
        return None if found is None or found.ended else found

    def add(self, connection: Link, number: int, name: bytes) -> Session:
        """A new session."""
        known = self._node.store.positions.take(connection.vhost.name, connection.user, name)
        session = Session(connection, number, name, self.end, self.fragments, known)
        if known is not None:
            session.timeout = known.timeout
            self._lasting[connection.user] += known.timeout > 0
        self._sessions[connection.vhost, connection.user, name] = session
        self._node.sessions.add(session)
        return session

    def revive(self, session: Session) -> None:
        """Note that a session is attached again."""
        timer = self._expiries.pop(session, None)
        if timer is not None:
            timer.cancel()
        self._bytes[session.user] -= self._held.pop(session, 0)
        session.ends_at = None

    def grant(self, session: Session, asked: int | None) -> int:
        """The timeout in seconds that a session is granted, which asked for so many; None: for no end."""
        limits = self._node.limits
        most = int(limits.session_timeout)
        granted = min(FOREVER if asked is None else asked, most)
        if granted and not session.timeout:
            positions = self._node.store.positions  # those of before a restart last too, until they end there
            lasting = self._lasting.total() + len(positions.known)
            own = self._lasting[session.user] + positions.known_of[session.user]
            if limits.max_sessions is not None and lasting >= limits.max_sessions:
                log.warning("%s is granted no timeout: %d sessions last already", session.name, lasting)
                granted = 0
            if limits.max_sessions_per_user is not None and own >= limits.max_sessions_per_user:
                log.warning("%s is granted no timeout: %d of the user last already", session.name, own)
                granted = 0
        self._lasting[session.user] += (granted > 0) - (session.timeout > 0)
        if granted != session.timeout:
            session.timeout = granted
            session.survival.granted(granted)
        return granted

    def leave(self, session: Session) -> Work:
        """A session has lost its connection, or was detached: it waits for another one, or ends."""
        session.detach()
        if not session.timeout or session.ended or self._closing or not self._has_memory(session):
            yield from self.end(session)
            return
        timers = self._node.timers
        size = self._held[session] = session.kept_bytes
        self._bytes[session.user] += size
        session.ends_at = timers.now() + 1000 * session.timeout
        self._expiries[session] = timers.at(session.ends_at, lambda: self._expire(session))

    def _has_memory(self, session: Session) -> bool:
        most, size = self._node.limits.session_memory, session.kept_bytes
        if size + self._bytes.total() <= most and size + self._bytes[session.user] <= most // 2:
            return True
        log.warning("%s ends with its connection: sessions without one hold too many bytes", session.name)
        return False

    def _expire(self, session: Session) -> None:
        self._node.batch.slices.run(self.end(session))

    def end(self, session: Session) -> Work:
        """End a session: what it held returns to the queues."""
        self.revive(session)
        self.forget(session)
        if not self._closing:
            session.survival.end()
        yield from session.ending()

    def forget(self, session: Session) -> None:
        """Drop a session that has ended, so that its name is free."""
        self._node.sessions.discard(session)
        key = (session.vhost, session.user, session.session_name)
        if self._sessions.get(key) is session:
            del self._sessions[key]
            self._lasting[session.user] -= session.timeout > 0
            for counter in (self._lasting, self._bytes):
                if not counter[session.user]:
                    del counter[session.user]

    def detached(self) -> Iterator[Session]:
        """The sessions that wait for another connection."""
        return iter(tuple(self._expiries))

    def close(self) -> None:
        """End the sessions without a connection, and from now on those that lose theirs: the broker stops."""
        self._closing = True
        for session in self.detached():
            self._node.batch.slices.run(self.end(session))
        self._node.batch.slices.finish()
        self._node.batch.end()
