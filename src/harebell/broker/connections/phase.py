"""The phases of a client's connection, as the broker sees it."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["Phase"]


class Phase(Enum):
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()  # our connection.close is sent
    CLOSED = auto()
