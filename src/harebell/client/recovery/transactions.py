"""The feature "transactions": a transactional channel comes back as one, and says when a loss has cut a transaction.

Without it a channel that has come back is not transactional: `tx_commit` there is refused by the broker (406), and what
was published after the loss has taken effect at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from harebell import errors
from harebell.client.middleware.hooks import ChannelReconnectArgs, DisconnectEvent, TxArgs
from harebell.client.middleware.transports import WireChannel
from harebell.protocol.v091 import methods as m

__all__ = ["Transactions"]


class Transactions:
    """The transaction of one channel.

    selected  whether it is transactional
    cut       whether the transaction under way began on a wire channel that is gone, and `why` that is
    """

    def __init__(self) -> None:
        self.selected = False
        self.cut = False
        self.why: errors.HarebellError | None = None

    async def tx_select(self, call_next: Callable[[TxArgs], Awaitable[None]], args: TxArgs) -> None:
        await call_next(args)
        self.selected = True

    async def tx_commit(self, call_next: Callable[[TxArgs], Awaitable[None]], args: TxArgs) -> None:
        if self.cut:
            await args.channel.requests.ask(m.TxRollback(), args.timeout)
            self.cut = False
            raise errors.TransactionLost(
                f"the channel was lost since this transaction began: none of it took effect; do it again ({self.why})"
            )
        try:
            await call_next(args)
        except (asyncio.CancelledError, errors.TransactionLost, errors.ChannelError):
            self.cut = False  # what became of it is told; the next one begins afresh
            raise

    async def tx_rollback(self, call_next: Callable[[TxArgs], Awaitable[None]], args: TxArgs) -> None:
        await call_next(args)
        self.cut = False

    def disconnect_event(self, call_next: Callable[[DisconnectEvent], None], event: DisconnectEvent) -> None:
        if self.selected:
            self.cut, self.why = True, event.error
        call_next(event)

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        wire = await call_next(args)
        if self.selected:
            await wire.request(m.TxSelect())
        return wire
