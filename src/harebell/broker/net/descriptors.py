"""File descriptors: the process's limit, and the number reserved for the store when connections use up the rest."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["last_for_connections", "raise_limit"]

KEPT: Final = 1024  # for segments and the catalog; a quarter of the limit where that is less


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
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return soft - 1 - min(KEPT, soft // 4)
