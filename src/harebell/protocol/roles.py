"""The two peers of a connection, in either dialect."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["Role"]


class Role(Enum):
    CLIENT = auto()
    SERVER = auto()

    __hash__ = object.__hash__  # Enum's own is a Python function; the engines look into their tables for every frame

    @property
    def peer(self) -> Role:
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT
