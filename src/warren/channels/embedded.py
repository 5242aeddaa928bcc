"""The broker behind "embedded://": one in this process, on a port of its own, as long as the process lives.

The only place of the layer that needs the broker, and it is imported when the URL asks for it.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["url"]

_broker: Any = None


async def url() -> str:
    """Where it listens; the first call starts it, in the loop of the I/O thread."""
    global _broker
    if _broker is None:
        broker = importlib.import_module("warren.broker").Broker()
        await broker.__aenter__()
        _broker = broker
    address: str = _broker.url
    return address
