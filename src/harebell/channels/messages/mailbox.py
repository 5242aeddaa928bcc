"""A mailbox: the messages of a channel that wait in this process for a reader in any loop or thread.

The I/O thread puts entries, readers take them. A message leaves the mailbox only when a reader takes it: a reader that
is cancelled while it waits has taken none, and two loops that read one channel get each message once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from harebell.channels.links.io_thread import IOThread
from harebell.client.messages import Delivery

__all__ = ["FOREVER", "AsyncWaiter", "MailboxEntry", "Mailbox", "SyncWaiter"]

FOREVER: Final = float("inf")
NUMBERS: Final = itertools.count()


class MailboxEntry:
    """A message that is not read yet: its bytes, and when it expires."""

    __slots__ = ("body", "channel", "claim", "delivery", "expires", "number")

    def __init__(self, channel: str, body: bytes, expires: float) -> None:
        self.channel = channel
        self.body = body
        self.expires = expires  # of the monotonic clock
        self.delivery: Delivery | None = None  # while the broker still counts it as unacknowledged
        self.claim: asyncio.Future[bool] | None = None  # in the I/O thread, since a reader secures it
        self.number = next(NUMBERS)  # in the order of arrival, in any mailbox

    def __repr__(self) -> str:
        return f"MailboxEntry({self.channel!r}, {len(self.body)} bytes)"


class Waiter(Protocol):
    """A reader that waits for an entry, in one mailbox or in several."""

    def wake(self) -> bool:
        """Wake the reader; False when it waits no longer, so that the next one is woken."""
        ...


class AsyncWaiter:
    """A waiting coroutine, in any loop."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self, thread: IOThread) -> None:
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> bool:
        return not self.future.done() and self._thread.deliver(self._loop, self.future, None, None)

    async def within(self, seconds: float) -> None:
        """Wait until it is woken. TimeoutError."""
        async with asyncio.timeout(max(seconds, 0)):
            await self.future


class SyncWaiter:
    """A waiting thread without a loop."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def wake(self) -> bool:
        if not self.future.done():
            self.future.set_result(None)
        return True


class Mailbox:
    """The entries of one channel.

    capacity   how many entries may wait
    surplus    how many more may wait of those whose senders could not yet know that the mailbox is full
    last_read  time of the last read, of the monotonic clock
    missed     how many entries were dropped since the last `take_missed`: over capacity, or expired
    check_at   when it is to be looked at for expired entries
    told       what is to be called, by whichever thread reads, once the mailbox is no longer full
    """

    __slots__ = (
        "_entries", "_lock", "_retired", "_waiters", "capacity", "check_at", "dropped", "failure", "last_read",
        "missed", "surplus", "told",
    )  # fmt: skip

    def __init__(self, capacity: int, now: float, surplus: int = 0) -> None:
        self.capacity = capacity
        self.surplus = surplus
        self.told: Callable[[], None] | None = None
        self.last_read = now
        self.check_at = FOREVER
        self.missed = 0
        self.dropped = 0
        self.failure: Exception | None = None
        self._retired = False
        self._entries: deque[MailboxEntry] = deque()
        self._waiters: deque[Waiter] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        return len(self._entries) >= self.capacity

    def put(self, entry: MailboxEntry, *, surplus: bool = False) -> bool:
        """Add an entry; False when the mailbox is full, which drops the new entry.

        surplus  its sender could not know whether the mailbox is full
        """
        with self._lock:
            if len(self._entries) >= self.capacity + (self.surplus if surplus else 0):
                self.missed += 1
                self.dropped += 1
                return False
            self._entries.append(entry)
            self._wake_one()
        return True

    def take_missed(self) -> int:
        """The number of entries dropped since the last call."""
        with self._lock:
            missed, self.missed = self.missed, 0
        return missed

    def put_back(self, entry: MailboxEntry) -> None:
        """Put back an entry that was taken, before all that came after it."""
        with self._lock:
            entries = self._entries
            before = next((n for n, other in enumerate(entries) if other.number > entry.number), len(entries))
            entries.insert(before, entry)
            self._wake_one()

    def _wake_one(self) -> None:
        waiters = self._waiters
        while waiters and not waiters.popleft().wake():
            pass

    def take(self, now: float) -> MailboxEntry | None:
        """Take the first entry that has not expired; None without one. Raises the failure when none will come."""
        self.last_read = now
        with self._lock:
            entries = self._entries
            while entries:
                entry = entries.popleft()
                if self.told is not None and len(entries) < self.capacity:
                    self._tell()
                if entry.expires > now:
                    return entry
                self.missed += 1
                self.dropped += 1
        if self.failure is not None:
            raise copy.copy(self.failure)  # one object raised in many places would mix up their tracebacks
        return None

    def _tell(self) -> None:
        told, self.told = self.told, None
        if told is not None:
            told()

    def wait(self, waiter: Waiter) -> bool:
        """Let the next entry wake this waiter; False when an entry is there, or when the mailbox is closed."""
        with self._lock:
            if self._entries or self.failure is not None or self._retired:
                return False
            self._waiters.append(waiter)
            return True

    async def wait_entry(self, thread: IOThread) -> bool:
        """Wait, in the caller's loop, until there may be an entry; False at once when `wait` returns False."""
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
        """Remove a waiter. If it was already woken, the next one is woken in its place."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._entries:
                self._wake_one()

    def retire(self, unread_since: float) -> bool:
        """Close the mailbox if it is empty, no reader waits, and none has read since then; True if it is closed."""
        with self._lock:
            self._retired = not self._entries and not self._waiters and self.last_read < unread_since
            return self._retired

    @property
    def first_expiry(self) -> float:
        """When the first entry expires; FOREVER without one."""
        with self._lock:
            return self._entries[0].expires if self._entries else FOREVER

    @property
    def awaited(self) -> bool:
        """Whether a reader waits."""
        return bool(self._waiters)

    def drop_expired(self, now: float) -> int:
        """Remove expired entries; returns their number."""
        with self._lock:
            count = 0
            while self._entries and self._entries[0].expires <= now:
                self._entries.popleft()
                count += 1
            self.missed += count
            self.dropped += count
            if count:
                self._tell()
        return count

    def fail(self, failure: Exception) -> None:
        """Raise this error in present and later readers: no entry will come any more."""
        with self._lock:
            self.failure = failure
            while self._waiters:
                self._waiters.popleft().wake()

    def remove(self, unwanted: Callable[[MailboxEntry], bool]) -> bool:
        """Remove the entries that are `unwanted`; whether there were any."""
        with self._lock:
            found = any(map(unwanted, self._entries))
            if found:
                self._entries = deque(entry for entry in self._entries if not unwanted(entry))
        return found

    def empty(self) -> list[MailboxEntry]:
        """Remove and return all entries, for the caller to give back."""
        with self._lock:
            entries = list(self._entries)
            self._entries.clear()
        return entries
