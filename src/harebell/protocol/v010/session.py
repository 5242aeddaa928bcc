"""A session: its two halves, and what its controls mean to them. It outlives the connections that it is attached to.

    session = Session(b"orders")
    for control in session.attached():          # after attached was sent or received
        engine.send_control(channel, control)
    ...
    for said in session.receive_control(control).to_send:   # controls, and commands to send again, in this order
        ...
    number = session.sending.send(command, size)            # for each command that is sent
    number = session.receiving.receive(sync)                # for each command that comes; None: it came before
    session.receiving.complete(number)                      # when it is executed and its result is sent
    for control in session.due():                           # at the end of a batch
        engine.send_control(channel, control)

The caller has the engine, attaches and detaches, and grants timeouts. T is what it keeps of a command to send it again.

Rules:
1. A peer asks with flush what the other one expects, and sends no command until it knows (`ready`). One without state
   may begin with command-point at once, where the other one cannot have any under this name: a client's new commands
   would else be taken for old ones that came before.
2. completed with timely-reply is answered with known-completed. Else nothing is: Qpid's Python client cannot read a
   known-completed that it did not ask for.
3. timely-reply is asked for when the set of completed commands is not one range, or once in `TIMELY` commands.
4. execution.result goes out before the completion of its command, and execution.exception before detach, because both
   are sent before `complete` is called. Completions wait with them for what the other peer expects (rule 1).
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from harebell import errors
from harebell.protocol.v010 import controls as k
from harebell.protocol.v010.compounds import Control
from harebell.protocol.v010.receiving import ReceivingHalf
from harebell.protocol.v010.sending import SendingHalf
from harebell.protocol.v010.serial import narrow, narrow_ranges
from harebell.protocol.v010.values import Ranges

__all__ = ["Again", "Reaction", "Session"]

REPORT: Final = 512  # complete commands after which they are reported, though nobody waits for it
TIMELY: Final = 4096  # complete commands after which a report asks for known-completed at once

T = TypeVar("T")


class Again(Generic[T]):
    """A command to send again: its number, and what the sending half kept of it."""

    __slots__ = ("item", "number")

    def __init__(self, number: int, item: T) -> None:
        self.number = number
        self.item = item


class Reaction(Generic[T]):
    """What a control of the other peer leads to.

    to_send   controls, and commands to send again, in the order in which they must go out
    complete  numbers of own commands that are newly complete, as sorted pairs
    lost      the other peer has lost the state of the session: see `Session.start_over`
    """

    __slots__ = ("complete", "lost", "to_send")

    def __init__(self) -> None:
        self.to_send: list[Control | Again[T]] = []
        self.complete: list[tuple[int, int]] = []
        self.lost = False


class Session(Generic[T]):
    """One peer's state of a session.

    name       the session's name
    sending    the commands of this peer
    receiving  the commands of the other one
    ready      commands may be sent on this attachment
    """

    __slots__ = ("_attached", "_first", "_point", "_untimely", "name", "ready", "receiving", "sending")

    def __init__(
        self,
        name: bytes,
        sending: SendingHalf[T] | None = None,
        receiving: ReceivingHalf | None = None,
        *,
        first: int = 0,
    ) -> None:
        """A session that is new, or goes on with these halves; `first` is where the other peer's numbers begin."""
        self.name = name
        self._first = first
        self._attached = False
        self.sending: SendingHalf[T] = SendingHalf() if sending is None else sending
        self.receiving = ReceivingHalf() if receiving is None else receiving
        self.ready = False
        self._point: int | None = None  # the command-point of this attachment
        self._untimely = 0  # complete commands reported since the last timely-reply

    @property
    def has_state(self) -> bool:
        """True when a command was sent or received."""
        return self.sending.started or self.receiving.begun

    def attached(self, new: bool = False) -> list[Control]:
        """The controls that begin an attachment; `new`: the other peer cannot have state under this name."""
        self._attached = True
        if self.has_state:
            return [k.SessionFlush(expected=True, confirmed=True, completed=True)]
        if not new:
            return [k.SessionFlush(expected=True)]
        self.ready = True
        return [k.SessionCommandPoint(narrow(self.sending.next), 0)]

    def detached(self) -> None:
        """The attachment ended, by a control or with its connection."""
        self.ready = False
        self._point = None
        self.receiving.detached(self._first if self._attached else None)

    def receive_control(self, control: Control) -> Reaction[T]:
        """Take a control of the other peer; those that attach, detach and grant timeouts are the caller's.

        Raises RemoteProtocolError for what cannot be: it ends the session.
        """
        reaction: Reaction[T] = Reaction()
        if isinstance(control, k.SessionCompleted):
            self._completed(control, reaction)
        elif isinstance(control, k.SessionKnownCompleted):
            self.receiving.known_completed(control.commands or ())
        elif isinstance(control, k.SessionFlush):
            self._flush(control, reaction)
        elif isinstance(control, k.SessionCommandPoint):
            self.receiving.command_point(control.command_id, control.command_offset)
            self._point = control.command_id
        elif isinstance(control, k.SessionExpected):
            if control.fragments:
                said = "session.expected names parts of commands: commands are sent again whole"
                raise errors.RemoteProtocolError(errors.NotImplemented, said, 2, 8, scope="channel")
            self._expected(control.commands, reaction)
        elif isinstance(control, k.SessionConfirmed):
            self.sending.confirmed(control.commands or ())
        elif isinstance(control, k.SessionGap):
            self.receiving.gap(control.commands or ())
        return reaction

    def due(self, idle: bool = False) -> list[Control]:
        """The controls that it is time to send: completions, flush. With `idle`, whatever can be."""
        found: list[Control] = []
        receiving = self.receiving
        if (receiving.due or receiving.fresh >= (1 if idle else REPORT)) and not self._holds_commands:
            found += self._reports()
        if self.ready and self.sending.flush_due:
            self.sending.flushed()
            found.append(k.SessionFlush(completed=True))
        return found

    def abandon(self, low: int, high: int) -> list[Control]:
        """Give up own commands that are not complete, and never send them again; the controls to say so."""
        gaps = self.sending.abandon(low, high)
        return [k.SessionGap(narrow_ranges(gaps)), self._command_point(self.sending.next)] if gaps else []

    def start_over(self) -> tuple[list[Control], list[T]]:
        """Begin again after the other peer lost the state of the session: what to send, and what may be lost with it.

        The caller sends the latter again, or not: the other peer may have executed them before it lost its state.
        Numbers go on. Commands of the other peer may come again.
        """
        unsafe = self.sending.unsafe()
        self.sending = self.sending.successor()
        self.receiving, point = ReceivingHalf(), self._point
        if point is not None:
            self.receiving.command_point(point, 0)
        self._untimely = 0
        self.ready = True
        return [self._command_point(self.sending.next)], unsafe

    @property
    def _holds_commands(self) -> bool:
        """Whether own commands, maybe results, wait until the other peer has said what it expects."""
        return not self.ready and self.sending.incomplete > 0

    def _command_point(self, number: int) -> Control:
        return k.SessionCommandPoint(narrow(number), 0)

    def _reports(self) -> list[Control]:
        self._untimely += self.receiving.fresh
        sets = self.receiving.completed()
        timely = self._untimely >= TIMELY or len(sets[0]) > 1
        if timely:
            self._untimely = 0
        return [k.SessionCompleted(ranges or None, timely) for ranges in sets]

    def _completed(self, control: k.SessionCompleted, reaction: Reaction[T]) -> None:
        reaction.complete = self.sending.completed(control.commands or ())
        if control.timely_reply:
            reaction.to_send.append(k.SessionKnownCompleted(self.sending.known()))

    def _flush(self, control: k.SessionFlush, reaction: Reaction[T]) -> None:
        receiving = self.receiving
        if control.expected:
            reaction.to_send.append(k.SessionExpected(receiving.expected()))
        if control.confirmed:
            reaction.to_send += [k.SessionConfirmed(ranges or None) for ranges in receiving.unknown()]
        if control.completed and self._holds_commands:
            receiving.due = True
        elif control.completed:
            reaction.to_send += self._reports()

    def _expected(self, ranges: Ranges, reaction: Reaction[T]) -> None:
        replay = self.sending.expected(ranges)
        if replay.lost and self.has_state:
            reaction.lost = True
            return
        if replay.gaps:
            reaction.to_send.append(k.SessionGap(narrow_ranges(replay.gaps)))
        at = -1
        for first, items in replay.runs:
            reaction.to_send.append(self._command_point(first))
            reaction.to_send += [Again(number, item) for number, item in enumerate(items, first)]
            at = first + len(items)
        if at != self.sending.next:
            reaction.to_send.append(self._command_point(self.sending.next))
        self.ready = True
