"""Transactions that are prepared, or whose commit has begun: all or nothing, over a kill.

They are branches of distributed transactions, and commits of the class tx, whose xid is `LOCAL`. Those branches are
here, too, whose outcome is not their manager's, until it forgets them: mixed, or decided by an administrator.

The records of the file (`record_file`) are of branches, or of such commits:

    kind 1  the branch is prepared: what it holds
    kind 2  it is to be committed: what it holds, or nothing, when that was said before
    kind 3  it is over: its messages are in their queues, and those that it took are settled; or it was rolled back
    kind 4  as kind 2, by an administrator's decision
    kind 5  it is over, but to be forgotten: what became of it
    kind 6  a part of what it holds: more follows, the last in a record of kind 1 or 2, without which nothing was begun
    kind 7  it is over, and was the last commit of a session that may ask for it: which, JSON

What a branch holds is JSON, its length before it (u32), and the frames of its messages behind it. The JSON has the xid,
the virtual host, the user, the messages (queues, address, other marks, number of bytes) and the places in queues of
the messages that it took, or rejected; in a record of kind 5 there are none of these, but the outcome. `folders` has
the folder of each of these queues (`store`), by its name: a queue that was declared again has another one, and nothing
in it is the branch's; `stream_folders` the same of streams. Records of older versions have neither.

A commit that was interrupted is done again at the start: each message is stored with the branch and its place in it
(`positions.NUMBER`), so that a queue that has it does not get it again; of a stream the part behind the offset that it
had is looked through. After damage all branches that can be read are
in doubt: no commit is done again, because it may be over. Commits of the class tx stay as they are then: what was
answered is whole on disk, and needs no record.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from harebell.broker.message import STORED_CHANNEL, Address, MarkedMessage, Message, NumberedMessage
from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.positions import NUMBER
from harebell.broker.store.queue_log.journal import decode_marks, encode_marks
from harebell.broker.store.record_file import RecordFile, record
from harebell.defaults import FRAME_MAX
from harebell.protocol.v091.content import stored_content

__all__ = ["LOCAL", "KeptBranch", "KeptMessage", "LastCommit", "Place", "PreparedBranches"]

log = logging.getLogger("harebell.broker.transactions")

LONG: Final = 16 << 20  # bytes of the file, above which it is written anew when most of it is out of date
_PREPARED: Final = 1
_COMMITTED: Final = 2
_OVER: Final = 3
_COMMITTED_BY_HAND: Final = 4
_TO_FORGET: Final = 5
_PART: Final = 6
_LAST: Final = 7
_DECIDED: Final = (_COMMITTED, _COMMITTED_BY_HAND)


LOCAL: Final = (-1, b"", b"")
"""In place of an xid: a commit of the class tx. On the wire a format is not negative."""


Place: TypeAlias = "tuple[str, int, str]"
"""Where a message is: queue, position in it, and the queue's folder; "" in a record of an older version."""


class LastCommit(NamedTuple):
    """The last commit of a session: whose, the number of its command, and the seconds that the session lasts."""

    vhost: str
    user: str
    name: bytes
    number: int
    timeout: int

    @property
    def session(self) -> tuple[str, str, bytes]:
        return self[:3]

    def encode(self) -> bytes:
        return json.dumps([self.vhost, self.user, b64encode(self.name).decode(), self.number, self.timeout]).encode()

    @classmethod
    def decode(cls, data: bytes) -> LastCommit:
        vhost, user, name, number, timeout = json.loads(data)
        return cls(vhost, user, b64decode(name), number, timeout)


class KeptMessage(NamedTuple):
    """A message and the names of its queues; None: it is routed again."""

    message: Message
    queues: tuple[str, ...] | None


class KeptBranch:
    """A branch on disk.

    key       how it is known there
    taken     the place of each message that it took; no two queues there have one name
    rejected  the same of each that it rejects
    by        the session whose commit it is, where that may ask for it
    decided   it is to be committed
    by_hand   an administrator has decided that
    outcome   what became of it, when it is over, but to be forgotten; else ""
    streams   the streams of its messages, each with an offset that is below theirs, and its folder
    stored    the queues that have a message of the branch already, by its place in the branch
    """

    __slots__ = (
        "by", "by_hand", "decided", "key", "messages", "outcome", "rejected", "stored", "streams", "taken", "user",
        "vhost", "xid",
    )  # fmt: skip

    def __init__(
        self,
        xid: tuple[int, bytes, bytes],
        vhost: str,
        user: str,
        messages: list[KeptMessage],
        taken: list[Place],
    ) -> None:
        self.key = b""
        self.xid = xid
        self.vhost = vhost
        self.user = user
        self.messages = messages
        self.taken = taken
        self.rejected: list[Place] = []
        self.by: LastCommit | None = None
        self.decided = self.by_hand = False
        self.outcome = ""
        self.streams: dict[str, tuple[int, str]] = {}
        self.stored: dict[int, set[str]] = {}

    def encode(self) -> bytes:
        frames, told = list[bytes](), list[object]()
        for message, queues in self.messages:
            data = message.content.recut(STORED_CHANNEL, FRAME_MAX)
            frames.append(data)
            wire = b64encode(message.address.wire).decode()
            marks = b"" if type(message) is Message else encode_marks(message)
            told.append([queues, wire, b64encode(marks).decode(), len(data)])
        form, global_id, branch_id = self.xid
        folders = {queue: folder for queue, _, folder in (*self.taken, *self.rejected)}
        stream_folders = {stream: folder for stream, (_, folder) in self.streams.items()}
        head = json.dumps(
            {
                "xid": [form, b64encode(global_id).decode(), b64encode(branch_id).decode()],
                "vhost": self.vhost,
                "user": self.user,
                "messages": told,
                "taken": [place[:2] for place in self.taken],
                **({"rejected": [place[:2] for place in self.rejected]} if self.rejected else {}),
                **({"streams": {name: offset for name, (offset, _) in self.streams.items()}} if self.streams else {}),
                **({"folders": folders} if folders else {}),
                **({"stream_folders": stream_folders} if stream_folders else {}),
                **({"by": self.by.encode().decode()} if self.by else {}),
                **({"outcome": self.outcome} if self.outcome else {}),
            }
        ).encode()
        return b"".join((len(head).to_bytes(4, "big"), head, *frames))

    @classmethod
    def decode(cls, data: bytes) -> KeptBranch:
        at = 4 + int.from_bytes(data[:4], "big")
        told: dict[str, Any] = json.loads(data[4:at])
        messages = []
        for queues, wire, marks, size in told["messages"]:
            address = Address.read(b64decode(wire))
            content = stored_content(STORED_CHANNEL, data[at : at + size])
            at += size
            message = decode_marks(b64decode(marks), address, content) if marks else Message(address, content)
            messages.append(KeptMessage(message, None if queues is None else tuple(queues)))
        form, global_id, branch_id = told["xid"]
        xid = (form, b64decode(global_id), b64decode(branch_id))
        folders: dict[str, str] = told.get("folders", {})
        taken, rejected = (
            [(queue, position, folders.get(queue, "")) for queue, position in told.get(which, ())]
            for which in ("taken", "rejected")
        )
        self = cls(xid, told["vhost"], told["user"], messages, taken)
        self.rejected = rejected
        self.by = LastCommit.decode(told["by"].encode()) if "by" in told else None
        self.outcome = told.get("outcome", "")
        folders = told.get("stream_folders", {})
        self.streams = {name: (offset, folders.get(name, "")) for name, offset in told.get("streams", {}).items()}
        return self

    def new_part(self) -> KeptBranch:
        """A part of what it holds, with nothing in it."""
        part = KeptBranch(self.xid, self.vhost, self.user, [], [])
        part.key = self.key = self.key or secrets.token_bytes(8)
        return part

    def extend(self, part: KeptBranch) -> None:
        """Add what the next record of it has."""
        self.messages += part.messages
        self.taken += part.taken
        self.rejected += part.rejected
        self.streams.update(part.streams)
        self.by = part.by

    def number(self, message: Message, place: int) -> Message:
        """The message at that place, with its number."""
        if type(message) is Message:
            return NumberedMessage(message.address, message.content, NUMBER.pack(self.key, place))
        return MarkedMessage(
            message.address, message.content, message.keys, message.bcc,
            died=message.died, ttl=message.ttl, origin=message.origin, number=NUMBER.pack(self.key, place),
        )  # fmt: skip


class PreparedBranches:
    """The file. `found` are the branches of before a restart, until somebody takes them.

    last   the last commits of sessions of before, by their keys
    later  calls back a little later: nobody waits for the end of a commit
    """

    deleted = False  # as a Writer of the batch

    def __init__(
        self, path: Path, commit: GroupCommit, changed: Callable[[PreparedBranches], None], *, files: Files = os,
        expected: int | None = None,
    ) -> None:  # fmt: skip
        self.found: dict[bytes, KeptBranch] = {}
        self.last: dict[bytes, LastCommit] = {}
        self._redone: dict[bytes, KeptBranch] = {}  # commits of before that are carried out now
        self.later: Callable[[Callable[[], None]], object] = lambda call: call()
        self._file = RecordFile(path, commit, files, expected)
        self._commit, self._changed = commit, changed
        self._live: dict[bytes, list[bytes]] = {}  # the records of each branch that is not over
        self._new: list[bytes] = []
        self._over: list[tuple[bytes, Callable[[], None]]] = []  # ends to be written with what comes next
        self._written: deque[tuple[int, list[tuple[bytes, Callable[[], None]]]]] = deque()  # by the sync of that ticket
        self._dirty = False

    def recover(self) -> None:
        """Read the file, and write it anew if it has anything. OSError when the disk refuses."""
        records, torn, damage = self._file.read()
        if damage:
            log.error(
                "%s %s: prepared transactions may be lost, and those that are left are in doubt, though their commit "
                "or rollback may be over", self._file, damage,
            )  # fmt: skip
        elif torn:
            log.warning("%s: cut %d bytes of a torn record at its end", self._file, torn)
        parts = set[bytes]()  # of those whose last record is to come
        for kind, key, payload in records:
            if kind in (_OVER, _LAST):
                self.found.pop(key, None)
                self.last.pop(key, None)
                self._live.pop(key, None)
                if kind == _LAST and not damage:
                    self.last[key], self._live[key] = LastCommit.decode(payload), [record(kind, key, payload)]
                continue
            if payload:
                branch = KeptBranch.decode(payload)
                if key in parts:
                    self.found[key].extend(branch)
                else:
                    self.found[key], branch.key = branch, key
                (parts.add if kind == _PART else parts.discard)(key)
            if key in self.found:
                branch = self.found[key]
                branch.decided = kind in _DECIDED and not damage
                branch.by_hand = kind == _COMMITTED_BY_HAND and not damage
                if kind == _TO_FORGET:
                    self._live.pop(key, None)
                self._live.setdefault(key, []).append(record(kind, key, payload))
        for key, branch in tuple(self.found.items()):
            if key in parts or (branch.xid == LOCAL and not branch.decided):
                del self.found[key], self._live[key]
            elif branch.by is not None:
                self.last[key], self._redone[key] = branch.by, branch
        self._keep_last()
        if self._file.size:
            self._file.rewrite(b"".join(self._records()))

    def _keep_last(self) -> None:
        """Keep one commit of each session, its last."""
        by_session = dict[tuple[str, str, bytes], bytes]()
        for key, last in sorted(self.last.items(), key=lambda each: each[1].number):
            before = by_session.get(last.session)
            by_session[last.session] = key
            if before is not None and before in self.found:
                self.found[before].by = None
            elif before is not None:
                del self._live[before]
        self.last = {key: self.last[key] for key in by_session.values()}

    def note(self, queue: str, numbers: Iterable[bytes]) -> bool:
        """Note that a queue has these messages. Returns whether any of them is of a commit that is done again."""
        needed = False
        for key, place in map(NUMBER.unpack, numbers):
            branch = self.found.get(key)
            if branch is not None and branch.decided:
                branch.stored.setdefault(place, set()).add(queue)
                needed = True
        return needed

    def has(self, branch: KeptBranch) -> bool:
        """Whether anything of the branch was written, and no end of it."""
        return branch.key in self._live

    def keep(self, branch: KeptBranch, *, decided: bool) -> None:
        """Write what a branch holds: it is prepared, or `decided`, which is its commit in one phase."""
        branch.key, branch.decided = branch.key or secrets.token_bytes(8), decided
        self._add(branch.key, record(_COMMITTED if decided else _PREPARED, branch.key, branch.encode()))

    def keep_part(self, branch: KeptBranch) -> None:
        """Write a part of what a branch holds, before the rest of it is kept."""
        branch.key = branch.key or secrets.token_bytes(8)
        self._add(branch.key, record(_PART, branch.key, branch.encode()))

    def decide(self, branch: KeptBranch, *, by_hand: bool) -> None:
        """Write that a prepared branch is to be committed."""
        branch.decided, branch.by_hand = True, by_hand
        self._add(branch.key, record(_COMMITTED_BY_HAND if by_hand else _COMMITTED, branch.key))

    def remember(self, branch: KeptBranch, outcome: str) -> None:
        """Write what became of a branch that is over: it is to be forgotten, which `end` says then."""
        branch.key = branch.key or secrets.token_bytes(8)
        branch.messages, branch.taken, branch.outcome = [], [], outcome
        data = record(_TO_FORGET, branch.key, branch.encode())
        self._live[branch.key] = [data]
        self._touch(data)

    def end(self, branch: KeptBranch) -> None:
        """Write that a branch is over."""
        self._touch(self._end(branch))

    def end_later(self, branch: KeptBranch, then: Callable[[], None]) -> None:
        """Write a little later that a commit is over, and then call back when that is on disk."""
        self._write_later(self._end(branch), then)

    def forget_last(self, key: bytes) -> None:
        """Nobody asks for the last commit of a session any more: write that a little later."""
        branch = self._redone.get(key)
        if branch is not None:
            branch.by = None  # its end is yet to be written
            return
        del self._live[key]
        self._write_later(record(_OVER, key), lambda: None)

    def _end(self, branch: KeptBranch) -> bytes:
        """The record that says that a branch is over."""
        del self._live[branch.key]
        self._redone.pop(branch.key, None)
        if branch.by is None:
            return record(_OVER, branch.key)
        data = record(_LAST, branch.key, branch.by.encode())
        self._live[branch.key] = [data]
        return data

    def _write_later(self, data: bytes, then: Callable[[], None]) -> None:
        if not self._over:
            self.later(self._touch_over)
        self._over.append((data, then))

    def _touch_over(self) -> None:
        if self._over:
            self._touch(b"")

    def _add(self, key: bytes, data: bytes) -> None:
        self._live.setdefault(key, []).append(data)
        self._touch(data)

    def _touch(self, data: bytes) -> None:
        self._new.append(data)
        if not self._dirty:
            self._dirty = True
            self._changed(self)

    # -- as a Writer of the batch --------------------------------------------------------------------------------

    def flush(self) -> int:
        """Write what is new. Returns the ticket of the sync that will cover it. OSError when the disk refuses."""
        self._dirty = False
        over, self._over = self._over, []
        data = b"".join([*self._new, *[ends for ends, _ in over]])
        self._new.clear()
        ticket = self._file.append(data)
        if over:
            self._written.append((ticket, over))
        if self._file.size > LONG and self._file.size > 4 * sum(map(len, self._records())):
            self._file.rewrite(b"".join(self._records()))
        return ticket

    def _records(self) -> Iterator[bytes]:
        """The records of the branches that are not over."""
        return chain.from_iterable(self._live.values())

    def advance(self) -> None:
        """Act on a finished sync."""
        written, synced = self._written, self._commit.synced
        while written and written[0][0] <= synced:
            for _, then in written.popleft()[1]:
                then()

    def close(self) -> None:
        """Write what is new, and close the file, synced: as the next start writes it anew."""
        if self._new or self._over:
            self.flush()
        if self._file.size:
            self._file.rewrite(b"".join(self._records()))
        self._file.close()
