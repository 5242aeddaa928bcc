"""Transactions of the blocking API of sessions, as `with` blocks: its own, and branches of distributed ones."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from harebell.client import sessions as asyncio_api
from harebell.client.blocking.thread import IoThread

__all__ = ["Branch", "Transaction"]


class _Block:
    """A `with` block around an `async with` block.

    A signal may come when the block is begun and before the `with` statement is responsible for it, or when that is no
    more: then nothing has the block any longer, and it is rolled back.
    """

    def __init__(self, io: IoThread, inner: asyncio_api.Transaction | asyncio_api.Branch) -> None:
        self._io = io
        self._inner = inner
        self._begun = False

    def __enter__(self) -> Self:
        self._begun = True
        self._io.run_or_undo(self._interrupted, self._enter)
        return self

    async def _enter(self) -> None:
        await self._inner.__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            kind = asyncio.CancelledError  # an interrupted program does not wait for the network
        self._io.run(self._inner.__aexit__, kind, error, traceback)
        self._begun = False

    def abandon(self) -> None:
        """Roll it back without waiting for it; nothing where it has ended."""
        with self._io.turn:
            self._io.loop.call_soon(self._inner.abandon)

    def _interrupted(self, entered: None) -> None:
        self._io.loop.call_soon(self._inner.abandon)

    def __del__(self) -> None:
        if self._begun and self._io.usable:
            self._io.loop.call_soon_threadsafe(self._inner.abandon)


class Transaction(_Block):
    """What is published and accepted in the block takes effect at its end, all of it or nothing.

    The commit survives a lost connection as any other command does. An error in the block rolls back: then what was
    accepted in it is not settled, and can be accepted again or released.
    """


class Branch(_Block):
    """What is published and accepted in the block belongs to the branch, until somebody commits it or rolls it back.

    An error in the block rolls the branch back: what was accepted in it returns to its queues.
    """

    def __init__(self, io: IoThread, inner: asyncio_api.Branch) -> None:
        super().__init__(io, inner)
        self.xid = inner.xid
