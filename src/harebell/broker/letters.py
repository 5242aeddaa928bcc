"""The dead letters of a node on their way to their queues: a letter never dies inside the publication of another one.

A letter for a few queues is published at once, by the call that makes it. These wait in one line, first in, first out:

- a letter that dies while another is published: so a chain of queues takes no stack, however long it is;
- a letter for many queues;
- a letter whose headers and route are not known yet, which takes time: they are worked out in its turn (`open`);
- any letter while others wait: letters of one queue arrive in the order in which they died.

The outermost call publishes what waits, up to INLINE publications or one slice of time in a batch; a work does the rest
in slices. So whoever makes letters, and however many of them in one step, keeps nobody waiting; a work that makes more
of them than are published waits (`hold_back`). A letter has the number of the batch that caused it, and so have the
letters that die on its way: the batch may say that its publications are safe once all letters with its number are
(`Batch`).

Letters know neither headers nor routes: `queues.dead_letters` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.slices import SLICE, Slices, Work

__all__ = ["SHORT", "Letter", "Letters"]

QUEUES_AT_ONCE: Final = 8  # of a letter that is published by the call that makes it
SHORT: Final = 4096  # bytes of headers of such a letter
INLINE: Final = 512  # publications from the line in a batch, before the rest waits for slices
QUEUES_PER_STEP: Final = 8
UNOPENED: Final = -1
CROWD: Final = 1024  # letters in the line, above which works that make more of them wait until it is empty


class Letter:
    """A letter in the line. `left` is the number of sinks that lack it (negative: `open` has to find them).

    `number` is that of its batch.
    """

    __slots__ = ("_sinks", "left", "message", "number")

    def __init__(self, message: Message, sinks: Sequence[Sink] | None) -> None:
        self.message, self._sinks = message, sinks or ()
        self.left, self.number = UNOPENED if sinks is None else len(sinks), 0

    def open(self) -> None:
        """Work out what is published, and to whom: at its turn. It calls `address`, or sets `left`."""

    def address(self, message: Message, sinks: Sequence[Sink]) -> None:
        """Publish this message to these sinks."""
        self.message, self._sinks, self.left = message, sinks, len(sinks)

    def publish(self, count: int) -> None:
        """Publish to so many more sinks; the caller counts `left` down."""
        at, message = len(self._sinks) - self.left, self.message
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
        "_end", "_held_back", "_line", "_outstanding", "_published", "_relieve", "_slices", "_working", "current",
        "free", "inline", "opened",
    )  # fmt: skip

    def __init__(self, slices: Slices, relieve: Callable[[], None], published: Callable[[int], None]) -> None:
        self._slices, self._relieve, self._published = slices, relieve, published
        self._line: deque[Letter] = deque()
        self._outstanding: dict[int, int] = {}  # letters by number, the lowest number first
        self._held_back: list[Callable[[], None]] = []  # continue the works that wait
        self._working = False
        self._end = 0.0  # of the time that the current batch has for the line; 0: it has not begun
        self.free = True
        self.opened, self.current, self.inline = 1, 0, INLINE

    @property
    def waits(self) -> bool:
        """Whether letters of the current batch are in the line."""
        return not self.free and self.opened in self._outstanding

    @property
    def crowded(self) -> bool:
        """Whether so many wait that whoever makes letters has to wait until the line is empty."""
        return len(self._line) > CROWD

    def hold_back(self) -> None:
        """Let the work that runs now, and makes letters, wait after its next yield if the line is long.

        `put` does so; a work that may run while a letter is published does it itself.
        """
        if len(self._line) > CROWD:
            self.wait()

    def wait(self) -> None:
        """Let the work that runs now wait after its next yield until the line is empty."""
        self._slices.wait(self._when_empty)

    def _when_empty(self, go_on: Callable[[], None]) -> None:
        if self.free:
            go_on()
        else:
            self._held_back.append(go_on)

    def renew(self) -> None:
        """Begin the next batch's part of the line."""
        self.inline, self._end = INLINE, 0.0

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
        elif not self.current:
            self.hold_back()

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
            if line and self.inline > 0:
                stopwatch = self._slices.stopwatch
                self._end = self._end or stopwatch() + SLICE
                while line and self.inline > 0:
                    self._step()
                    if stopwatch() >= self._end:
                        self.inline = 0
        finally:
            if not line:
                self._emptied()
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
        self._working = False
        self._emptied()

    def _emptied(self) -> None:
        self.free = True
        if self._held_back:
            held_back, self._held_back = self._held_back, []
            for go_on in held_back:
                go_on()

    def _step(self) -> None:
        """Publish the first letter to some of its sinks."""
        letter, done = self._line.popleft(), True
        self.current = letter.number
        try:
            if letter.left < 0:
                letter.open()
            count = min(QUEUES_PER_STEP, letter.left)
            self.inline -= max(1, count)
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
