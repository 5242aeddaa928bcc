"""What happens to a connection, for a program that wants to know: `async for event in connection.events()`."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, Self

from harebell import errors

__all__ = [
    "Blocked",
    "ChannelReopened",
    "Closed",
    "Connecting",
    "ConsumerEnded",
    "ConsumerWaiting",
    "Event",
    "Events",
    "Open",
    "QueueRecovered",
    "Reconnecting",
    "Recovered",
    "Resubscribed",
    "SessionEnded",
    "Skipped",
    "StreamGap",
    "StreamResumed",
    "Unblocked",
]

MAX_WAITING: Final = 10_000  # events that a reader has not taken; an older one makes room


@dataclass(frozen=True, slots=True)
class Connecting:
    """A host is dialled."""

    peer: str


@dataclass(frozen=True, slots=True)
class Open:
    """The connection is open; after a loss, its topology and channels come back next (`Recovered`)."""

    peer: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker takes no publishes: publishers wait."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The broker takes publishes again."""


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """The connection is lost, or an attempt has failed (`error`): the next attempt comes in `delay` seconds."""

    attempt: int
    delay: float
    error: BaseException


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be restored; the rest was. `entity` names it: "queue 'work'"."""

    entity: str
    error: errors.HarebellError

    def __str__(self) -> str:
        return f"{self.entity}: {self.error}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """Everything is back, but for `skipped`.

    renamed  the present names of server-named queues, by the names the program knows; both can be used
    """

    skipped: list[Skipped] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueRecovered:
    """A queue that the lost connection still held, or took with it, is back, later than the rest."""

    queue: str
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChannelReopened:
    """The broker closed a channel with `error`; it is open again under `number`, but for `skipped`."""

    number: int
    error: errors.HarebellError
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """A subscription has ended, and not by the program: what iterates over it raises the error.

    Its queue was deleted or moved, it could not be restored after a loss, its channel was closed for good, or its
    handler failed again and again.

    resubscribing  it is tried again (`resubscribe=True`); Resubscribed follows once that was successful
    """

    queue: str
    consumer_tag: str
    error: errors.HarebellError
    resubscribing: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerWaiting:
    """After a loss, a subscription waits for what still has its queue: the lost connection, or an exclusive consumer.

    QueueRecovered follows once it is back.
    """

    queue: str
    consumer_tag: str
    error: errors.HarebellError


@dataclass(frozen=True, slots=True)
class Resubscribed:
    """A consumer that had ended consumes again (`resubscribe=True`)."""

    queue: str
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session of AMQP 0-10 has ended, and not by this client: what the broker refused, or a takeover."""

    name: str
    error: errors.HarebellError


@dataclass(frozen=True, slots=True)
class StreamResumed:
    """After a loss, a consumer of a stream queue continues at `offset`.

    That is the number of a message; or a time, or "first", where it had been handed none before the loss.
    """

    queue: str
    consumer_tag: str
    offset: object


@dataclass(frozen=True, slots=True)
class StreamGap:
    """After a loss, a consumer of a stream queue could not continue where it should: the queue no longer has the
    messages from `expected` on, and the next one is `came`."""

    queue: str
    consumer_tag: str
    expected: int
    came: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is closed for good: by this client, or with RecoveryGaveUp, or lost without recovery."""

    error: errors.HarebellError


Event = (
    Connecting
    | Open
    | Blocked
    | Unblocked
    | Reconnecting
    | Recovered
    | QueueRecovered
    | ChannelReopened
    | ConsumerEnded
    | ConsumerWaiting
    | Resubscribed
    | SessionEnded
    | StreamResumed
    | StreamGap
    | Closed
)
"""Whatever an iterator of events gives."""


class Events:
    """The events of one connection from now on, as an asynchronous iterator; Closed is the last one.

    Made by `connection.events()`. Waiting can be cancelled and taken up again without losing an event. `waiting` are
    those that were not taken yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
        self._loop = loop
        self._readers = readers
        self.waiting: deque[Event] = deque(maxlen=MAX_WAITING)
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        self.waiting.append(event)
        if isinstance(event, Closed):
            self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """No more events for this reader."""
        self._ended = True
        self._readers.forget(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self.waiting:
            if self._ended:
                raise StopAsyncIteration
            if self._waiter is None or self._waiter.done():
                self._waiter = self._loop.create_future()
            self._readers.awaited[self] += 1
            try:
                await asyncio.shield(self._waiter)
            finally:
                self._readers.awaited[self] -= 1
                if not self._readers.awaited[self]:
                    del self._readers.awaited[self]
        return self.waiting.popleft()


class Readers:
    """The readers of one connection's events.

    A reader that nobody has any more is forgotten. One that tasks wait for is kept until the connection ends: it may be
    all that has these tasks, and Python complains of a task that is freed while it waits.

    awaited  how many tasks wait for each
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._all: weakref.WeakSet[Events] = weakref.WeakSet()
        self.awaited: Counter[Events] = Counter()

    def new(self) -> Events:
        reader = Events(self._loop, self)
        self._all.add(reader)
        return reader

    def forget(self, reader: Events) -> None:
        self._all.discard(reader)

    def put(self, event: Event) -> None:
        for reader in list(self._all):
            reader.put(event)
