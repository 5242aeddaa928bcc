"""The broker behind "embedded://": one in this process, on a port of its own, as long as the process lives.

The only place of the layer that needs the broker, and it is imported when the URL asks for it.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

__all__ = ["url"]

_starting: asyncio.Task[Any] | None = None


async def url() -> str:
    """The broker's URL; the first call starts the broker, in the loop of the I/O thread."""
    global _starting
    if _starting is None or (_starting.done() and _starting.exception() is not None):
        _starting = asyncio.ensure_future(_start())
    address: str = (await asyncio.shield(_starting)).url
    return address


async def _start() -> Any:
    broker = importlib.import_module("harebell.broker").Broker()
    await broker.__aenter__()
    return broker
