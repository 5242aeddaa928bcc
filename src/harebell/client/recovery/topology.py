"""The feature "topology": what was declared on a connection is declared again when it comes back.

What is recorded, and in which order it is declared again: `recorded_topology`. How that is sent: `redeclare`.

When a channel alone is lost (an error of the broker), what this channel has declared is declared again, and
auto-delete queues that it consumed from: these were deleted with their last consumer.

Without it nothing is declared again: durable entities are there if the broker has kept them, a consumer whose queue is
gone ends with the broker's error, and a server-named queue is lost with its name. Taken out of one channel, in
`connection.channel(middleware=...)`: what this channel declares is not declared again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from harebell.client import events as e
from harebell.client.messages import QueueInfo
from harebell.client.middleware.hooks import (
    ChannelReconnectArgs,
    ConnectionReconnectArgs,
    ExchangeBindArgs,
    ExchangeDeclareArgs,
    ExchangeDeleteArgs,
    ExchangeUnbindArgs,
    HookedChannel,
    QueueBindArgs,
    QueueDeclareArgs,
    QueueDeleteArgs,
    QueueUnbindArgs,
)
from harebell.client.middleware.transports import WireChannel, WireConnection
from harebell.client.recovery.recorded_topology import Topology
from harebell.client.recovery.redeclare import Redeclaration
from harebell.protocol.v091 import methods as m

__all__ = ["TopologyReplay"]


class TopologyReplay:
    """The topology of one connection: `table`."""

    def __init__(self) -> None:
        self.table = Topology()

    def _record(self, channel: HookedChannel, request: m.Method, reply: m.Method | None = None) -> None:
        self.table.record(request, reply, channel)

    # -- what the program did ----------------------------------------------------------------------------------------

    async def exchange_declare(
        self, call_next: Callable[[ExchangeDeclareArgs], Awaitable[None]], args: ExchangeDeclareArgs
    ) -> None:
        await call_next(args)
        self._record(
            args.channel,
            m.ExchangeDeclare(
                args.name, args.type, False, args.durable, args.auto_delete, args.internal, arguments=args.arguments
            ),
        )

    async def exchange_delete(
        self, call_next: Callable[[ExchangeDeleteArgs], Awaitable[None]], args: ExchangeDeleteArgs
    ) -> None:
        await call_next(args)
        self._record(args.channel, m.ExchangeDelete(args.name))

    async def exchange_bind(
        self, call_next: Callable[[ExchangeBindArgs], Awaitable[None]], args: ExchangeBindArgs
    ) -> None:
        await call_next(args)
        self._record(
            args.channel, m.ExchangeBind(args.destination, args.source, args.binding_key, arguments=args.arguments)
        )

    async def exchange_unbind(
        self, call_next: Callable[[ExchangeUnbindArgs], Awaitable[None]], args: ExchangeUnbindArgs
    ) -> None:
        await call_next(args)
        self._record(
            args.channel, m.ExchangeUnbind(args.destination, args.source, args.binding_key, arguments=args.arguments)
        )

    async def queue_declare(
        self, call_next: Callable[[QueueDeclareArgs], Awaitable[QueueInfo]], args: QueueDeclareArgs
    ) -> QueueInfo:
        info = await call_next(args)
        self._record(
            args.channel,
            m.QueueDeclare(args.name, False, args.durable, args.exclusive, args.auto_delete, arguments=args.arguments),
            m.QueueDeclareOk(info.name, info.message_count, info.consumer_count),
        )
        return info

    async def queue_delete(self, call_next: Callable[[QueueDeleteArgs], Awaitable[int]], args: QueueDeleteArgs) -> int:
        count = await call_next(args)
        self._record(args.channel, m.QueueDelete(args.name))
        return count

    async def queue_bind(self, call_next: Callable[[QueueBindArgs], Awaitable[None]], args: QueueBindArgs) -> None:
        await call_next(args)
        self._record(args.channel, m.QueueBind(args.queue, args.exchange, args.binding_key, arguments=args.arguments))

    async def queue_unbind(
        self, call_next: Callable[[QueueUnbindArgs], Awaitable[None]], args: QueueUnbindArgs
    ) -> None:
        await call_next(args)
        self._record(args.channel, m.QueueUnbind(args.queue, args.exchange, args.binding_key, args.arguments))

    # -- declaring it again --------------------------------------------------------------------------------------------

    async def connection_reconnect(
        self, call_next: Callable[[ConnectionReconnectArgs], Awaitable[WireConnection]], args: ConnectionReconnectArgs
    ) -> WireConnection:
        wire = await call_next(args)
        redeclaration = Redeclaration(wire.core, self.table)
        await redeclaration.run()
        wire.skipped += redeclaration.skipped
        wire.late |= redeclaration.late
        return wire

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        wire, channel = await call_next(args), args.channel
        if not args.alone or args.attempt > 1:
            return wire
        keys = self.table.keys_of(channel) | self.table.with_auto_delete(channel.consuming)
        if keys:
            redeclaration = Redeclaration(wire.connection, self.table)
            await redeclaration.run(keys=keys)
            wire.skipped += redeclaration.skipped
            for other in wire.connection.channels.values():
                other.frames.forget()
        return wire

    def event(self, call_next: Callable[[e.Event], None], event: e.Event) -> None:
        if isinstance(event, e.Recovered):
            skipped = [e.Skipped(entity, error) for entity, error in self.table.given_up]
            self.table.given_up.clear()
            event = replace(event, skipped=[*event.skipped, *skipped], renamed=dict(self.table.renamed))
        call_next(event)
