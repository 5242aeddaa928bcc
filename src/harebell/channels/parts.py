"""The parts of one layer in one process, put together; both faces stand on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from harebell import errors
from harebell.channels.connection import Core
from harebell.channels.expired import DeadLetters
from harebell.channels.group_history import History
from harebell.channels.groups import Groups
from harebell.channels.io_thread import AsyncAnswer, SyncAnswer, the_thread
from harebell.channels.local_channels import Mailboxes, ProcessReader
from harebell.channels.local_members import Members
from harebell.channels.presence import Presence
from harebell.channels.publishing import Sender
from harebell.channels.settings import Settings
from harebell.channels.shared_queues import SharedReaders

__all__ = ["Office"]

logger = logging.getLogger("harebell.channels")

_T = TypeVar("_T")

SWEEP_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 60.0  # between two complaints about unreadable messages


class Office:
    """Everything of one layer but its face.

    full  how often a sender was told ChannelFull
    """

    def __init__(self, settings: Settings, on_missed: Callable[[str], None] | None) -> None:
        self.settings = settings
        self.thread = the_thread()
        self.core = Core(settings, self.thread)
        self.members = Members()
        self.boxes = Mailboxes(self.core)
        self.process = ProcessReader(self.core, self.boxes, self.members)
        self.process.on_missed = on_missed
        self.shared = SharedReaders(self.core, self._resend)
        self.sender = Sender(self.core)
        self.groups = Groups(self.core, self.members, self.process)
        self.presence = Presence(self.core, self.members, self.process)
        self.history = History(self.core)
        self.dead_letters = DeadLetters(self.core, self.groups)
        self.core.on_open += [self.dead_letters.start, self._sweep_later]
        self.full = 0
        self.unread = 0
        self._complained = -QUIET_SECONDS

    async def call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Have the I/O thread run it; for coroutines of any loop."""
        answer: AsyncAnswer[_T] = AsyncAnswer(self.thread)
        self.thread.run(work, answer)
        return await answer.future

    def call_blocking(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The same for threads without a loop."""
        answer: SyncAnswer[_T] = SyncAnswer()
        self.thread.run(work, answer)
        return answer.wait()

    def _resend(self, channel: str, body: bytes) -> None:
        self.sender.send(channel, body, _Nobody())

    def unreadable(self, channel: str, error: Exception) -> None:
        """A message was dropped because it is not of this layer's format; told once a minute."""
        self.unread += 1
        now = time.monotonic()
        if now - self._complained >= QUIET_SECONDS:
            self._complained = now
            logger.error("a message to %s cannot be read and is dropped: %s (%d so far)", channel, error, self.unread)

    def statistics(self) -> dict[str, int]:
        """
        received    messages that came for process-local channels
        waiting     messages in this process that nobody has taken yet
        dropped     messages to process-local channels that were over capacity or expired
        unreadable  messages of another format or key
        full        how often a sender was told ChannelFull
        members     memberships of this process's own channels
        uncertain   messages to normal channels that a lost connection made nobody's
        expired     dead letters of the broker that this layer handled
        """
        return {
            "received": self.process.received,
            "waiting": sum(len(box) for _, box in self.boxes.items()),
            "dropped": self.boxes.dropped,
            "unreadable": self.unread,
            "full": self.full,
            "members": len(self.members),
            "uncertain": self.shared.uncertain,
            "expired": self.dead_letters.counted["expired"],
        }

    async def flush(self) -> None:
        core = self.core
        await core.ready()
        await self.groups.forget()
        self.boxes.clear()
        for channel in core.known_queues:
            try:
                await core.declaring.queue_purge(core.names.queue(channel))
            except errors.NotFound:
                core.undeclared(channel)

    async def close(self) -> None:
        await self.core.close()
        closed = errors.ChannelClosed("the channel layer was closed")
        self.boxes.fail(closed)
        self.shared.fail(closed)

    # -- now and then ------------------------------------------------------------------------------------------------

    def _sweep_later(self, core: Core) -> None:
        if not core.closed:
            core.thread.loop.call_later(min(SWEEP_SECONDS, self.settings.expiry / 4), self._sweep)

    def _sweep(self) -> None:
        for group, channel in self.process.sweep(time.monotonic()):
            self.thread.start(self._end(group, channel))
        self._sweep_later(self.core)

    async def _end(self, group: str, channel: str) -> None:
        try:
            await self.groups.discard(group, channel)
        except errors.HarebellError as error:
            logger.warning("%s could not leave group %s: %s", channel, group, error)


class _Nobody:
    """Waits for no answer."""

    def give(self, result: None) -> None: ...

    def fail(self, error: BaseException) -> None:
        logger.warning("a message that nobody took could not be put back: %s", error)
