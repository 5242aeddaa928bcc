"""What clients sent to a broker and got from it, and whether a broker that loses nothing could have answered so.

Every message has a key: its publisher's number and its own, which grows. A publisher's number is good for one
connection; who connects again gets another. For each queue a `Book` holds what every message has come to. Breaches are
noted as they happen; what is missing is known at the end, when every queue has been emptied: `verdict`.

The rules:

1. A message that was confirmed (or committed) comes from every durable queue that it was routed to: once at least.
2. Nothing comes that was not published, nor what was rolled back.
3. What comes a second time from a queue says `redelivered`. A rejected message comes from the queue of dead letters at
   most as often as it was rejected. A message that an exchange held back comes once for each kill that may have hit it
   on its way into the queue: it leaves the exchange only when the queue has it on disk.
4. What was acknowledged does not come again, flagged or not, once the broker has answered something that was sent
   behind the acknowledgement. (A broker that was killed has written it then; after a power cut, which this history does
   not know, such a message may come again.) What was rejected may come again until its dead letter is safe.
5. What one publisher sent comes to one consumer in that order, but for redeliveries and for higher priorities. From a
   queue that never has two consumers, also from one consumer to the next.
6. An offset of a stream means the same message for ever; each message has one offset; there are no holes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Book", "History", "Stream", "Verdict", "describe"]

# What a message has come to in one queue.
CONFIRMED: Final = 1
RECEIVED: Final = 2
SETTLED: Final = 4  # acknowledged or rejected, as far as the consumer knows
ACKED: Final = 8
TAKEN: Final = 16  # and the broker has read the acknowledgement
ROLLED_BACK: Final = 32
MOST_BREACHES: Final = 50  # that are told in words


def key(publisher: int, number: int) -> int:
    return publisher << 32 | number


def describe(message: int) -> str:
    return f"message {message & 0xFFFFFFFF} of publisher {message >> 32}"


@dataclass
class Verdict:
    """Figures, and the breaches in words: a good broker leaves none. `lost` are among them."""

    figures: Counter[str]
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"  {name:<34} {count:>12,}" for name, count in self.figures.items()]
        return "\n".join(lines + [f"  BREACH: {breach}" for breach in self.breaches])


class Book:
    """One queue. `sole`: it never has two consumers at a time. `dead`: where what is rejected goes.

    `held_back`: its messages come from an exchange that delays them, in any order.
    """

    def __init__(
        self, history: History, name: str, *, sole: bool = False, dead: Book | None = None, held_back: bool = False
    ) -> None:
        self.name, self.sole, self.dead, self.held_back = name, sole, dead, held_back
        self.states: dict[int, int] = {}
        self.left = 0  # confirmed and not settled, about
        self._history = history
        self._rejections: Counter[int] = Counter()  # for a queue of dead letters: how often each was sent to it
        self._plain_receipts: Counter[int] = Counter()  # ... and how often it came unflagged
        self._letters = False
        self._last: dict[tuple[int, int, int], int] = {}

    def published(self, message: int) -> None:
        self.states[message] = 0

    def confirmed(self, message: int) -> None:
        self.states[message] |= CONFIRMED
        self.left += 1

    def rolled_back(self, message: int) -> None:
        self.states[message] |= ROLLED_BACK

    def received(self, message: int, redelivered: bool, consumer: int, level: int = 0) -> None:
        """It came to that consumer. `level`: its priority, in a queue that has some."""
        count, breach = self._history.figures, self._history.breach
        count["deliveries"] += 1
        state = self.states.get(message)
        if state is None:
            breach(f"{self.name}: {describe(message)} came and was never published to it")
            return
        if state & ROLLED_BACK:
            breach(f"{self.name}: {describe(message)} came and was rolled back")
        if state & TAKEN and self._copies(message) < 2:  # else it may be the other one
            breach(f"{self.name}: {describe(message)} came again after its acknowledgement was taken")
        if state & RECEIVED:
            count["redeliveries, flagged"] += redelivered
            if not redelivered:
                self._again_unflagged(message)
        else:
            self.states[message] = state | RECEIVED
            count["first deliveries, flagged"] += redelivered
        if self._letters or self.held_back:
            self._plain_receipts[message] += not redelivered
        else:
            self._check_order(message, state, redelivered, consumer, level)

    def _copies(self, message: int) -> int:
        """How often it may have come into the queue."""
        return self._history.figures["kills"] + 1 if self.held_back else self._rejections[message]

    def _again_unflagged(self, message: int) -> None:
        if self._letters and self._plain_receipts[message] < self._rejections[message]:
            self._history.figures["dead-lettered twice"] += 1
            return
        if self.held_back and self._plain_receipts[message] < self._copies(message):
            self._history.figures["released twice"] += 1
            return
        self._history.figures["redeliveries, unflagged"] += 1
        self._history.breach(f"{self.name}: {describe(message)} came again without redelivered")

    def _check_order(self, message: int, state: int, redelivered: bool, consumer: int, level: int) -> None:
        first = not state & RECEIVED
        if redelivered and not (self.sole and first):
            return
        place = (0 if self.sole else consumer, level, message >> 32)
        if self._last.get(place, -1) >= message and (first or not self.sole):
            self._history.figures["out of order"] += 1
            self._history.breach(f"{self.name}: {describe(message)} came behind {describe(self._last[place])}")
        self._last[place] = max(message, self._last.get(place, -1))

    def acked(self, messages: Iterable[int]) -> None:
        """The consumer has written an acknowledgement of these."""
        for message in messages:
            state = self.states[message]
            self.left -= state & (CONFIRMED | SETTLED) == CONFIRMED
            self.states[message] = state | ACKED | SETTLED
            self._history.figures["acknowledged"] += 1

    def rejected(self, message: int) -> None:
        """The consumer has written a rejection: the message goes to `dead`."""
        assert self.dead is not None
        self.left -= self.states[message] & (CONFIRMED | SETTLED) == CONFIRMED
        self.states[message] |= SETTLED
        self.dead._letters = True
        self.dead._rejections[message] += 1
        self.dead.states.setdefault(message, 0)
        self._history.figures["rejected"] += 1

    def taken(self, messages: Iterable[int]) -> None:
        """The broker has answered what was sent behind the acknowledgement of these."""
        for message in messages:
            self.states[message] |= TAKEN
            self._history.figures["acknowledgements taken"] += 1

    def returned(self, message: int) -> None:
        """The consumer has asked for it to be put back."""
        self._history.figures["requeued"] += 1

    def missing(self) -> list[int]:
        """Confirmed, and neither acknowledged here nor where dead letters go, though the queues are empty."""
        dead = self.dead.states if self.dead is not None else {}
        return [
            message
            for message, state in self.states.items()
            if state & CONFIRMED and not state & ACKED and not dead.get(message, 0) & ACKED
        ]


class Stream:
    """One stream queue: what its offsets have shown."""

    def __init__(self, history: History, name: str) -> None:
        self.name = name
        self.states: dict[int, int] = {}
        self.offsets: dict[int, int] = {}
        self._seen: dict[int, int] = {}  # message -> offset
        self._history = history

    def published(self, message: int) -> None:
        self.states[message] = 0

    def confirmed(self, message: int) -> None:
        self.states[message] |= CONFIRMED

    def rolled_back(self, message: int) -> None:
        self.states[message] |= ROLLED_BACK

    def received(self, message: int, offset: int) -> None:
        """A reader got it at that offset."""
        self._history.figures["stream reads"] += 1
        breach, state = self._history.breach, self.states.get(message)
        if state is None or state & ROLLED_BACK:
            breach(f"{self.name}: {describe(message)} stands at {offset} and was never published to it")
            return
        if self.offsets.setdefault(offset, message) != message:
            breach(f"{self.name}: offset {offset} was {describe(self.offsets[offset])}, is {describe(message)}")
        if self._seen.setdefault(message, offset) != offset:
            breach(f"{self.name}: {describe(message)} stands at {self._seen[message]} and at {offset}")

    def read_whole(self, messages: Sequence[int]) -> None:
        """All that the stream holds at the end, from its first offset on."""
        for offset, message in enumerate(messages):
            self.received(message, offset)
        last: dict[int, int] = {}
        for message in messages:
            if last.get(message >> 32, -1) >= message:
                self._history.figures["out of order"] += 1
                self._history.breach(f"{self.name}: {describe(message)} stands behind {describe(last[message >> 32])}")
            last[message >> 32] = message
        if len(self.offsets) != len(messages):
            self._history.breach(f"{self.name}: offsets were read that are gone")

    def missing(self) -> list[int]:
        return [message for message, state in self.states.items() if state & CONFIRMED and message not in self._seen]


class History:
    """All books, and what publishers heard."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.books: dict[str, Book] = {}
        self.streams: dict[str, Stream] = {}
        self._breaches: list[str] = []
        self._told = 0
        self._publishers = 0
        self._consumers = 0

    def book(self, name: str, *, sole: bool = False, dead: str | None = None, held_back: bool = False) -> Book:
        """The queue's book, opened if it is new; the dead letters' before."""
        letters = self.books[dead] if dead is not None else None
        return self.books.setdefault(name, Book(self, name, sole=sole, dead=letters, held_back=held_back))

    def stream(self, name: str) -> Stream:
        return self.streams.setdefault(name, Stream(self, name))

    def publisher(self, targets: Sequence[Book | Stream], *, durable: bool = True) -> Publisher:
        """A publisher on a new connection, whose messages go to all of these. Not `durable`: they may be lost."""
        self._publishers += 1
        return Publisher(self, self._publishers, targets, durable)

    def consumer(self) -> int:
        self._consumers += 1
        return self._consumers

    def breach(self, text: str) -> None:
        self.figures["breaches"] += 1
        if len(self._breaches) < MOST_BREACHES:
            self._breaches.append(text)

    def news(self) -> list[str]:
        """The breaches since this was asked last."""
        self._told, since = len(self._breaches), self._told
        return self._breaches[since:]

    @property
    def left(self) -> int:
        return sum(book.left for book in self.books.values())

    def verdict(self) -> Verdict:
        """After every queue has been emptied and every stream read."""
        lost = 0
        books: list[Book | Stream] = [*self.books.values(), *self.streams.values()]
        for each in books:
            missing = each.missing()
            lost += len(missing)
            if missing:
                some = ", ".join(map(describe, missing[:3]))
                self.breach(f"{each.name}: {len(missing)} confirmed messages are lost: {some} ...")
        figures = Counter(dict.fromkeys(("published", "confirmed", "deliveries", "acknowledged"), 0))
        figures.update(self.figures)
        figures["lost"] = lost
        return Verdict(figures, self._breaches)


class Publisher:
    """One connection that publishes. `next` before a message is written, then `confirmed` or `refused` or neither."""

    def __init__(self, history: History, number: int, targets: Sequence[Book | Stream], durable: bool) -> None:
        self.number = number
        self._history, self._targets, self._durable = history, targets, durable
        self._last = 0

    def next(self) -> int:
        """The number of a message that is about to be sent."""
        self._last += 1
        for target in self._targets:
            target.published(key(self.number, self._last))
        self._history.figures["published" if self._durable else "published, transient"] += 1
        return self._last

    def confirmed(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._history.figures["confirmed" if self._durable else "confirmed, transient"] += 1
            if self._durable:
                for target in self._targets:
                    target.confirmed(key(self.number, number))

    def refused(self, numbers: Iterable[int]) -> None:
        """They may be there or not."""
        self._history.figures["refused"] += len(list(numbers))

    def rolled_back(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._history.figures["rolled back"] += 1
            for target in self._targets:
                target.rolled_back(key(self.number, number))
