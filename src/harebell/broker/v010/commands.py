"""What the handler of a command gives: a result, nothing, or that the command completes later."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from harebell.protocol.v010 import Struct

__all__ = ["LATER", "Later", "Outcome"]


class Later(Enum):
    """The one value that says so."""

    LATER = "later"


LATER: Final = Later.LATER
Outcome: TypeAlias = "Struct | Later | None"
"""The struct of execution.result; None where there is none; LATER: the handler completes the command itself."""
