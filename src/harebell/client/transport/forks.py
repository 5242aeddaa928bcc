"""Connections in a forked child: they are the parent's, and nothing of the child's goes out on them.

A socket that two processes write to carries frames of both, mixed. So in the child everything that was inherited is
marked: its calls raise, and its transport takes nothing. Nothing is closed there, not even a descriptor: asyncio's
selector may be shared with the parent, and no callback of the program runs. Calls pay nothing for this: they find what
they find on a connection that has ended.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from harebell import errors

__all__ = ["watch"]


class Inherited(Protocol):
    """What a child must not use."""

    def forked(self, error: errors.LocalProtocolError) -> None:
        """This process is a child of the one that made it: let its calls raise this."""


_watched: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()


def watch(inherited: Inherited) -> None:
    """Have it told in a child."""
    _watched.add(inherited)


def _in_the_child() -> None:
    inherited = list(_watched)
    _watched.clear()
    for each in inherited:
        each.forked(
            errors.LocalProtocolError(
                "this connection was made before a fork, in the parent process, whose socket it is: connect again in "
                "this process"
            )
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
