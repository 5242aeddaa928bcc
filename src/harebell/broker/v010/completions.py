"""The completions of a session's commands that wait for the end of the batch, or for the disk.

A transfer is complete when every queue has the message, and the disk too where one of them is stored: it waits for the
sync that covers it (its ticket), and later ones wait for it. So it is with the commit of a transaction. What the client
is told beside the completion goes out before it: message.accept for accept-mode explicit, message.reject, or an
exception (seed 3.3, rule 2).
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.errors import AmqpError, ResourceError
from harebell.protocol.v010 import Command, commands as c
from harebell.protocol.v010.domains import RejectCode
from harebell.protocol.v010.ranges import Marks
from harebell.protocol.v010.serial import narrow_ranges
from harebell.protocol.v010.values import MAX_RANGES

__all__ = ["ACCEPT", "COMPLETE", "REFUSED", "Completions"]

COMPLETE: Final = -1  # nothing but the completion
ACCEPT: Final = -2  # message.accept before it
REFUSED: Final = -3  # a queue refused the message, and there is no accept or reject: an exception


class CompletingSession(Protocol):
    """The session of the completions."""

    batch: Batch
    ended: bool

    def send_command(self, command: Command) -> None: ...
    def complete(self, low: int, high: int) -> None:
        """Note that these commands are complete."""

    def fail(self, error: AmqpError, number: int | None = None, command: Command | None = None) -> None:
        """End the session by an exception."""


class _Group:
    """Commands that complete together, after the sync of `ticket`."""

    __slots__ = ("accepted", "complete", "refused", "rejected", "stored", "ticket")

    def __init__(self) -> None:
        self.complete: list[tuple[int, int]] = []
        self.accepted: list[tuple[int, int]] = []
        self.rejected: dict[int, list[tuple[int, int]]] = {}  # by code
        self.refused: int | None = None
        self.stored = False
        self.ticket = 0


class Completions:
    """The completions of one session; `outstanding` counts transfers that are not complete."""

    def __init__(self, session: CompletingSession) -> None:
        self._session = session
        self._group: _Group | None = None
        self._pending: deque[_Group] = deque()
        self.outstanding = 0

    def add(self, number: int, outcome: int, *, stored: bool) -> None:
        """Complete a command with the batch. `outcome` is one of the constants above, or a code of message.reject."""
        self.add_run(number, number, outcome, stored=stored)

    def add_run(self, low: int, high: int, outcome: int, *, stored: bool) -> None:
        """As `add`, for the commands from `low` to `high`."""
        group = self._group
        if group is None:
            group = self._group = _Group()
            self._session.batch.confirming.append(self)
        group.stored |= stored
        self.outstanding += high - low + 1
        if outcome == REFUSED:
            if group.refused is None:
                group.refused = low
            return
        _add(group.complete, low, high)
        if outcome == ACCEPT:
            _add(group.accepted, low, high)
        elif outcome >= 0:
            _add(group.rejected.setdefault(outcome, []), low, high)

    def end_batch(self, ticket: int) -> bool:
        """Complete the commands of the batch, or let them wait for the ticket. Returns whether any wait."""
        group, self._group = self._group, None
        if group is not None:
            group.ticket = ticket if group.stored else 0
            self._pending.append(group)
        return self.confirm()

    def confirm(self) -> bool:
        """Complete the commands whose sync is done. Returns whether any are left."""
        session, pending = self._session, self._pending
        while pending and session.batch.is_safe(pending[0].ticket) and not session.ended:
            self._finish(pending.popleft())
        if session.ended:
            pending.clear()
        return bool(pending)

    def _finish(self, group: _Group) -> None:
        session = self._session
        self.outstanding -= sum(high - low + 1 for low, high in group.complete)
        for code, pairs in group.rejected.items():
            text = _REASONS.get(code)
            for ranges in _sets(pairs):
                session.send_command(c.MessageReject(ranges, code, text))
        for ranges in _sets(group.accepted):
            session.send_command(c.MessageAccept(ranges))
        for low, high in _runs(group.complete):
            session.complete(low, high)
        if group.refused is not None:
            session.fail(ResourceError("a queue is full and refuses the message"), group.refused, c.MessageTransfer())


_REASONS: Final[dict[int, str]] = {
    RejectCode.UNSPECIFIED: "a queue is full and refuses the message",
    RejectCode.UNROUTABLE: "no queue is bound for the message",
    RejectCode.IMMEDIATE: "no subscriber is ready for the message",
}


def _add(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    """Add a range: nearly always it follows the last one."""
    if pairs and pairs[-1][1] == low - 1:
        pairs[-1] = (pairs[-1][0], high)
    else:
        pairs.append((low, high))


def _runs(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges, sorted and joined where they touch."""
    if len(pairs) < 2:
        return pairs
    marks = Marks(-1)
    for low, high in pairs:
        marks.add(low, high)
    return marks.ranges()


def _sets(pairs: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    runs = _runs(pairs)
    return [narrow_ranges(runs[at : at + MAX_RANGES]) for at in range(0, len(runs), MAX_RANGES)]
