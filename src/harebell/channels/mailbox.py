"""Messages that wait in this process for their reader, who may be in any loop or thread.

The I/O thread puts, readers take. A message leaves the mailbox in the reader's own hands and nowhere else: a reader who
is cancelled while he waits has taken nothing, and two loops that read one channel get each message once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from harebell.channels.io_thread import IOThread
from harebell.client.messages import Delivery

__all__ = ["FOREVER", "AsyncWaiter", "Letter", "Mailbox", "SyncWaiter"]

FOREVER: Final = float("inf")


class Letter:
    """One message, not read yet: its bytes, and until when it may be read."""

    __slots__ = ("body", "channel", "claim", "delivery", "expires")

    def __init__(self, channel: str, body: bytes, expires: float) -> None:
        self.channel = channel
        self.body = body
        self.expires = expires  # of the monotonic clock
        self.delivery: Delivery | None = None  # while it is still its queue's
        self.claim: asyncio.Future[bool] | None = None  # in the I/O thread, while a reader makes it his own

    def __repr__(self) -> str:
        return f"Letter({self.channel!r}, {len(self.body)} bytes)"


class Waiter(Protocol):
    """Somebody who waits for a letter, in one mailbox or in several."""

    def wake(self) -> bool:
        """False when he is gone: the next in line is woken."""
        ...


class AsyncWaiter:
    """A coroutine, in whatever loop."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self, thread: IOThread) -> None:
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> bool:
        return not self.future.done() and self._thread.deliver(self._loop, self.future, None, None)


class SyncWaiter:
    """A thread without a loop."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def wake(self) -> bool:
        if not self.future.done():
            self.future.set_result(None)
        return True


class Mailbox:
    """The letters of one channel.

    last_read  when somebody asked last, of the monotonic clock
    missed     how many letters were dropped since the reader was told last: over capacity, or expired
    """

    __slots__ = ("_letters", "_lock", "_retired", "_waiters", "capacity", "dropped", "failure", "last_read", "missed")

    def __init__(self, capacity: int, now: float) -> None:
        self.capacity = capacity
        self.last_read = now
        self.missed = 0
        self.dropped = 0
        self.failure: Exception | None = None
        self._retired = False
        self._letters: deque[Letter] = deque()
        self._waiters: deque[Waiter] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, letter: Letter) -> bool:
        """Leave a letter; False when there is no room for it: the newest is the one that goes."""
        with self._lock:
            if len(self._letters) >= self.capacity:
                self.missed += 1
                self.dropped += 1
                return False
            self._letters.append(letter)
            self._wake_one()
        return True

    def take_missed(self) -> int:
        """How many were dropped since this was asked last."""
        with self._lock:
            missed, self.missed = self.missed, 0
        return missed

    def put_back(self, letter: Letter) -> None:
        """Leave a letter that was taken: it is the first again."""
        with self._lock:
            self._letters.appendleft(letter)
            self._wake_one()

    def _wake_one(self) -> None:
        waiters = self._waiters
        while waiters and not waiters.popleft().wake():
            pass

    def take(self, now: float) -> Letter | None:
        """The first letter that has not expired; None when there is none. Raises the failure when none will come."""
        self.last_read = now
        with self._lock:
            letters = self._letters
            while letters:
                letter = letters.popleft()
                if letter.expires > now:
                    return letter
                self.missed += 1
                self.dropped += 1
        if self.failure is not None:
            raise copy.copy(self.failure)  # one object raised in many places would mix up their tracebacks
        return None

    def wait(self, waiter: Waiter) -> bool:
        """Have the next letter wake this one; False when there is one already, or when it will come to another box."""
        with self._lock:
            if self._letters or self.failure is not None or self._retired:
                return False
            self._waiters.append(waiter)
            return True

    async def letter_comes(self, thread: IOThread) -> bool:
        """Wait, in the caller's loop, until there may be a letter; False at once when `wait` says so."""
        waiter = AsyncWaiter(thread)
        if not self.wait(waiter):
            return False
        try:
            await waiter.future
        except BaseException:
            self.leave(waiter)
            raise
        return True

    def leave(self, waiter: Waiter) -> None:
        """This one waits no more. If he was woken already, the next in line is."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._letters:
                self._wake_one()

    def retire(self, unread_since: float) -> bool:
        """No letter comes here any more, if it is empty, nobody waits, and nobody has looked into it since then."""
        with self._lock:
            self._retired = not self._letters and not self._waiters and self.last_read < unread_since
            return self._retired

    @property
    def awaited(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def drop_expired(self, now: float) -> int:
        """How many letters had expired."""
        with self._lock:
            count = 0
            while self._letters and self._letters[0].expires <= now:
                self._letters.popleft()
                count += 1
            self.missed += count
            self.dropped += count
        return count

    def fail(self, failure: Exception) -> None:
        """No letter will come any more: whoever takes, now or later, is told why."""
        with self._lock:
            self.failure = failure
            while self._waiters:
                self._waiters.popleft().wake()

    def remove(self, unwanted: Callable[[Letter], bool]) -> None:
        """Take out letters that nobody shall read."""
        with self._lock:
            if any(map(unwanted, self._letters)):
                self._letters = deque(letter for letter in self._letters if not unwanted(letter))

    def empty(self) -> list[Letter]:
        """All letters, for whoever gives them back."""
        with self._lock:
            letters = list(self._letters)
            self._letters.clear()
        return letters
