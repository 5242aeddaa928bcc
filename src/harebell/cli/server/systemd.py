"""Notifies systemd of the state of a service: sd_notify(3) in a few lines. Without systemd it does nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["beat", "notify", "reloading"]


def notify(*states: str) -> None:
    """Send READY=1, STOPPING=1 and the like to $NOTIFY_SOCKET, if there is one; a failure is ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.connect("\0" + address[1:] if address.startswith("@") else address)
        manager.sendall("\n".join(states).encode())


def reloading() -> None:
    """Notify that a reload begins; READY=1 ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


async def beat(alive: Callable[[], bool]) -> None:
    """Notify the watchdog that the event loop runs, twice in the time that it allows, as long as `alive()`."""
    limit = os.environ.get("WATCHDOG_USEC", "")
    if not limit.isdecimal() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while alive():
        notify("WATCHDOG=1")
        await asyncio.sleep(int(limit) / 2_000_000)
