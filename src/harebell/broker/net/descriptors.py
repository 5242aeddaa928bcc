"""File descriptors: the process's limit, and the part of it that connections leave to the store.

A connection whose descriptor is above `last_for_connections` is closed at once. So that few are accepted before the
first of them is looked at, the loop accepts ACCEPTS at a time, while the kernel queues BACKLOG.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Final

from harebell.broker.store.open_files import kept_for_store

__all__ = ["ACCEPTS", "BACKLOG", "deepen_backlog", "last_for_connections", "raise_limit"]

ACCEPTS: Final = 8  # the backlog that asyncio gets: it is also the number of accepts in one turn of its loop
BACKLOG: Final = 1024


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS has an unnamed limit below the hard one
            return soft
    return hard


def last_for_connections() -> int:
    """The highest descriptor that a connection may have.

    The kernel gives out the lowest free number, so a socket above it shows that nearly all are in use.
    """
    kept = kept_for_store()
    if kept is None:
        return 1 << 30
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1 - kept


def deepen_backlog(server: asyncio.Server) -> None:
    """Let the kernel queue BACKLOG connections for each of the server's sockets."""
    for listening in server.sockets:
        with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
            same.listen(BACKLOG)
