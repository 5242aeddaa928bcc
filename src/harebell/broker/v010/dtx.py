"""The class dtx in a session: branches of distributed transactions (X/Open XA), which several sessions may share.

Between dtx.start and dtx.end the session's transfers and message.accept belong to its branch. A session works in one
branch at a time; others may be suspended. Any session of the branch's user, or of an administrator, may prepare, commit
and roll back. What a rollback gives back returns to its queues as redelivered, where a rollback of the class tx leaves
it acquired.

The codes are those of Qpid's brokers: 503 without dtx.select and for flags that exclude each other, 409 for what the
state of the branch does not allow, 404 for an unknown one, 530 for one that is known, 542 for too long a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.node import Node
from harebell.broker.slices import Work
from harebell.broker.transactions.branch import Branch, BranchState, Taken, Xid
from harebell.broker.transactions.branches import DEFAULT_TIMEOUT, MAX_TIMEOUT
from harebell.broker.v010.commands import LATER, Outcome
from harebell.broker.v010.delivered import Delivered
from harebell.broker.v010.publisher import Publisher
from harebell.broker.v010.transactions import Transactions
from harebell.broker.vhost import VirtualHost
from harebell.errors import AccessRefused, CommandInvalid, IllegalState, NotAllowed, WrongArgument
from harebell.protocol.v010 import Command, Struct, commands as c, structs as s
from harebell.protocol.v010.domains import XaStatus

__all__ = ["HANDLERS", "DistributedTransactions"]

MAX_SUSPENDED: Final = 1024  # branches of one session

_TOLD: Final = {
    BranchState.ROLLED_BACK: XaStatus.XA_RBROLLBACK,
    BranchState.TIMED_OUT: XaStatus.XA_RBTIMEOUT,
}
"""What the commands answer for a branch that was rolled back by itself."""

_HEURISTIC: Final = {
    BranchState.MIXED: XaStatus.XA_HEURMIX,
    BranchState.COMMITTED_BY_HAND: XaStatus.XA_HEURCOM,
    BranchState.ROLLED_BACK_BY_HAND: XaStatus.XA_HEURRB,
}
"""... and for one whose outcome was not its manager's decision."""


class DtxSession(Protocol):
    """The session of the branches."""

    node: Node
    vhost: VirtualHost
    user: str
    transactions: Transactions

    @property
    def publisher(self) -> Publisher: ...
    def work(self, number: int, command: Command, work: Work) -> None:
        """Execute a long command in slices; the connection's input waits until that is done."""

    def result(self, number: int, result: Struct) -> None:
        """Send the result of a command, and complete it."""


class DistributedTransactions:
    """The branches that one session works in. `branch` is that of its transfers now, `selected` from dtx.select on."""

    def __init__(self, session: DtxSession) -> None:
        self._session = session
        self._branches = session.node.branches
        self.selected = False
        self.branch: Branch | None = None
        self._suspended: dict[Xid, Branch] = {}

    @property
    def size(self) -> int:
        """The bytes of the bodies in the branches that the session works in, or has suspended."""
        own = () if self.branch is None else (self.branch,)
        return sum(branch.size for branch in (*own, *self._suspended.values()))

    def hold_back(self, message: Message, queues: tuple[Sink, ...]) -> bool:
        """Let a routed message wait for the commit. Returns whether the session works in a branch."""
        if self.branch is None:
            return False
        self.branch.publish(message, queues)
        return True

    def accepting(self, shares: Iterable[list[Delivered]]) -> Work:
        """Let deliveries wait for the commit; when the session ends, the rest returns with its other deliveries."""
        branch = self.branch
        assert branch is not None
        for share in shares:
            entries = [Taken(queue, *each) for run in share for queue, back in run.backs() for each in back]
            if branch.state is BranchState.ACTIVE:
                branch.take(entries)
            else:  # it is rolled back already
                yield from self._branches.returning(entries)
            yield
            if self.branch is not branch:
                return

    def ending(self) -> Work:
        """The session ends: the branches that it works in are rolled back."""
        branches = [*self._suspended.values()]
        if self.branch is not None:
            branches.append(self.branch)
        self.branch = None
        self._suspended.clear()
        for branch in branches:
            branch.associated.pop(self, None)
            yield from self._branches.failing(branch)

    # -- working in a branch -------------------------------------------------------------------------------------

    def _select(self, number: int, command: c.DtxSelect) -> Outcome:
        if self._session.transactions.selected:
            raise IllegalState("dtx.select: the session has local transactions (tx.select)")
        self.selected = self._session.publisher.holds_back = True
        return None

    def _start(self, number: int, command: c.DtxStart) -> Outcome:
        self._check_selected(command)
        if command.join and command.resume:
            raise CommandInvalid("dtx.start: join and resume exclude each other")
        if self.branch is not None:
            raise IllegalState(f"dtx.start: the session works in {self.branch}")
        xid = _xid(command.xid)
        if command.resume:
            branch = self._suspended.get(xid)
            if branch is None:
                self._find(command)  # NotFound for an unknown one
                raise IllegalState("dtx.start: the session has not suspended the transaction")
        elif command.join:
            branch = self._find(command)
            if branch.state not in (BranchState.ACTIVE, *_TOLD) or xid in self._suspended:
                raise IllegalState(f"dtx.start: {branch} is {branch.state.value}, or suspended by this session")
        else:
            if self._branches.get(self._session.vhost.name, xid) is not None:
                raise NotAllowed("dtx.start: the transaction is known already")
            branch = self._branches.begin(self._session.vhost.name, xid, self._session.user)
        if branch.state is BranchState.ACTIVE or command.resume:
            self._suspended.pop(xid, None)
            self.branch = branch
            branch.associated[self] = False
        return s.XaResult(_TOLD.get(branch.state, XaStatus.XA_OK))

    def _end(self, number: int, command: c.DtxEnd) -> Outcome:
        self._check_selected(command)
        if command.fail and command.suspend:
            raise CommandInvalid("dtx.end: fail and suspend exclude each other")
        xid = _xid(command.xid)
        branch = self._suspended.get(xid)
        if self.branch is not None and self.branch.xid == xid:
            branch = self.branch
        if branch is None or (branch is not self.branch and command.suspend):
            raise IllegalState("dtx.end: the session does not work in the transaction")
        suspends = command.suspend and branch.state is BranchState.ACTIVE
        if suspends and len(self._suspended) >= MAX_SUSPENDED:
            raise IllegalState(f"dtx.end: the session has suspended {MAX_SUSPENDED} transactions")
        if branch is self.branch:
            self.branch = None
        self._suspended.pop(xid, None)
        if suspends:
            self._suspended[xid] = branch
            branch.associated[self] = True
            return s.XaResult(XaStatus.XA_OK)
        del branch.associated[self]
        if command.fail:
            self._session.work(number, command, self._failing(number, branch))
            return LATER
        return s.XaResult(_TOLD.get(branch.state, XaStatus.XA_OK))

    def _failing(self, number: int, branch: Branch) -> Work:
        yield from self._branches.failing(branch)
        self._session.result(number, s.XaResult(_TOLD.get(branch.state, XaStatus.XA_RBROLLBACK)))

    # -- its outcome ---------------------------------------------------------------------------------------------

    def _prepare(self, number: int, command: c.DtxPrepare) -> Outcome:
        branch = self._ended(command)
        if branch.state in _TOLD:
            return s.XaResult(_TOLD[branch.state])
        if branch.state is not BranchState.ACTIVE:
            raise IllegalState(f"dtx.prepare: {branch} is {branch.state.value}")
        self._session.work(number, command, self._answering(number, self._branches.preparing(branch)))
        return LATER

    def _commit(self, number: int, command: c.DtxCommit) -> Outcome:
        branch = self._ended(command)
        if branch.state in _TOLD:
            self._branches.forget(branch)
            return s.XaResult(_TOLD[branch.state])
        if branch.state in _HEURISTIC:
            return s.XaResult(_HEURISTIC[branch.state])
        if branch.state is not (BranchState.ACTIVE if command.one_phase else BranchState.PREPARED):
            phases = "one phase" if command.one_phase else "two phases"
            raise IllegalState(f"dtx.commit: {branch} is {branch.state.value}, which cannot be committed in {phases}")
        self._session.work(number, command, self._committing(number, branch))
        return LATER

    def _committing(self, number: int, branch: Branch) -> Work:
        yield from self._branches.committing(branch)
        mixed = branch.state is BranchState.MIXED
        self._session.result(number, s.XaResult(XaStatus.XA_HEURMIX if mixed else XaStatus.XA_OK))

    def _rollback(self, number: int, command: c.DtxRollback) -> Outcome:
        branch = self._ended(command)
        if branch.state in _TOLD:
            self._branches.forget(branch)
            timed_out = branch.state is BranchState.TIMED_OUT
            return s.XaResult(XaStatus.XA_RBTIMEOUT if timed_out else XaStatus.XA_OK)
        if branch.state in _HEURISTIC:
            return s.XaResult(_HEURISTIC[branch.state])
        if branch.state not in (BranchState.ACTIVE, BranchState.PREPARED):
            raise IllegalState(f"dtx.rollback: {branch} is {branch.state.value}")
        self._session.work(number, command, self._answering(number, self._branches.rolling_back(branch)))
        return LATER

    def _answering(self, number: int, work: Work) -> Work:
        yield from work
        self._session.result(number, s.XaResult(XaStatus.XA_OK))

    def _forget(self, number: int, command: c.DtxForget) -> Outcome:
        branch = self._ended(command)
        if branch.state not in _HEURISTIC:
            raise IllegalState(f"dtx.forget: {branch} is {branch.state.value}, and its outcome was not heuristic")
        self._branches.forget(branch)
        return None

    def _recover(self, number: int, command: c.DtxRecover) -> Outcome:
        """The branches that are prepared, or wait to be forgotten: the user's, or an administrator's all."""
        found = [
            s.Xid(*branch.xid).packed()
            for branch in self._branches
            if branch.vhost == self._session.vhost.name and self._may_end(branch) and branch.in_doubt
        ]
        return s.RecoverResult(found)

    def _get_timeout(self, number: int, command: c.DtxGetTimeout) -> Outcome:
        return s.GetTimeoutResult(self._find(command).timeout)

    def _set_timeout(self, number: int, command: c.DtxSetTimeout) -> Outcome:
        branch = self._find(command)
        if command.timeout > MAX_TIMEOUT:
            raise WrongArgument(f"dtx.set-timeout: more than {MAX_TIMEOUT} seconds")
        self._branches.set_timeout(branch, command.timeout or DEFAULT_TIMEOUT)
        return None

    # -- checks --------------------------------------------------------------------------------------------------

    def _check_selected(self, command: Command) -> None:
        if not self.selected:
            raise CommandInvalid(f"{command.NAME}: dtx.select comes first")

    def _find(self, command: Any) -> Branch:
        branch = self._branches.find(self._session.vhost.name, _xid(command.xid))
        if not self._may_end(branch):
            raise AccessRefused(f"{command.NAME}: {branch} is another user's")
        return branch

    def _may_end(self, branch: Branch) -> bool:
        user = self._session.user
        return branch.user == user or self._session.node.users.has_tag(user, "administrator")

    def _ended(self, command: Any) -> Branch:
        """The branch, in which no session works any more."""
        branch = self._find(command)
        if branch.associated:
            raise IllegalState(f"{command.NAME}: sessions still work in {branch}, dtx.end comes first")
        return branch


def _xid(xid: s.Xid) -> Xid:
    return Xid(xid.format, xid.global_id, xid.branch_id)


Handler: TypeAlias = "Callable[[DistributedTransactions, int, Any], Outcome]"  # each takes the command that is its key

HANDLERS: Final[dict[type[Command], Handler]] = {
    c.DtxSelect: DistributedTransactions._select,
    c.DtxStart: DistributedTransactions._start,
    c.DtxEnd: DistributedTransactions._end,
    c.DtxPrepare: DistributedTransactions._prepare,
    c.DtxCommit: DistributedTransactions._commit,
    c.DtxRollback: DistributedTransactions._rollback,
    c.DtxForget: DistributedTransactions._forget,
    c.DtxRecover: DistributedTransactions._recover,
    c.DtxGetTimeout: DistributedTransactions._get_timeout,
    c.DtxSetTimeout: DistributedTransactions._set_timeout,
}
