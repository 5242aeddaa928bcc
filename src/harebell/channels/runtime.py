"""The runtime of one layer in one process: connection, publisher, readers, groups. Both layers use it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from harebell import errors
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.io_thread import AsyncAnswer, SyncAnswer, io_thread
from harebell.channels.local_members import LocalMembers
from harebell.channels.memberships.census import Census
from harebell.channels.memberships.dead_letters import DeadLetters
from harebell.channels.memberships.group_history import GroupHistory
from harebell.channels.memberships.groups import Groups
from harebell.channels.memberships.presence import Presence
from harebell.channels.messages.controls import Controls
from harebell.channels.messages.counts import LayerCounts
from harebell.channels.messages.fullness import Fullness
from harebell.channels.messages.local_queues import ABANDONED, LocalQueueReader
from harebell.channels.messages.mailboxes import Mailboxes
from harebell.channels.messages.publishing import Publisher
from harebell.channels.messages.questions import Questions
from harebell.channels.messages.shared_queues import SharedQueueReaders
from harebell.channels.settings import Settings

__all__ = ["LayerRuntime"]

logger = logging.getLogger("harebell.channels")

_T = TypeVar("_T")

SWEEP_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 60.0  # between two warnings about unreadable messages


class LayerRuntime:
    """All parts of one layer but its public methods."""

    def __init__(self, settings: Settings, on_missed: Callable[[str], None] | None) -> None:
        self.settings = settings
        self.thread = io_thread()
        self.connection = LayerConnection(settings, self.thread)
        self.members = LocalMembers()
        self.mailboxes = Mailboxes(settings.capacities, ABANDONED * settings.expiry)
        self.controls = Controls(self.connection)
        self.local_queues = LocalQueueReader(self.connection, self.mailboxes, self.members, self.controls)
        self.local_queues.on_missed = on_missed
        self.local_queues.on_abandoned = self._abandoned
        self.shared_queues = SharedQueueReaders(self.connection, self._resend)
        self.fullness = Fullness(self.connection, self.mailboxes, self.controls)
        self.local_queues.on_full = self.fullness.filled
        self.local_queues.on_own = self.fullness.arrived
        self.publisher = Publisher(self.connection, self.fullness)
        self.groups = Groups(self.connection, self.members, self.local_queues, self.controls)
        self.questions = Questions(self.connection, self.controls)
        self.presence = Presence(self.members, self.questions)
        self.history = GroupHistory(self.connection)
        self.counts = LayerCounts()
        self.census = Census(
            self.connection,
            self.questions,
            self.groups,
            self.local_queues,
            self.shared_queues,
            self.mailboxes,
            self.history,
            self.counts,
        )
        self.dead_letters = DeadLetters(self.connection, self.groups)
        self.connection.on_failure += [self.mailboxes.interrupt, self.shared_queues.fail]
        self._swept_by: asyncio.TimerHandle | None = None
        self.thread.post(self._sweep_later)
        self.unread = 0
        self._complained = -QUIET_SECONDS

    async def call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine in the I/O thread and return its result; for coroutines of any loop."""
        answer: AsyncAnswer[_T] = AsyncAnswer(self.thread)
        self.thread.run(work, answer)
        return await answer.future

    def call_blocking(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine in the I/O thread and return its result; for threads without a loop."""
        answer: SyncAnswer[_T] = SyncAnswer()
        self.thread.run(work, answer)
        return answer.wait()

    def _resend(self, channel: str, body: bytes) -> None:
        self.publisher.send(channel, body, _Nobody())

    def unreadable(self, channel: str, error: Exception) -> None:
        """Count a message that was dropped because it has another format; logs once a minute."""
        self.unread += 1
        now = time.monotonic()
        if now - self._complained >= QUIET_SECONDS:
            self._complained = now
            logger.error("a message to %s cannot be read and is dropped: %s (%d so far)", channel, error, self.unread)

    def statistics(self) -> dict[str, int]:
        """The counts of this layer in this process.

        received    messages received for process-local channels
        waiting     messages in this process that no reader has taken yet
        dropped     messages to process-local channels that were over capacity or expired
        unreadable  messages of another format or key
        full        sends that raised ChannelFull
        members     memberships of this process's own channels
        uncertain   messages to normal channels that their readers may have missed when a connection was lost
        expired     dead letters of the broker that this layer handled
        """
        return {
            "received": self.local_queues.received,
            "waiting": self.mailboxes.waiting()[0],
            "dropped": self.mailboxes.dropped,
            "unreadable": self.unread,
            "full": self.counts.full,
            "members": len(self.members),
            "uncertain": self.shared_queues.uncertain,
            "expired": self.dead_letters.counted["expired"],
        }

    async def close(self) -> None:
        if self._swept_by is not None:
            self._swept_by.cancel()
        await self.controls.end()
        await self.connection.close()
        closed = errors.ChannelClosed("the channel layer was closed")
        self.mailboxes.fail(closed)
        self.shared_queues.fail(closed)

    def _sweep_later(self) -> None:
        if not self.connection.closed:
            seconds = min(SWEEP_SECONDS, self.settings.expiry / 4)
            self._swept_by = self.thread.loop.call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        now = time.monotonic()
        try:
            self.groups.expire(now)
            self.local_queues.sweep(now)
        except Exception:
            logger.exception("the channel layer could not look for what has expired")
        self._sweep_later()

    def _abandoned(self, channel: str, groups: list[str]) -> None:
        for group in groups:
            self.thread.start(self._end(group, channel))

    async def _end(self, group: str, channel: str) -> None:
        try:
            await self.groups.discard(group, channel)
        except errors.HarebellError as error:
            logger.warning("%s could not leave group %s: %s", channel, group, error)


class _Nobody:
    """Ignores the result of a message that no caller waits for."""

    def give(self, result: None) -> None: ...

    def fail(self, error: BaseException) -> None:
        logger.warning("a message that nobody took could not be put back: %s", error)
