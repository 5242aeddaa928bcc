"""The broker behind "embedded://": runs in this process, on a port of its own, until the process ends.

Only this module of the layer needs the broker; it is imported when the URL is "embedded://".
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

__all__ = ["url"]

_starting: asyncio.Task[Any] | None = None


async def url() -> str:
    """The URL of the embedded broker; the first call starts it, in the loop of the I/O thread."""
    global _starting
    if _starting is None or (_starting.done() and _starting.exception() is not None):
        _starting = asyncio.ensure_future(_start())
    address: str = (await asyncio.shield(_starting)).url
    return address


async def _start() -> Any:
    broker = importlib.import_module("harebell.broker").Broker()
    await broker.__aenter__()
    return broker
