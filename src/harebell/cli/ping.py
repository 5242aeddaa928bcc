"""`harebell ping`: whether a broker answers, for probes."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import Parameter

from harebell.cli.terminal.output import say
from harebell.cli.validators import Seconds
from harebell.client.blocking import connect

__all__ = ["ping"]


def ping(
    url: Annotated[
        str, Parameter(env_var="HAREBELL_URL", help="The broker; the variable keeps a password off the command line.")
    ] = "amqp://guest:guest@127.0.0.1:5672/",
    *,
    timeout: Annotated[float, Parameter(help="Seconds for all steps together.", validator=Seconds())] = 5.0,
) -> int:
    """Connect, open a channel, close. Status 0 when the broker answered each step; else 1, with the reason."""
    started = time.monotonic()
    with connect(url, timeout=timeout, recovery=None) as connection:
        connection.channel().close()
        say(f"{connection.parameters.peer} answered in {(time.monotonic() - started) * 1000:.0f} ms")
    return 0
