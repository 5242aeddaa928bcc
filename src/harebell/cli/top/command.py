"""The command `harebell top`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.validators import Seconds
from harebell.errors import InvalidArgument

__all__ = ["top"]


def top(
    *,
    every: Annotated[
        float, Parameter(help="Seconds between two readings; at least 0.2.", validator=Seconds(0.2))
    ] = 2.0,
    target: HttpTarget | None = None,
) -> int:
    """Show a broker's queues and connections live; q or Ctrl-C ends it, and the last line names the other keys."""
    if not at_terminal():
        raise InvalidArgument("there is no terminal: `harebell queues list --watch 2` prints lists anywhere")
    from harebell.cli.top.app import Top
    from harebell.cli.top.feed import Feed

    with connect_to(target) as api:
        api.product()  # a wrong address or password ends the command here, with its own status
        with Feed(api) as feed:
            if Top(feed, every=every).run():
                raise KeyboardInterrupt
    return 0


def at_terminal() -> bool:
    """Whether there is a terminal to draw on, and to read keys from."""
    return sys.stdin.isatty() and sys.stdout.isatty()
