"""A branch of a distributed transaction (X/Open XA, class dtx): `async with session.branch(xid):`."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from harebell import errors
from harebell.client.sessions.calls import Call, Sent
from harebell.client.sessions.core.session import SessionCore
from harebell.protocol.v010 import Command, Struct, commands as c, structs as s
from harebell.protocol.v010.domains import XaStatus
from harebell.protocol.v010.typed_values import StructValue

__all__ = ["Branch", "Manager", "Xid"]

logger = logging.getLogger("harebell.client")

S = TypeVar("S", bound=Struct)


class Xid(NamedTuple):
    """The name of a branch: that of the transaction, that of the branch in it (up to 64 bytes each), and the format."""

    global_id: bytes
    branch_id: bytes = b""
    format: int = 1


class Branch:
    """What is published and accepted in the block belongs to the branch, until somebody commits it or rolls it back.

    An error in the block rolls the branch back: what was accepted in it returns to its queues.
    """

    def __init__(self, core: SessionCore, xid: Xid, join: bool, timeout: float | None) -> None:
        self._core = core
        self._loop = core.loop
        self._manager = Manager(core)
        self._join = join
        self._timeout = timeout
        self._open = self._abandoned = False
        self.xid = xid

    async def __aenter__(self) -> Self:
        core = self._core
        if core.branch is not None or core.selected:
            kind = "is transactional" if core.selected else "works in a branch already"
            raise errors.LocalProtocolError(f"session '{core.name}' {kind}: use another one")
        core.branch = self
        try:
            deadline = core.deadline(self._timeout)
            if not core.enter_nowait():
                await core.enter(deadline, "dtx.start")
            if not core.dtx_selected:
                core.dtx_selected = True
                core.defer(c.DtxSelect())
            await self._begun(deadline)
        except BaseException:
            self._leave()
            raise
        self._open = True
        if self._abandoned:
            self.abandon()
        return self

    def abandon(self) -> None:
        """Roll it back without waiting for it; nothing where it has ended."""
        self._abandoned = True
        if self._open and self._core.branch is self:
            self._fail()
            self._leave()

    async def _begun(self, deadline: float) -> None:
        call = self._issue(c.DtxStart(_wire(self.xid), self._join, sync=True))
        try:
            await self._core.answered(call, deadline, "dtx.start")
        except BaseException:
            if self._core.branch is self:
                self._fail()
            raise
        _check(call, "dtx.start", self.xid)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        core = self._core
        if core.branch is not self:  # its session has ended, or the state is lost, or it was abandoned
            if kind is None and not self._abandoned:
                core.check()
                raise errors.SessionStateLost(f"the branch ended with the state of session '{core.name}'")
            return
        try:
            if kind is not None and issubclass(kind, asyncio.CancelledError):
                self.abandon()  # a cancelled task does not wait for the network
                return
            self._open = False
            if kind is None:
                await self._end()
            else:
                await self._failed(self._fail())
        finally:
            self._leave()

    async def _end(self) -> None:
        core, call = self._core, self._issue(c.DtxEnd(_wire(self.xid), sync=True))
        try:
            await core.answered(call, core.deadline(self._timeout), "dtx.end")
        except errors.DeadlineExceeded as error:
            error.add_note("dtx.end is under way, and will be executed")
            raise
        _check(call, "dtx.end", self.xid)

    def _fail(self) -> Call:
        """Have the branch rolled back, before anything else is issued."""
        return self._issue(c.DtxEnd(_wire(self.xid), fail=True, sync=True))

    def _issue(self, command: Command) -> Call:
        """Have it executed behind all settlements so far, and before anything that is issued later."""
        call = Call(self._loop)
        self._core.defer(command, call)
        return call

    async def _failed(self, call: Call) -> None:
        """Wait for it. The block's own error is raised, whatever happens here."""
        core = self._core
        try:
            await core.answered(call, core.deadline(self._timeout), "dtx.end")
        except errors.HarebellError as error:
            logger.warning("session '%s': %s", core.name, error)

    def _leave(self) -> None:
        if self._core.branch is self:
            self._core.branch = None


class Manager:
    """The outcome of branches, in any session of their user."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core

    async def prepare(self, xid: Xid, timeout: float | None) -> None:
        _check(await self._call(c.DtxPrepare(_wire(xid), sync=True), timeout), "dtx.prepare", xid)

    async def commit(self, xid: Xid, one_phase: bool, timeout: float | None) -> None:
        _check(await self._call(c.DtxCommit(_wire(xid), one_phase, sync=True), timeout), "dtx.commit", xid)

    async def rollback(self, xid: Xid, timeout: float | None) -> None:
        call = await self._call(c.DtxRollback(_wire(xid), sync=True), timeout)
        status = _result(call, s.XaResult, "dtx.rollback").status
        if status in (XaStatus.XA_HEURCOM, XaStatus.XA_HEURMIX, XaStatus.XA_HEURHAZ):
            raise errors.TransactionMixed(_text("dtx.rollback", xid, _SAID[status]))

    async def forget(self, xid: Xid, timeout: float | None) -> None:
        await self._call(c.DtxForget(_wire(xid), sync=True), timeout)

    async def set_timeout(self, xid: Xid, seconds: int, timeout: float | None) -> None:
        await self._call(c.DtxSetTimeout(_wire(xid), seconds, sync=True), timeout)

    async def in_doubt(self, timeout: float | None) -> list[Xid]:
        call = await self._call(c.DtxRecover(sync=True), timeout)
        found = _result(call, s.RecoverResult, "dtx.recover").in_doubt
        xids = [s.Xid.decode(each.raw) for each in found if isinstance(each, StructValue)]
        return [Xid(each.global_id, each.branch_id, each.format) for each in xids]

    async def _call(self, command: Command, timeout: float | None) -> Call:
        return await self._core.call(command.NAME, Sent(command), timeout=timeout)


_OUTCOMES: Final[dict[int, type[errors.HarebellError]]] = {
    XaStatus.XA_RBROLLBACK: errors.TransactionRolledBack,
    XaStatus.XA_RBTIMEOUT: errors.TransactionRolledBack,
    XaStatus.XA_HEURRB: errors.TransactionRolledBack,
    XaStatus.XA_HEURMIX: errors.TransactionMixed,
    XaStatus.XA_HEURHAZ: errors.TransactionMixed,
}
_SAID: Final[dict[int, str]] = {
    XaStatus.XA_RBTIMEOUT: "its timeout has passed, and it was rolled back",
    XaStatus.XA_HEURRB: "an administrator has rolled it back; forget it when that is known",
    XaStatus.XA_HEURCOM: "an administrator has committed it; forget it when that is known",
    XaStatus.XA_HEURMIX: "a part of it is committed, and a part was refused; forget it when that is known",
    XaStatus.XA_HEURHAZ: "a part of it may be committed, and a part may not; forget it when that is known",
}


def _check(call: Call, what: str, xid: Xid) -> None:
    """Raise TransactionRolledBack or TransactionMixed, by the status that the broker has answered."""
    status = _result(call, s.XaResult, what).status
    kind = _OUTCOMES.get(status)
    if kind is not None:
        said = _SAID.get(status, "it was rolled back: a session that worked in it has failed or ended")
        raise kind(_text(what, xid, said))


def _text(what: str, xid: Xid, said: str) -> str:
    return f"{what}: transaction {xid.global_id!r}, branch {xid.branch_id!r}: {said}"


def _result(call: Call, kind: type[S], what: str) -> S:
    if not isinstance(call.result, kind):
        said = f"{what} was completed without its result"
        raise errors.RemoteProtocolError(errors.IllegalState, said, 6, scope="channel")
    return call.result


def _wire(xid: Xid) -> s.Xid:
    if not xid.global_id or len(xid.global_id) > 64 or len(xid.branch_id) > 64:
        raise errors.InvalidArgument(f"{xid}: global_id has 1 to 64 bytes, branch_id 64 at most")
    return s.Xid(xid.format, xid.global_id, xid.branch_id)
