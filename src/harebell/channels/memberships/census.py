"""What all processes of a prefix have together: statistics over them, and flushing all of it. In the I/O thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from harebell import errors
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.link import Link
from harebell.channels.memberships.group_history import GroupHistory
from harebell.channels.memberships.groups import Groups
from harebell.channels.messages.counts import LayerCounts
from harebell.channels.messages.local_queues import LocalQueueReader
from harebell.channels.messages.mailboxes import Mailboxes
from harebell.channels.messages.publishing import ID_HEADER, sent_us_of
from harebell.channels.messages.questions import Questions
from harebell.channels.messages.shared_queues import SharedQueueReaders
from harebell.channels.names import non_local, owner_of
from harebell.client.messages import Delivery
from harebell.protocol.v091 import methods as m

__all__ = ["Census"]

ANSWER_SECONDS: Final = 2.0  # for another process


class Census:
    """Statistics over all processes, and `flush`."""

    def __init__(
        self,
        connection: LayerConnection,
        questions: Questions,
        groups: Groups,
        local_queues: LocalQueueReader,
        shared_queues: SharedQueueReaders,
        boxes: Mailboxes,
        history: GroupHistory,
        counts: LayerCounts,
    ) -> None:
        self._connection = connection
        self._questions = questions
        self._groups = groups
        self._local_queues = local_queues
        self._shared_queues = shared_queues
        self._boxes = boxes
        self._history = history
        self._counts = counts
        questions.on["counts"] = self._count
        questions.on["flush"] = self._forget

    # -- statistics --------------------------------------------------------------------------------------------------

    async def statistics(self, channel: str | None) -> dict[str, float]:
        """The statistics of ASGI 1, of a channel or (None) of all, over all processes that are alive."""
        answers, registered = await self._questions.ask("counts", channel, ANSWER_SECONDS)
        found: dict[str, float] = dict.fromkeys(answers[0] if answers else (), 0)
        for answer in answers:
            for key, value in answer.items():
                found[key] = max(found[key], value) if key == "messages_max_age" else found[key] + value
        names = [non_local(channel)] if channel is not None else sorted(registered.queues)
        for name in names:
            if owner_of(name) is None:
                waiting, age = await self._connection.over_links(lambda link, name=name: self._waiting(link, name))  # type: ignore[misc]
                found["messages_pending"] += waiting
                found["messages_max_age"] = max(found["messages_max_age"], age)
        return found

    async def _waiting(self, link: Link, name: str) -> tuple[int, float]:
        """How many messages wait in a channel's queue, and for how many seconds the first one has waited."""
        queue = self._connection.names.queue(name)
        info = await link.queue(queue)
        if info is None or not info.message_count:
            return 0, 0.0
        try:
            (first,) = await link.ask([m.BasicGet(queue)])
        except errors.NotFound:
            return 0, 0.0
        if not isinstance(first, Delivery):
            return 0, 0.0
        first.nack(requeue=True)  # to its place
        sent = sent_us_of(first.headers.get(ID_HEADER))
        return info.message_count, 0.0 if sent is None else max(time.time() - sent / 1e6, 0.0)

    def _count(self, channel: Any) -> dict[str, float]:
        counts = self._counts.of(channel)
        waiting, oldest = self._boxes.waiting(channel)
        expiry = self._connection.settings.expiry
        age = 0.0 if oldest is None else max(time.monotonic() - (oldest - expiry), 0.0)
        return {**counts, "messages_pending": waiting, "messages_max_age": age}

    # -- flush -------------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Delete all messages and end all memberships, of all processes of this prefix."""
        _, registered = await self._questions.ask("flush", None, ANSWER_SECONDS)
        for group, channel in sorted(registered.members):
            await self._groups.discard(group, channel)
        for name in sorted(registered.queues):
            await self._connection.over_links(lambda link, name=name: self._purge(link, name))  # type: ignore[misc]

    async def _purge(self, link: Link, name: str) -> None:
        try:
            await link.ask([m.QueuePurge(self._connection.names.queue(name))])
        except errors.NotFound:
            self._connection.undeclared(name)

    def _forget(self, asked: Any) -> bool:
        """Forget this process's part: whatever comes to a group from now on finds no member."""
        self._groups.forget()
        self._boxes.clear()
        self._shared_queues.drop()
        self._connection.thread.start(self._rest())
        return True

    async def _rest(self) -> None:
        for name in self._local_queues.processes:
            await _in_time(self._connection.over_links, lambda link, name=name: self._purge(link, name))
        await _in_time(self._history.forget)


async def _in_time(work: Callable[..., Any], *arguments: Any) -> None:
    try:
        await asyncio.shield(work(*arguments))
    except errors.HarebellError:
        pass  # nobody waits for it
