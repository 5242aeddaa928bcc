"""One branch of a distributed transaction: what is to be published and what is taken, until its commit or rollback.

It knows no dialect. A message was routed when it was published in the branch, and goes to those of its queues that are
there at the commit. What a branch has taken returns to its queues, as redelivered, when it is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from harebell.broker.forwarding import Sink
from harebell.broker.message import Given, Message
from harebell.broker.queues.base import Queue
from harebell.broker.store.prepared import LOCAL, KeptBranch
from harebell.broker.timers import Timer

__all__ = ["Branch", "BranchState", "Publication", "Taken", "Xid"]


class Xid(NamedTuple):
    """The name of a branch: format, name of the transaction, name of the branch in it."""

    format: int
    global_id: bytes
    branch_id: bytes


class BranchState(Enum):
    ACTIVE = "active"
    PREPARING = "being prepared"
    PREPARED = "prepared"
    ENDING = "ending"  # its commit or rollback has begun
    ROLLED_BACK = "rolled back"  # and its manager does not know yet
    TIMED_OUT = "timed out"  # rolled back for that, as above
    MIXED = "mixed"  # a queue refused a message at the commit: its manager has to forget it
    COMMITTED_BY_HAND = "committed by hand"  # an administrator has decided, as above
    ROLLED_BACK_BY_HAND = "rolled back by hand"


_IN_DOUBT: Final = frozenset(
    {
        BranchState.PREPARING,  # a manager that has lost its connection would not ask again for one that is not listed
        BranchState.PREPARED,
        BranchState.MIXED,
        BranchState.COMMITTED_BY_HAND,
        BranchState.ROLLED_BACK_BY_HAND,
    }
)


class Publication(NamedTuple):
    """A routed message."""

    message: Message
    queues: tuple[Sink, ...]


class Taken(NamedTuple):
    """A message that was taken from a queue, as the queue gave it."""

    queue: Queue
    position: int
    message: Given


class Branch:
    """A branch of a user in a virtual host.

    associated  who works in it now, and whether that is suspended
    timeout     seconds until it is rolled back, unless it is prepared before
    kept        it on disk, once it is prepared
    places      of its messages there, by the numbers of their publications
    rejected    what a commit of the class tx rejects, as it was before a restart
    """

    __slots__ = (
        "associated", "kept", "places", "publications", "rejected", "state", "taken", "timeout", "timer", "user",
        "vhost", "xid",
    )  # fmt: skip

    def __init__(self, xid: Xid, vhost: str, user: str, timeout: int) -> None:
        self.xid = xid
        self.vhost = vhost
        self.user = user
        self.timeout = timeout
        self.state = BranchState.ACTIVE
        self.associated: dict[object, bool] = {}
        self.publications: list[Publication] = []
        self.taken: list[Taken] = []
        self.rejected: list[Taken] = []
        self.timer: Timer | None = None
        self.kept: KeptBranch | None = None
        self.places: dict[int, int] = {}

    def __str__(self) -> str:
        return f"a transaction of user '{self.user}'" if self.is_local else f"transaction {self.name}"

    @property
    def is_local(self) -> bool:
        """Whether it is a commit of the class tx, which nobody asks for."""
        return self.xid == LOCAL

    @property
    def in_doubt(self) -> bool:
        """Whether its manager has to do something about it: it is prepared, or its outcome is to be asked for."""
        by_hand = self.kept is not None and self.kept.by_hand
        return self.state in _IN_DOUBT or (self.state is BranchState.ENDING and by_hand)

    @property
    def name(self) -> str:
        """Format, transaction and branch as text; bytes that are not UTF-8 as \\xff."""
        return ":".join((str(self.xid.format), *(each.decode("utf-8", "backslashreplace") for each in self.xid[1:])))

    @property
    def size(self) -> int:
        """The bytes of the bodies that wait for the commit."""
        return sum(each.message.content.body_size for each in self.publications)

    def publish(self, message: Message, queues: tuple[Sink, ...]) -> None:
        """Let a routed message wait for the commit; it is dropped when the branch is rolled back already."""
        if self.state is BranchState.ACTIVE:
            self.publications.append(Publication(message, queues))

    def take(self, taken: Iterable[Taken]) -> None:
        """Let messages be settled by the commit."""
        self.taken += taken
