"""A program's credentials, asked for in a thread: they may block, and the I/O thread must not."""

from __future__ import annotations

import inspect

from harebell.client.blocking.thread import IoThread
from harebell.client.transport.dialling import Credentials

__all__ = ["in_a_thread"]


def in_a_thread(io: IoThread, credentials: Credentials) -> Credentials:
    """The same credentials, for the asyncio client: a call of theirs holds up no connection."""

    async def ask() -> tuple[str, str]:
        given = await io.loop.run_in_executor(None, credentials)
        return await given if inspect.isawaitable(given) else given

    return ask
