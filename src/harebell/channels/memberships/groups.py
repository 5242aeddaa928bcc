"""Adds channels to groups and removes them. In the I/O thread.

A group is a fanout exchange, bound by its name to the exchange of all groups: publishing to a missing group is no
error, and the group's exchange is deleted with its last member. All of it is durable: after a restart of the broker,
messages of the first process to connect reach processes that connect later. Three kinds of channel:
- A process-local channel of a `ChannelLayer` has an owner, the process that made it; whether it is a member is in the
  owner's table alone (`members`). Bound to the group's exchange is the owner's queue, once. Another process that adds
  such a channel, or removes it, tells the owner (`controls`), and binds the owner's queue itself, so that no message is
  missed before the owner knows. The owner may have removed it, or added it again, before it hears that: what was said
  last counts, by the clocks of both.
- Any other process-local channel ("server!x", of ASGI 1): a queue of length zero with the channel's full name is bound,
  from which the broker dead-letters each message into that process's queue.
- Any other channel: an exchange of the channel's name, auto-deleted with its queue, so that a channel can leave all its
  groups at once, and the channel's queue behind it.
The last two have a marker queue, whose message expires when the membership was not added again within the group's
expiry, and a record of the last time that the channel was added anywhere; `dead_letters` uses both.

Nothing of this is declared again when a connection comes back, but for the bindings of the process's own queues: only
what is in the owner's table at that time is bound.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, cast

from harebell import errors
from harebell.channels.links.batch import Part, Publish
from harebell.channels.links.connection import LOST, LayerConnection
from harebell.channels.links.link import Link, bind, bind_exchange, declare_exchange, declare_queue
from harebell.channels.links.registry import GONE, LEFT, MEMBER
from harebell.channels.local_members import LocalMembers
from harebell.channels.messages.controls import Controls
from harebell.channels.messages.local_queues import LocalQueueReader
from harebell.channels.names import is_local, non_local, owner_of
from harebell.channels.settings import explained
from harebell.client.core.slots import Reply
from harebell.client.messages import Message
from harebell.protocol.v091 import methods as m

__all__ = ["Groups", "now_us"]

logger = logging.getLogger("harebell.channels")

TRIES: Final = 50  # another process may delete an exchange with its last member in the middle of our batch
WORDS: Final = 60.0  # seconds after which a word was heard, if its owner is connected
HANDOVER: Final = 2.0  # seconds for another process to bind our queue, before its binding is removed


class Groups:
    """The memberships of one layer."""

    def __init__(
        self, connection: LayerConnection, members: LocalMembers, local_queues: LocalQueueReader, controls: Controls
    ) -> None:
        self._connection = connection
        self._members = members
        self._local_queues = local_queues
        self._controls = controls
        self._settling: dict[tuple[str, str], asyncio.Future[None]] = {}
        # By group and process queue: the keys of the bindings that may be at the broker. Each has a key of its own:
        # what a lost connection sent last may be executed late, and must not end a binding that was made after it.
        self._at_broker: dict[tuple[str, str], set[str]] = {}
        self._keys = itertools.count(1)
        self._ended_at: OrderedDict[tuple[str, str], float] = OrderedDict()  # memberships of own channels
        local_queues.bindings = self._bindings
        local_queues.on_bound = self._bound
        local_queues.on_stray = self._stray
        controls.on["join"] = self._joined
        controls.on["leave"] = self._left

    def is_own(self, channel: str) -> bool:
        """Whether the channel is a process-local one of this layer."""
        return owner_of(channel) == self._connection.client_id

    # -- adding ------------------------------------------------------------------------------------------------------

    async def add(self, group: str, channel: str) -> None:
        if self.is_own(channel):
            await self._add_own(group, channel)
        elif owner_of(channel) is not None:
            await self._repeated(lambda link: self._foreign(link, group, channel))
            self._connection.declared(channel)
        else:
            await self._add_kept(group, channel)

    async def _add_own(self, group: str, channel: str) -> None:
        process, members = non_local(channel), self._members
        if not self._local_queues.reads(process):
            await self._local_queues.ensure(process)
        members.add(group, channel, time.monotonic() + self._connection.settings.group_expiry)
        # The channel may be removed again during the wait; then it needs no binding.
        key = group, process
        while members.contains(group, channel) and not members.is_bound(group, process):
            try:
                if key in self._settling:
                    await asyncio.shield(self._settling[key])
                else:  # nobody else waits for it: without a task of its own
                    await self._settle_here(group, process)
            except BaseException:
                if members.discard(group, channel, process):
                    self._settle_later(group, process)
                raise

    # A process's queue is to be bound to the groups with members of that process. One task for each group and queue
    # makes it so: a request that binds and one that unbinds are never under way together.

    def _settle(self, group: str, process: str) -> asyncio.Future[None]:
        key = group, process
        task = self._settling.get(key)
        if task is None:
            task = self._settling[key] = self._connection.thread.share(self._settled(group, process))
        return task

    async def _settled(self, group: str, process: str) -> None:
        try:
            await self._make_so(group, process)
        finally:
            del self._settling[group, process]

    async def _settle_here(self, group: str, process: str) -> None:
        """The same in the caller's task; others wait for a future."""
        key = group, process
        settled = self._settling[key] = self._connection.thread.loop.create_future()
        try:
            await self._make_so(group, process)
        finally:
            del self._settling[key]
            settled.set_result(None)  # the others look again, and one of them goes on with it

    async def _make_so(self, group: str, process: str) -> None:
        members, key = self._members, (group, process)
        while True:
            if members.has(group, process):
                if members.is_bound(group, process):
                    return
                await self._repeated(lambda link: self._bindings(process, [group]))
                members.bound(group, process)
            elif key in self._at_broker:
                await self._unbind(group, process)
            else:
                return

    async def _unbind(self, group: str, process: str) -> None:
        names, keys = self._connection.names, frozenset(self._at_broker[group, process])
        await self._repeated(lambda link: [m.QueueUnbind(names.queue(process), names.group(group), k) for k in keys])
        self._at_broker[group, process] -= keys
        if not self._at_broker[group, process]:
            del self._at_broker[group, process]

    def _is_settled(self, group: str, process: str) -> bool:
        if self._members.has(group, process):
            return self._members.is_bound(group, process)
        return (group, process) not in self._at_broker

    def _settle_later(self, group: str, process: str) -> asyncio.Task[None]:
        """Have it made so as soon as there is a connection."""
        return self._connection.thread.start(self._settle_at_last(group, process))

    async def _settle_at_last(self, group: str, process: str) -> None:
        while not self._connection.closed:
            try:
                await asyncio.shield(self._settle(group, process))
                if self._is_settled(group, process):  # else another task has failed at it
                    return
            except LOST:
                await asyncio.sleep(1)
            except (errors.HarebellError, ImportError) as error:
                logger.warning("group %s: %s", group, error)
                return

    def expire(self, now: float) -> None:
        """End the memberships of own channels that were not added again in time."""
        for group, process in self._members.expired(now):
            self._settle_later(group, process)

    def _stray(self, group: str, process: str) -> None:
        """The queue gets messages of a group without members."""
        self._at_broker.setdefault((group, process), set()).add("")
        self._settle_later(group, process)

    def _bound(self, process: str, groups: Sequence[str]) -> None:
        """The queue, which is new, was bound to these groups."""
        for group in groups:
            self._members.bound(group, process)
            if not self._members.has(group, process):  # left meanwhile
                self._settle_later(group, process)

    def _bindings(self, process: str, groups: Sequence[str]) -> list[Part]:
        """The requests that bind a process's queue to groups."""
        names, parts = self._connection.names, list[Part]()
        for group in groups:
            key = str(next(self._keys))
            self._at_broker.setdefault((group, process), set()).add(key)
            parts += self._group(group)
            parts.append(bind(names.queue(process), names.group(group), key))
        return parts

    def _group(self, group: str) -> list[Part]:
        """The requests that declare the group's exchange."""
        names = self._connection.names
        return [
            declare_exchange(names.group(group), "fanout", auto_delete=True),
            bind_exchange(names.group(group), names.groups, group),
        ]

    def _foreign(self, link: Link, group: str, channel: str) -> list[Part]:
        """The requests that add a channel of another layer: its owner is told, and has the messages from now on."""
        connection, names = self._connection, self._connection.names
        told, number = self._controls.tell_owner("join", group, channel)
        return [
            *told,
            *connection.queue_declaration(link, channel),
            *self._group(group),
            bind(names.queue(channel), names.group(group), number),
        ]

    async def _add_kept(self, group: str, channel: str) -> None:
        """Add a channel whose membership the broker keeps."""
        names = self._connection.names
        for _ in range(TRIES):
            answers = await self._repeated(lambda link: self._kept(link, group, channel))
            self._connection.declared(channel)
            if cast(m.QueueDeclareOk, answers[-1]).message_count:
                return  # else another process has removed the channel meanwhile, and the marker with it
        raise errors.DeadlineExceeded(f"the marker {names.marker(group, channel)!r} vanishes as fast as it is made")

    def _kept(self, link: Link, group: str, channel: str) -> list[Part]:
        connection, names, settings = self._connection, self._connection.names, self._connection.settings
        record = Message(json.dumps([group, now_us()]).encode(), delivery_mode=2)
        marker = declare_queue(names.marker(group, channel), settings.marker_arguments(names))
        parts: list[Part] = [
            *connection.queue_declaration(link, channel),
            *connection.registry.note(MEMBER, group, channel),
            declare_queue(names.joined(channel), settings.joined_arguments()),
            Publish(record, "", names.joined(channel)),
            marker,
            Publish(Message(b"", delivery_mode=2), "", names.marker(group, channel)),
            *self._group(group),
        ]
        if is_local(channel):
            parts += [
                declare_queue(names.member(channel), settings.member_arguments(names, channel)),
                bind(names.member(channel), names.group(group)),
            ]
        else:
            parts += [
                declare_exchange(names.channel(channel), "fanout", auto_delete=True),
                bind(names.queue(channel), names.channel(channel)),
                bind_exchange(names.channel(channel), names.group(group)),
            ]
        return [*parts, marker]

    async def _repeated(self, parts: Callable[[Link], list[Part]]) -> list[Reply | bool]:
        """The answers to a batch, repeated while another process's deletion makes it fail."""

        async def ask(link: Link) -> list[Reply | bool]:
            for _ in range(TRIES - 1):
                try:
                    return await link.ask(parts(link))
                except errors.NotFound:
                    pass
            return await link.ask(parts(link))

        try:
            return await self._connection.over_links(ask)
        except errors.PreconditionFailed as error:
            raise explained(error) from error

    # -- removing ----------------------------------------------------------------------------------------------------

    async def discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group, whichever process added it. No error when it is not a member."""
        names = self._connection.names
        if self.is_own(channel):
            # It is no member from now on, connected or not; its queue's binding is removed when that is possible.
            process = non_local(channel)
            self._note_end(group, channel, time.monotonic())
            if self._members.discard(group, channel, process):
                settling = self._settle_later(group, process)
                if self._connection.link is not None:
                    await asyncio.wait([settling])
        elif owner_of(channel) is not None:
            told, _ = self._controls.tell_owner("leave", group, channel)
            await self._repeated(lambda link: told)
        else:
            await self._repeated(lambda link: self._ended(group, channel, names.marker(group, channel)))

    def _ended(self, group: str, channel: str, marker: str) -> list[Part]:
        """The requests that end a membership that the broker keeps: the marker goes first, see `_add_kept`."""
        names = self._connection.names
        unbind: m.Method = (
            m.QueueUnbind(names.member(channel), names.group(group))
            if is_local(channel)
            else m.ExchangeUnbind(names.channel(channel), names.group(group))
        )
        return [m.QueueDelete(marker), unbind, *self._connection.registry.note(LEFT, group, channel)]

    # -- what other layers tell --------------------------------------------------------------------------------------

    def _joined(self, group: str, channel: str, number: str, age: float) -> None:
        """Another layer has added a channel of this process, and binds its queue itself."""
        if not self.is_own(channel):
            return
        said = time.monotonic() - age
        if said > self._ended_at.get((group, channel), said - 1):
            expires = said + self._connection.settings.group_expiry
            self._members.add(group, channel, max(expires, self._members.expires(group, channel)))
        self._connection.thread.start(self._take_over(group, non_local(channel), number))

    async def _take_over(self, group: str, process: str, number: str) -> None:
        """Bind the queue as for a channel that this process has added, and remove the other binding then."""
        names = self._connection.names
        await self._settle_at_last(group, process)
        await asyncio.sleep(HANDOVER)
        try:
            await self._repeated(lambda link: [m.QueueUnbind(names.queue(process), names.group(group), number)])
        except (errors.HarebellError, ImportError):
            pass  # it ends with the queue

    def _left(self, group: str, channel: str, number: str, age: float) -> None:
        """Another layer has removed a channel of this process."""
        said = time.monotonic() - age
        added = self._members.expires(group, channel) - self._connection.settings.group_expiry
        if not self.is_own(channel) or said < added:
            return
        self._note_end(group, channel, said)
        if self._members.discard(group, channel, non_local(channel)):
            self._settle_later(group, non_local(channel))

    def _note_end(self, group: str, channel: str, at: float) -> None:
        """Remember an end for as long as a word that was said before it may still come."""
        ended, key = self._ended_at, (group, channel)
        ended[key] = max(at, ended.pop(key, at))
        if self._controls.is_current:
            while next(iter(ended.values())) < at - WORDS:
                ended.popitem(last=False)

    # -- all at once -------------------------------------------------------------------------------------------------

    async def end(self, group: str, channel: str) -> bool:
        """End a membership whose marker has expired; False when the channel was added again meanwhile."""
        connection, names = self._connection, self._connection.names
        marker = names.marker(group, channel)

        async def ask(link: Link) -> bool:
            if await self._is_marked(link, marker):
                return False
            await link.ask(self._ended(group, channel, marker))
            if await self._is_marked(link, marker):
                await self._add_kept(group, channel)
                return False
            return True

        return await connection.over_links(ask)

    async def _is_marked(self, link: Link, marker: str) -> bool:
        info = await link.queue(marker)
        return info is not None and info.message_count > 0

    async def leave_all(self, channel: str, sent_us: int) -> None:
        """Remove a channel from all its groups: a message that was sent to it at that time has expired unread.

        Not when the channel was added to a group after that: a dead letter may be old.
        """
        connection, names = self._connection, self._connection.names

        async def ask(link: Link) -> None:
            before = await self._last_joined(link, channel)
            if before is not None and before[1] >= sent_us:
                return
            local = is_local(channel)
            part = m.QueueDelete(names.member(channel)) if local else m.ExchangeDelete(names.channel(channel))
            await link.ask([part, *connection.registry.note(GONE, channel)])
            after = await self._last_joined(link, channel)
            if after is not None and after != before:  # it was added at this moment
                await self._add_kept(after[0], channel)

        await connection.over_links(ask)

    async def _last_joined(self, link: Link, channel: str) -> tuple[str, int] | None:
        """The group that the channel was added to last, and when; None when there is no record."""
        name = self._connection.names.joined(channel)
        for _ in range(TRIES):
            record = await link.peek(name)
            if record is not None:
                group, at = json.loads(record)
                return str(group), int(at)
            if await link.queue(name) is None:
                return None
            await asyncio.sleep(0.01)  # another layer looks at it at this moment
        return None

    def forget(self) -> None:
        """End the memberships of all own channels."""
        for group, process in self._members.clear():
            self._settle_later(group, process)


def now_us() -> int:
    return time.time_ns() // 1000
