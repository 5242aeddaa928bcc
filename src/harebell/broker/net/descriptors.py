"""File descriptors: as many as the system allows, and some kept for the store when connections take the others."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["last_for_connections", "raise_limit"]

KEPT: Final = 1024  # for segments and the catalog; a quarter where there are few


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS has a limit below the hard one, and does not name it
            return soft
    return hard


def last_for_connections() -> int:
    """The number of the last descriptor that a connection may have.

    The kernel gives out the lowest free number, so a socket above it says that nearly all are taken.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return soft - 1 - min(KEPT, soft // 4)
