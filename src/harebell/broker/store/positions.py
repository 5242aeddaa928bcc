"""How far the sessions of AMQP 0-10 are that survive a restart: which of their commands are executed and stored.

The records of the file (`record_file`) are of sessions:

    kind 1  JSON: virtual host, user, name and timeout of a session that begins, or has another timeout now
    kind 2  its position: what is complete, as `ReceivingHalf.save` gives it
    kind 3  the session has ended: nothing

A position names only commands whose effects are on disk already, so it is never ahead of them. It may be behind: what
was stored last is known by the records of the messages, which have session and command (`queue_log.records`, NUMBERED).
`GroupCommit.covered` says up to which sync the positions are on disk; until then a queue keeps what has these numbers.

The end of a session that lives on (`end_now`) is synced at once: a client that holds more than publications must not
find a session without it.
After damage no session goes on: an old position would have commands executed twice. The file is written anew at each
start, and when it has grown long.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.queue_log.records import NUMBER_BYTES
from harebell.broker.store.record_file import RecordFile, record
from harebell.protocol.v010.receiving import ReceivingHalf

__all__ = ["NUMBER", "Known", "Positions"]

log = logging.getLogger("harebell.broker.session")

NUMBER: Final = Struct(">8sQ")
"""Session and command, as a record of a message has them."""
assert NUMBER.size == NUMBER_BYTES

LONG: Final = 1 << 20  # bytes of the file, above which it is written anew when most of it is out of date
_BEGIN: Final = 1
_POSITION: Final = 2
_END: Final = 3


class Known:
    """A session that was there before the restart.

    position  what was complete, as `ReceivingHalf.save` gives it
    stored    the queues that have the message of a command beyond the position, by its number
    """

    __slots__ = ("_half", "name", "position", "session", "stored", "timeout", "user", "vhost")

    def __init__(self, session: bytes, vhost: str, user: str, name: bytes, timeout: int, position: bytes) -> None:
        self.session = session
        self.vhost = vhost
        self.user = user
        self.name = name
        self.timeout = timeout
        self.position = position
        self.stored: dict[int, set[str]] = {}
        self._half = ReceivingHalf.load(position)

    def has_executed(self, number: int) -> bool:
        """Whether the command is complete by the position."""
        return self._half.is_complete(number)


class _Live:
    """What the file says of a session: its begin, and its last position."""

    __slots__ = ("begin", "position")

    def __init__(self, begin: bytes, position: bytes) -> None:
        self.begin = begin
        self.position = position

    @property
    def size(self) -> int:
        return len(self.begin) + len(self.position)


class Positions:
    """The sessions that survive a restart.

    known    those of before, by virtual host, user and name, that have not come back yet; known_of: how many of a user
    waits    whether a position must not be written yet: declarations that it has are not on disk
    later    calls back a little later: nobody waits for a position but old segments
    """

    deleted = False  # as a Writer of the batch

    def __init__(
        self, path: Path, commit: GroupCommit, changed: Callable[[Positions], None], *, files: Files = os,
        expected: int | None = None,
    ) -> None:  # fmt: skip
        self.known: dict[tuple[str, str, bytes], Known] = {}
        self.known_of: Counter[str] = Counter()
        self.waits: Callable[[], bool] = lambda: False
        self.later: Callable[[Callable[[], None]], object] = lambda call: call()
        self._file = RecordFile(path, commit, files, expected)
        self._commit, self._changed = commit, changed
        self._busy: dict[object, int] = {}  # works that store numbers, and the last sync before each of them
        self._live: dict[bytes, _Live] = {}
        self._moved: dict[bytes, Callable[[], bytes]] = {}
        self._begun: list[bytes] = []  # records to write before the positions
        self._covering: deque[tuple[int, int]] = deque()  # tickets, and the syncs that they cover
        self._dirty = self._covers = False

    # -- after a restart -----------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Read the file, and write it anew if it has anything. OSError when the disk refuses."""
        for known in self._read():
            self.known[known.vhost, known.user, known.name] = known
            self.known_of[known.user] += 1
            self._live[known.session] = _Live(_begin(known), known.position)
        if self._file.size:
            self._rewrite()

    def _read(self) -> list[Known]:
        """The sessions that have begun and not ended."""
        records, torn, damage = self._file.read()
        if damage:
            log.error("%s %s: no session goes on, their clients are told", self._file, damage)
            return []
        if torn:
            log.warning("%s: cut %d bytes of a torn record at its end", self._file, torn)
        begun: dict[bytes, tuple[str, str, bytes, int]] = {}
        positions: dict[bytes, bytes] = {}
        for kind, session, payload in records:
            if kind == _BEGIN:
                vhost, user, name, timeout = json.loads(payload)
                begun[session] = (vhost, user, b64decode(name), timeout)
            elif kind == _POSITION:
                positions[session] = payload
            else:
                begun.pop(session, None)
        found = []
        for session, told in begun.items():
            try:
                if session in positions:
                    found.append(Known(session, *told, positions[session]))
            except ValueError as error:  # of a version that this one does not know
                log.error("%s: session %r of user '%s' does not go on: %s", self._file, told[2], told[1], error)
        return found

    def note(self, queue: str, numbers: list[bytes]) -> bool:
        """Note that a queue has the messages of these commands. Returns whether any of them may be sent again."""
        sessions = {known.session: known for known in self.known.values()}
        needed = False
        for session, number in map(NUMBER.unpack, numbers):
            known = sessions.get(session)
            if known is not None and not known.has_executed(number):
                known.stored.setdefault(number, set()).add(queue)
                needed = True
        return needed

    def take(self, vhost: str, user: str, name: bytes) -> Known | None:
        """The session of that name that was there before the restart, and has come back now."""
        known = self.known.pop((vhost, user, name), None)
        if known is not None:
            self.known_of[user] -= 1
            if not self.known_of[user]:
                del self.known_of[user]
        return known

    def forget(self, known: Known) -> None:
        """A session of before the restart has ended, or its owner is gone, unless it has come back."""
        if self.known.get((known.vhost, known.user, known.name)) is known:
            self.take(known.vhost, known.user, known.name)
            self.end_now(known.session)

    # -- sessions of now -----------------------------------------------------------------------------------------

    def begin(self, vhost: str, user: str, name: bytes, timeout: int, position: bytes) -> bytes:
        """Let a session survive a restart from now on: `position` is what is complete. Returns how it is known here."""
        session = secrets.token_bytes(8)
        known = Known(session, vhost, user, name, timeout, position)
        self._write_begin(known)
        self._begun.append(record(_POSITION, session, position))
        return session

    def renew(self, session: bytes, vhost: str, user: str, name: bytes, timeout: int) -> None:
        """The session has another timeout now."""
        self._write_begin(Known(session, vhost, user, name, timeout, self._live[session].position))

    def _write_begin(self, known: Known) -> None:
        begin = _begin(known)
        self._live[known.session] = _Live(begin, known.position)
        self._begun.append(begin)
        self._touch()

    def moved(self, session: bytes, position: Callable[[], bytes]) -> None:
        """Commands of the session are complete; `position` is called when it is written."""
        if session in self._live:
            if not self._moved:
                self.later(self._touch)
            self._moved[session] = position

    def end(self, session: bytes) -> None:
        """The session is over: it does not survive a restart any more, once that is written."""
        if self._live.pop(session, None) is not None:
            self._moved.pop(session, None)
            self._begun.append(record(_END, session))
            self._touch()

    def end_now(self, session: bytes) -> None:
        """As `end`, and on disk when this returns. OSError when that refuses."""
        if session in self._live:
            self.end(session)
            self._file.append(self._take_begun())
            self._file.sync()

    def _take_begun(self) -> bytes:
        begun = b"".join(self._begun)
        self._begun.clear()
        return begun

    def begin_work(self) -> object:
        """Let no number be forgotten that is stored from now on, until `end_work` gets what this returns."""
        work = object()
        self._busy[work] = self._commit.synced
        return work

    def end_work(self, work: object) -> None:
        """What the work has stored is complete."""
        del self._busy[work]
        if not self._moved and not self._covers:
            self._covers = True
            self.later(self._touch)

    def _touch(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._changed(self)

    # -- writing, as a Writer of the batch -----------------------------------------------------------------------

    def flush(self) -> int:
        """Write what has changed. Returns the ticket of the sync that will cover it. OSError when the disk refuses."""
        self._dirty = False
        if self.waits():
            self._touch()
            return 0
        synced = self._commit.synced
        moved = []
        for session, position in self._moved.items():
            self._live[session].position = saved = position()
            moved.append(record(_POSITION, session, saved))
        ticket = self._file.append(self._take_begun() + b"".join(moved))
        self._moved.clear()
        self._covers = False
        self._covering.append((ticket, next(iter(self._busy.values()), synced)))
        if self._file.size > LONG and self._file.size > 4 * sum(live.size for live in self._live.values()):
            self._rewrite()
        return ticket

    def advance(self) -> None:
        """Act on a finished sync."""
        covering, commit = self._covering, self._commit
        while covering and covering[0][0] <= commit.synced:
            commit.covered = max(commit.covered, covering.popleft()[1])

    def close(self) -> None:
        """Write what has changed, and close the file, synced: as the next start writes it anew."""
        if self._moved or self._begun:
            self.flush()
        if self._file.size:
            self._rewrite()
        self._file.close()

    def _rewrite(self) -> None:
        """Write the file anew, with the sessions that live."""
        live = self._live.items()
        self._file.rewrite(b"".join(each.begin + record(_POSITION, session, each.position) for session, each in live))


def _begin(known: Known) -> bytes:
    told = [known.vhost, known.user, b64encode(known.name).decode(), known.timeout]
    return record(_BEGIN, known.session, json.dumps(told).encode())
