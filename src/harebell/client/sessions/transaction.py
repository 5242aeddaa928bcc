"""A transaction of a session: `async with session.transaction():`."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from harebell import errors
from harebell.client.sessions.calls import Call, Sent
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.messages import BaseDelivery
from harebell.protocol.v010 import commands as c

__all__ = ["Transaction"]

logger = logging.getLogger("harebell.client")


class Transaction:
    """What is published and accepted in the block takes effect at its end, all of it or nothing.

    The commit survives a lost connection as any other command does. An error in the block rolls back: then what was
    accepted in it is not settled, and can be accepted again or released.
    """

    def __init__(self, core: SessionCore, timeout: float | None) -> None:
        self._core = core
        self._loop = core.loop
        self._timeout = timeout
        self._accepted: list[BaseDelivery] = []
        self._open = self._abandoned = False

    async def __aenter__(self) -> Self:
        core = self._core
        if core.transaction is not None:
            raise errors.LocalProtocolError(f"session '{core.name}' has a transaction under way: one at a time")
        if core.dtx_selected:
            raise errors.LocalProtocolError(f"session '{core.name}' has worked in a branch: use another one")
        core.transaction = self._accepted
        try:
            if not core.selected:
                call = Call(self._loop)
                try:
                    await core.call("tx.select", Sent(c.TxSelect(sync=True)), timeout=self._timeout, call=call)
                finally:
                    core.selected = call.number is not None and core.transaction is self._accepted
        except BaseException:
            self._end()
            raise
        self._open = True
        if self._abandoned:
            self.abandon()
        return self

    def abandon(self) -> None:
        """Roll it back without waiting for it; nothing where it has ended."""
        self._abandoned = True
        if self._open and self._core.transaction is self._accepted:
            self._roll_back()
            self._end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        core = self._core
        if core.transaction is not self._accepted:  # its session has ended, or the state is lost, or it was abandoned
            if kind is None and not self._abandoned:
                core.check()
                raise errors.SessionStateLost(f"the transaction ended with the state of session '{core.name}'")
            return
        try:
            if kind is not None and issubclass(kind, asyncio.CancelledError):
                self.abandon()  # a cancelled task does not wait for the network
                return
            self._open = False
            if kind is None:
                await self._commit()
            else:
                await self._rolled_back()
        finally:
            self._end()

    async def _commit(self) -> None:
        call = Call(self._loop)
        try:
            await self._core.call("tx.commit", Sent(c.TxCommit(sync=True)), timeout=self._timeout, call=call)
        except BaseException as error:
            if call.number is None and self._core.transaction is self._accepted:
                self._roll_back()
                error.add_note("the transaction was rolled back")
            elif isinstance(error, errors.DeadlineExceeded):
                error.add_note("the commit is under way, and will be executed")
            raise

    async def _rolled_back(self) -> None:
        """Roll back and wait for it. The block's own error is raised, whatever happens here."""
        core, call = self._core, self._roll_back()
        try:
            await core.answered(call, core.deadline(self._timeout), "tx.rollback")
        except errors.HarebellError as error:
            logger.warning("session '%s': %s", core.name, error)

    def _roll_back(self) -> Call:
        """Have it rolled back, before anything else is issued."""
        call = Call(self._loop)
        self._core.defer(c.TxRollback(sync=True), call)
        self._core.deliveries.acquired_again(self._accepted)
        return call

    def _end(self) -> None:
        if self._core.transaction is self._accepted:
            self._core.transaction = None
