"""Adds channels to groups and removes them. In the I/O thread.

A group is a fanout exchange, bound by its name to the exchange of all groups: publishing to a missing group is no
error, and the group's exchange is deleted with its last member. All of it is durable: after a restart of the broker,
messages of the first process to connect reach processes that connect later. Bound to a group's exchange are
- for the process-local channels of this process: this process's queue, once, and the table of `members`;
- for a process-local channel of another process: a queue of length zero with the channel's full name, from which the
  broker dead-letters each message into that process's queue;
- for any other channel: an exchange of the channel's name, auto-deleted with its queue, so that a channel can leave all
  its groups at once, and the channel's queue behind it.
The last two have a marker queue, whose message expires when the membership was not added again within the group's
expiry (`dead_letters` handles it); a second group_add replaces the marker of the first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from harebell import errors
from harebell.channels.connection import LayerConnection
from harebell.channels.local_members import LocalMembers
from harebell.channels.local_queues import LocalQueueReader
from harebell.channels.names import is_local, local_part, non_local
from harebell.channels.publishing import CHANNEL_HEADER, CONTROL_HEADER, GROUP_HEADER
from harebell.client.messages import Message
from harebell.protocol.v091 import Table

__all__ = ["Groups"]

TRIES: Final = 50  # another process may delete an exchange with its last member between our two calls


class Groups:
    """The memberships of one layer."""

    def __init__(self, connection: LayerConnection, members: LocalMembers, local_queues: LocalQueueReader) -> None:
        self._connection = connection
        self._members = members
        self._local_queues = local_queues
        self._binding: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._unbinding: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.known: set[str] = set()  # groups that this layer has added other channels than its own to

    def is_own(self, channel: str) -> bool:
        """Whether the channel is a process-local one of this layer."""
        return non_local(channel).endswith(f".{self._connection.client_id}!")

    async def add(self, group: str, channel: str) -> None:
        await self._connection.ready()
        if self.is_own(channel):
            await self._add_own(group, channel)
        elif is_local(channel):
            await self._repeated(lambda: self._add_foreign(group, channel))
        else:
            await self._repeated(lambda: self._add_shared(group, channel))

    async def _add_own(self, group: str, channel: str) -> None:
        process, members = non_local(channel), self._members
        await self._local_queues.ensure(process)
        members.add(group, channel, time.monotonic() + self._connection.settings.group_expiry)
        # The channel may be removed again during the wait; then it needs no binding.
        while members.contains(group, channel) and not members.is_bound(group, process):
            task = self._binding.get((group, process))
            if task is None:
                task = self._connection.thread.loop.create_task(self._bind(group, process))
                self._binding[group, process] = task
                task.add_done_callback(lambda _: self._binding.pop((group, process), None))
            try:
                await asyncio.shield(task)
            except BaseException:
                members.discard(group, channel, process)
                raise

    async def _bind(self, group: str, process: str) -> None:
        names, declaring = self._connection.names, self._connection.declaring
        unbinding = self._unbinding.get((group, process))
        if unbinding is not None:  # after an outage the binding might be redeclared after this
            await asyncio.wait([unbinding])
        await self._repeated(
            lambda: _together(
                *self._group(group),
                declaring.queue_bind(names.queue(process), names.group(group)),
            )
        )
        self._members.bound(group, process)

    async def _add_foreign(self, group: str, channel: str) -> None:
        connection, names = self._connection, self._connection.names
        if not connection.is_declared(channel):
            await connection.declare(channel)
        await self._mark(group, channel)
        arguments = connection.settings.member_arguments(names, channel)
        await _together(
            *self._group(group),
            connection.declaring.queue_declare(names.member(channel), durable=True, arguments=arguments),
            connection.declaring.queue_bind(names.member(channel), names.group(group)),
        )

    async def _add_shared(self, group: str, channel: str) -> None:
        connection, names = self._connection, self._connection.names
        await connection.declare(channel)
        await self._mark(group, channel)
        await _together(
            *self._group(group),
            connection.declaring.exchange_declare(names.channel(channel), "fanout", durable=True, auto_delete=True),
            connection.declaring.queue_bind(names.queue(channel), names.channel(channel)),
            connection.declaring.exchange_bind(names.channel(channel), names.group(group)),
        )

    def _group(self, group: str) -> Iterable[Coroutine[Any, Any, object]]:
        """The calls that declare the group's exchange."""
        names, declaring = self._connection.names, self._connection.declaring
        self.known.add(group)
        yield declaring.exchange_declare(names.group(group), "fanout", durable=True, auto_delete=True)
        yield declaring.exchange_bind(names.group(group), names.groups, group)

    async def _mark(self, group: str, channel: str) -> None:
        connection = self._connection
        marker = connection.names.marker(group, channel)
        await connection.declaring.queue_declare(
            marker, durable=True, arguments=connection.settings.marker_arguments(connection.names)
        )
        await connection.publishing.publish(b"", "", marker)

    async def _repeated(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeat the work while a deletion makes it fail, that of another call of the same AMQP channel too."""
        for _ in range(TRIES - 1):
            try:
                await work()
                return
            except errors.NotFound:
                pass
        await work()

    async def discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group, whichever process added it. No error when it is not a member."""
        connection, names = self._connection, self._connection.names
        await connection.ready()
        declaring = connection.declaring
        if not is_local(channel):
            await self._repeated(lambda: declaring.exchange_unbind(names.channel(channel), names.group(group)))
            return
        process = non_local(channel)
        await self._repeated(lambda: declaring.queue_unbind(names.member(channel), names.group(group)))
        if self.is_own(channel):
            binding = self._binding.get((group, process))
            if binding is not None:  # else this would seem to unbind an existing binding
                await asyncio.wait([binding])
            if self._members.discard(group, channel, process):
                unbinding = connection.thread.loop.create_task(
                    self._repeated(lambda: declaring.queue_unbind(names.queue(process), names.group(group)))
                )
                self._unbinding[group, process] = unbinding
                unbinding.add_done_callback(lambda _: self._unbinding.pop((group, process), None))
                await asyncio.shield(unbinding)
        else:
            # The channel's process may have added it; the control message arrives before any later message.
            headers: Table = {CHANNEL_HEADER: local_part(channel), CONTROL_HEADER: "discard", GROUP_HEADER: group}
            await connection.publishing.publish(Message(b"", headers=headers), "", names.queue(channel))

    async def leave_all(self, channel: str) -> None:
        """Remove a channel whose message has expired from all its groups."""
        connection, names = self._connection, self._connection.names
        if not is_local(channel):
            await connection.declaring.exchange_delete(names.channel(channel))
        else:
            await connection.declaring.queue_delete(names.member(channel))

    async def forget(self) -> None:
        """End every group that this layer knows."""
        connection, names = self._connection, self._connection.names
        for group, process in self._members.clear():
            await connection.declaring.queue_unbind(names.queue(process), names.group(group))
        for group in list(self.known):
            await connection.declaring.exchange_delete(names.group(group))
        self.known.clear()


async def _together(*calls: Coroutine[Any, Any, object]) -> None:
    """Make the calls of one AMQP channel in this order, without waiting for each answer before the next.

    When one is refused, the broker ignores those after it, and all of them fail with its error.
    """
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
