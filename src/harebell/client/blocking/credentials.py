"""A program's own functions for a dial, called in a thread: they may block, and the I/O thread must not."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

from harebell.client.blocking.thread import IoThread

__all__ = ["in_a_thread"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def in_a_thread(io: IoThread, function: Callable[[*Ts], T | Awaitable[T]]) -> Callable[[*Ts], Awaitable[T]]:
    """The same function, for the asyncio client: a call of it holds up no connection."""

    async def ask(*args: *Ts) -> T:
        given = await io.loop.run_in_executor(None, function, *args)
        return await given if inspect.isawaitable(given) else given

    return ask
