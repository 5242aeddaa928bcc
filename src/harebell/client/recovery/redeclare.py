"""Declares a topology again on a new connection: in dependency order, pipelined, around what the broker refuses.

An error of the broker closes the channel that it came on. So this has a channel of its own: the request that failed is
reported, and another channel is opened for the rest. Nothing here knows about redialling: when the connection is lost,
its error is raised.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Final

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.slots import Reply
from harebell.client.events import Skipped
from harebell.client.recovery.recorded_topology import Bind, Entity, Key, Late, Topology, described
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import methods as m

__all__ = ["Redeclaration"]

PIPELINED: Final = 200  # requests under way at a time


class Redeclaration:
    """One topology declared again on one connection.

    skipped  what the broker refused
    late     queues that are worth another attempt soon
    """

    def __init__(self, core: AsyncCore, topology: Topology) -> None:
        self._core = core
        self._topology = topology
        self._channel: ChannelCore | None = None
        self.skipped: list[Skipped] = []
        self.late: Late = {}

    async def run(self, only: set[str] | None = None, keys: Collection[Key] | None = None) -> None:
        """Declare everything, or what is chosen as for `Topology.plan`. Raises why the connection ended."""
        exchanges, queues, binds = self._topology.plan(only, keys)
        if only is None and keys is None:
            self._topology.declared_again.clear()
        try:
            for exchange, result in zip(exchanges, await self._send(exchanges), strict=True):
                self._note(exchange, result)
            await self._declare_queues(queues)
            await self._bind([bind for bind in binds if not self._is_late(bind)])
        finally:
            self._close()

    async def inspect(self, queues: Sequence[str]) -> dict[str, m.QueueDeclareOk]:
        """Those of the queues that are there, with their counts. Raises why the connection ended."""
        asked = [m.QueueDeclare(queue, passive=True) for queue in queues]
        try:
            answers = zip(queues, await self._send(asked), strict=True)
            return {queue: answer for queue, answer in answers if isinstance(answer, m.QueueDeclareOk)}
        finally:
            self._close()

    def _close(self) -> None:
        if self._channel is not None and self._channel.reason is None:
            self._channel.close()

    def _note(self, entity: Entity, result: Reply | errors.HarebellError) -> None:
        if isinstance(result, errors.HarebellError):
            self.skipped.append(Skipped(described(entity), result))

    async def _declare_queues(self, queues: Sequence[m.QueueDeclare]) -> None:
        topology = self._topology
        by_name = [queue for queue in queues if queue.queue not in topology.server_named]
        nameless = [queue for queue in queues if queue.queue in topology.server_named]
        # A server-named queue that is not exclusive outlives its connection, with its messages: ask first.
        probes = [m.QueueDeclare(queue.queue, passive=True) for queue in nameless if not queue.exclusive]
        found = {
            probe.queue
            for probe, result in zip(probes, await self._send(probes), strict=True)
            if isinstance(result, m.QueueDeclareOk)
        }
        missing = [queue for queue in nameless if queue.queue not in found]
        wanted = [*by_name, *missing]
        requests: list[m.QueueDeclare] = [*by_name, *(_nameless(queue) for queue in missing)]
        for queue, result in zip(wanted, await self._send(requests), strict=True):
            if isinstance(result, m.QueueDeclareOk):
                topology.declared_again.add(queue.queue)
                if result.queue != queue.queue:
                    topology.renamed[queue.queue] = result.queue
            elif isinstance(result, errors.ResourceLocked) and queue.exclusive:
                self.late[queue.queue] = result
            else:
                self._note(queue, result)

    async def _bind(self, binds: Sequence[Bind]) -> None:
        refused: list[tuple[Bind, errors.HarebellError]] = []
        for bind, result in zip(binds, await self._send(binds), strict=True):
            if isinstance(result, errors.HarebellError):
                refused.append((bind, result))
        # Either the exchange is missing, or the queue was deleted after it was declared.
        suspects = sorted(
            {
                bind.queue
                for bind, error in refused
                if isinstance(bind, m.QueueBind)
                and isinstance(error, errors.NotFound)
                and self._topology.may_have_gone(bind.queue)
            }
        )
        probes = [m.QueueDeclare(queue, passive=True) for queue in suspects]
        for probe, result in zip(probes, await self._send(probes), strict=True):
            if isinstance(result, errors.NotFound):
                self.late[probe.queue] = result
        for bind, error in refused:
            if not self._is_late(bind):
                self._note(bind, error)

    def _is_late(self, bind: Bind) -> bool:
        return isinstance(bind, m.QueueBind) and bind.queue in self.late

    async def _send(self, requests: Sequence[m.Method]) -> list[Reply | errors.HarebellError]:
        """The reply to each request, or the error that it got."""
        results: list[Reply | errors.HarebellError] = []
        while len(results) < len(requests):
            channel = await self._opened()
            slots: list[FutureSlot] = []
            for request in requests[len(results) : len(results) + PIPELINED]:
                slot = FutureSlot(self._topology.translated(request), self._core.loop.create_future())
                channel.request(slot)
                slots.append(slot)
            for slot in slots:
                try:
                    results.append(await self._core.reply(slot, None))
                except errors.ChannelError as error:
                    if self._core.reason is not None:
                        raise
                    results.append(error)
                    break
                except errors.ConnectionError as error:
                    self._topology.give_up(requests[len(results)], error)
                    raise
        return results

    async def _opened(self) -> ChannelCore:
        if self._channel is None or self._channel.reason is not None:
            slot = FutureSlot(m.ChannelOpen(), self._core.loop.create_future())
            self._channel = self._core.new_channel(slot, ChannelCore)
            await self._core.reply(slot, None)
        return self._channel


def _nameless(queue: m.QueueDeclare) -> m.QueueDeclare:
    nameless = copy.copy(queue)
    nameless.queue = ""
    return nameless
