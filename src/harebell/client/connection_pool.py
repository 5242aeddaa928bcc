"""Connections to borrow, for programs whose tasks come and go.

    async with harebell.ConnectionPool(url, max_size=4) as pool:
        async with pool.acquire() as connection: ...

The rules are those of every pool: `patterns.pools`.
"""

from __future__ import annotations

from typing import Any

from harebell.client.connection import Connection, connect
from harebell.client.patterns.pools import Pool

__all__ = ["ConnectionPool", "unused"]


def unused(connection: Connection) -> bool:
    """Whether nothing of a borrower is left on it."""
    return not (connection.recovery.channels or connection.recovery.notifications.listeners.registered)


class ConnectionPool(Pool[Connection]):
    """Connections to one broker.

    url       as `harebell.connect` takes it
    max_size  how many connections at most
    idle      seconds after which an unused one is closed; None: never
    timeout   seconds that a borrower waits
    options   what else `harebell.connect` takes
    """

    def __init__(
        self,
        url: Any = "amqp://guest:guest@localhost/",
        max_size: int = 4,
        *,
        idle: float | None = 60,
        timeout: float = 30,
        **options: Any,
    ) -> None:
        async def make() -> Connection:
            return await connect(url, **options)

        super().__init__("connection", make, unused, max_size=max_size, idle=idle, timeout=timeout)
