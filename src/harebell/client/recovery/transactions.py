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
    cut       whether the transaction under way began on a wire channel that is gone
    """

    def __init__(self) -> None:
        self.selected = False
        self.cut = False

    async def tx_select(self, call_next: Callable[[TxArgs], Awaitable[None]], args: TxArgs) -> None:
        await call_next(args)
        self.selected = True

    async def tx_commit(self, call_next: Callable[[TxArgs], Awaitable[None]], args: TxArgs) -> None:
        if self.cut:
            await args.channel.requests.ask(m.TxRollback(), args.timeout)
            self.cut = False
            raise errors.TransactionLost(
                "the connection was lost since this transaction began: none of it took effect; do it again"
            )
        try:
            await call_next(args)
        except (asyncio.CancelledError, errors.DeadlineExceeded):
            self.cut = False  # it is known that nobody knows; the next one begins afresh
            raise
        except (errors.ConnectionLost, errors.ConnectionError) as error:
            if not self.cut:
                raise
            self.cut = False  # told; the next one begins afresh
            raise errors.TransactionLost(
                f"the connection was lost before the answer to tx.commit: it took effect whole, or not at all ({error})"
            ) from error

    async def tx_rollback(self, call_next: Callable[[TxArgs], Awaitable[None]], args: TxArgs) -> None:
        await call_next(args)
        self.cut = False

    def disconnect_event(self, call_next: Callable[[DisconnectEvent], None], event: DisconnectEvent) -> None:
        self.cut = self.selected
        call_next(event)

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        wire = await call_next(args)
        if self.selected:
            await wire.request(m.TxSelect())
        return wire
