"""The transfers of a session on their way out: gathered while queues deliver, then numbered and sent together.

A queue that several subscriptions take from in turn delivers one message at a time. Here that costs a few items in
lists; what is to be done for each command (its number, its bytes to be sent again, its credit, its settlement) is done
for all of them at once by `flush`. It comes before whatever else the session does or sends, and at the end of the
batch, so nobody meets a transfer without a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Final, Protocol

from harebell.broker.v010.delivered import Account, Origin, Taken
from harebell.broker.v010.deliveries import MOST_BROWSED, Deliveries
from harebell.broker.v010.link import Link
from harebell.broker.v010.messages import Outgoing
from harebell.protocol.v010 import Command
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v010.runs import MOST_IN_RUN
from harebell.protocol.v010.session import Session as State

__all__ = ["BROWSING", "IN_WINDOW", "UNSETTLED", "Outbox", "Sender", "Sent", "SentTransfer"]

MOST_BYTES: Final = 1 << 16  # of transfers that are gathered
MOST_PREFIXES: Final = 256

UNSETTLED: Final = 1  # kinds of subscriptions, added up: what they deliver is to be settled, ...
BROWSING: Final = 2  # ... or stays in its queue
IN_WINDOW: Final = 4  # its completion gives credit back


class SentTransfer:
    """A transfer as its session keeps it: the command's payload, and the frames of the message."""

    __slots__ = ("frames", "payload")

    def __init__(self, payload: bytes, frames: bytes) -> None:
        self.payload = payload
        self.frames = frames


Sent = SentTransfer | Command


class Sender(Protocol):
    """A subscription that sends transfers.

    kind     what is to be noted of them: those that are gathered together agree in that
    payload  of the command
    again    makes a transfer of the frames that the session keeps
    """

    kind: int
    payload: bytes
    again: Callable[[bytes], Sent]
    origin: Origin
    account: Account


class SendingSession(Protocol):
    """The session of the transfers."""

    connection: Link
    number: int
    deliveries: Deliveries
    outgoing: Outgoing

    @property
    def state(self) -> State[Sent]: ...
    @property
    def listens(self) -> bool:
        """Whether the client takes commands of the session now."""


class Outbox:
    """The transfers of one session that have no number yet: the `frames` of each, together of that `size` in bytes."""

    __slots__ = (
        "_by", "_costs", "_first", "_kind", "_messages", "_positions", "_prefixes", "_prefixes_of",
        "_session", "frames", "size",
    )  # fmt: skip

    def __init__(self, session: SendingSession) -> None:
        self._session = session
        self.size = 0
        self._first: Sender | None = None  # the subscription of the first one
        self._by: list[Sender] | None = None  # that of each, where these differ
        self._kind = 0
        self.frames: list[bytes] = []
        self._positions: Sequence[int] = ()
        self._messages: list[Taken] = []
        self._costs: list[int] | None = None
        self._prefixes: dict[bytes, bytes] = {}  # the frames of a command, by its payload, ...
        self._prefixes_of = (-1, 0)  # ... on that channel, none longer than that

    def add(
        self,
        by: Sender,
        frames: list[bytes],
        size: int,
        positions: Sequence[int],
        messages: list[Taken],
        costs: list[int] | None,
    ) -> None:
        """Send messages of a subscription.

        frames     of each message, as `outgoing` gives them
        size       the bytes of all of them
        positions  their places in the queue
        messages   what the queue gave
        costs      the byte credit of each, where bytes count
        """
        if self.frames and (by.kind != self._kind or len(self.frames) + len(frames) > MOST_IN_RUN):
            self.flush()
        if not self.frames:
            self._session.connection.reports(self._session.number)
            self._first, self._kind, self.frames, self._messages = by, by.kind, frames, messages
            self._positions, self._costs, self.size = positions, costs, size
        else:
            self._extend(by, positions, costs, len(frames))
            self.frames += frames
            self._messages += messages
            self.size += size
        if self.size > MOST_BYTES:
            self.flush()

    def _extend(self, by: Sender, positions: Sequence[int], costs: list[int] | None, count: int) -> None:
        before, first, own = len(self.frames), self._first, self._positions
        if self._by is not None:
            self._by += repeat(by, count)
        elif by is not first and first is not None:
            self._by = [*repeat(first, before), *repeat(by, count)]
        if isinstance(own, list):
            own += positions
        else:
            self._positions = [*own, *positions]
        if self._costs is not None:
            self._costs += repeat(0, count) if costs is None else costs
        elif costs is not None:
            self._costs = [*repeat(0, before), *costs]

    def add_one(self, by: Sender, frames: bytes, position: int, message: Taken) -> None:
        """As `add`, for one message, where no bytes count."""
        gathered, positions, size = self.frames, self._positions, len(frames)
        if (
            not gathered or by.kind != self._kind or len(gathered) >= MOST_IN_RUN or self._costs is not None
            or type(positions) is not list or self.size + size > MOST_BYTES
            or (self._by is None and by is not self._first)
        ):  # fmt: skip
            self.add(by, [frames], size, [position], [message], None)
            return
        if self._by is not None:
            self._by.append(by)
        positions.append(position)
        gathered.append(frames)
        self._messages.append(message)
        self.size += size

    def flush(self, *, written: bool = False) -> None:
        """Number what was gathered, note what it means, and give it to the connection.

        written  its output is written right after this
        """
        first = self._first
        if first is None:
            return
        session, by, frames, size, messages = self._session, self._by, self.frames, self.size, self._messages
        positions, costs, count = self._positions, self._costs, len(self.frames)
        self._first = self._by = self._costs = None
        self.frames, self._messages, self._positions, self.size = [], [], (), 0
        deliveries = session.deliveries
        makes: list[Callable[[bytes], Sent]] | None = None if by is None else [each.again for each in by]
        number = session.state.sending.send_run(frames, size, first.again, makes)
        if first.kind & BROWSING:
            senders = repeat(first, count) if by is None else by
            places = zip(range(number, number + count), senders, positions, strict=False)
            deliveries.browsed.update({each: (*sender.origin, position) for each, sender, position in places})
            if len(deliveries.browsed) > 2 * MOST_BROWSED:
                deliveries.forget_oldest()
        elif first.kind & UNSETTLED:
            origins = None if by is None else [each.origin for each in by]
            deliveries.unsettled.delivered(number, first.origin, positions, messages, origins)
        if first.kind & IN_WINDOW:
            accounts = None if by is None else [each.account for each in by]
            deliveries.windows.sent(number, count, first.account, costs, accounts)
        if not session.listens:
            return  # they are sent again on the next connection, if there will be one
        if by is None:
            prefix = self._prefix(first.payload)
            data = prefix + prefix.join(frames)
        else:
            prefixes = {each: self._prefix(each.payload) for each in set(by)}
            data = b"".join(chain.from_iterable(zip([prefixes[each] for each in by], frames, strict=True)))
        session.connection.engine.send_pieces((data,))
        if not written:
            session.connection.has_output(size)

    def _prefix(self, payload: bytes) -> bytes:
        """The frames of the command before a message."""
        session = self._session
        number, largest = of = (session.number, session.outgoing.largest)
        if self._prefixes_of != of or len(self._prefixes) > MOST_PREFIXES:
            self._prefixes_of = of
            self._prefixes.clear()
        found = self._prefixes.get(payload)
        if found is None:
            found = self._prefixes[payload] = command_frames(number, payload, largest, content=True)
        return found
