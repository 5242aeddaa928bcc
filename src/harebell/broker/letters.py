"""The dead letters of a node on their way to their queues: a letter never dies inside the publication of another one.

A letter for a few queues is published at once, by the call that makes it. These wait in one line, first in, first out:

- a letter that dies while another is published: so a chain of queues takes no stack, however long it is;
- a letter for many queues;
- any letter while others wait: letters of one queue arrive in the order in which they died.

The outermost call publishes what waits, up to INLINE publications in a batch; a work does the rest in slices. A letter
has the number of the batch that caused it, and so have the letters that die on its way: the batch may say that its
publications are safe once all letters with its number are (`Batch`).

Letters know neither headers nor routes: `queues.dead_letters` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.slices import Slices, Work

__all__ = ["Letter", "Letters"]

QUEUES_AT_ONCE: Final = 8  # of a letter that is published by the call that makes it
INLINE: Final = 512  # publications from the line in a batch, before the rest waits for slices
QUEUES_PER_STEP: Final = 8
CROWD: Final = 1024  # letters in the line, above which works that make more of them wait until it is empty


class Letter:
    """A letter in the line. `left` is the number of sinks that lack it, `number` that of its batch."""

    __slots__ = ("_message", "_sinks", "left", "number")

    def __init__(self, message: Message, sinks: Sequence[Sink]) -> None:
        self._message, self._sinks = message, sinks
        self.left, self.number = len(sinks), 0

    def publish(self, count: int) -> None:
        """Publish to so many more sinks; the caller counts `left` down."""
        at, message = len(self._sinks) - self.left, self._message
        for sink in self._sinks[at : at + count]:
            sink.publish(message)

    def end(self) -> None:
        """Act on the last publication."""


class Letters:
    """The line of a node.

    free      whether none is being published and none waits: the next one may be published at once
    opened    the number of the current batch
    current   the number of the letter that is being published from the line; 0: none is
    inline    the publications from the line that the current batch may still do
    relieve     called after each step of the work
    published   called with a number when all letters of the batches up to that one are published
    """

    __slots__ = (
        "_held_back", "_line", "_outstanding", "_published", "_relieve", "_slices", "_working", "current", "free",
        "inline", "opened",
    )  # fmt: skip

    def __init__(self, slices: Slices, relieve: Callable[[], None], published: Callable[[int], None]) -> None:
        self._slices, self._relieve, self._published = slices, relieve, published
        self._line: deque[Letter] = deque()
        self._outstanding: dict[int, int] = {}  # letters by number, the lowest number first
        self._held_back: list[Callable[[], None]] = []  # continue the works that wait
        self._working = False
        self.free = True
        self.opened, self.current, self.inline = 1, 0, INLINE

    @property
    def waits(self) -> bool:
        """Whether letters of the current batch are in the line."""
        return not self.free and self.opened in self._outstanding

    def hold_back(self) -> None:
        """Let the work that runs now, and makes letters, wait after its next yield if the line is long."""
        if len(self._line) > CROWD:
            self._slices.wait(self._held_back.append)

    def send(self, message: Message, sinks: Sequence[Sink]) -> None:
        """Publish a letter to its sinks: at once, or in its turn."""
        if not self.free or len(sinks) > QUEUES_AT_ONCE:
            self.put(Letter(message, sinks))
            return
        self.free = False
        try:
            for sink in sinks:
                sink.publish(message)
        finally:
            self._go_on()

    def put(self, letter: Letter) -> None:
        """Put a letter into the line, which begins at once if nothing is before it."""
        letter.number = number = self.current or self.opened
        self._outstanding[number] = self._outstanding.get(number, 0) + 1
        self._line.append(letter)
        if self.free:
            self.free = False
            self._go_on()

    def close(self) -> bool:
        """Begin the next batch, if letters of this one wait. Returns whether they do."""
        if self.opened not in self._outstanding:
            return False
        self.opened += 1
        return True

    def _go_on(self) -> None:
        """Publish what waits, the rest in slices: the outermost publication is done."""
        line = self._line
        try:
            while line and self.inline > 0:
                self._step()
        finally:
            if not line:
                self.free = True
            elif not self._working:
                self._working = True
                self._slices.later(self._work())

    def _work(self) -> Work:
        while self._line:
            try:
                self._step()
                self._relieve()
            except BaseException:
                self._slices.later(self._work())  # the other letters go on
                raise
            yield
        self._working, self.free = False, True
        held_back, self._held_back = self._held_back, []
        for go_on in held_back:
            go_on()

    def _step(self) -> None:
        """Publish the first letter to some of its sinks."""
        letter, done = self._line.popleft(), True
        count = min(QUEUES_PER_STEP, letter.left)
        self.inline -= max(1, count)
        self.current = letter.number
        try:
            letter.publish(count)
            letter.left -= count
            done = letter.left <= 0
            if done:
                letter.end()
        finally:
            self.current = 0
            if done:
                self._count_down(letter.number)
            else:
                self._line.appendleft(letter)

    def _count_down(self, number: int) -> None:
        outstanding = self._outstanding
        outstanding[number] -= 1
        if not outstanding[number]:
            first = next(iter(outstanding)) == number
            del outstanding[number]
            if first and number != self.opened:
                self._published(next(iter(outstanding), self.opened) - 1)
