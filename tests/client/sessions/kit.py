"""What the tests of sessions share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harebell.client.recovery.policy import Backoff
from harebell.client.sessions import Session
from tests.client.outages import eventually

__all__ = ["FAST", "drained", "until"]

FAST = Backoff(0.001, 0.01)


async def drained(session: Session, queue: str) -> list[bytes]:
    """What is in the queue now; it is taken out."""
    found = []
    while (delivery := await session.get(queue)) is not None:
        found.append(delivery.body)
        delivery.accept()
    await session.sync()
    return found


async def until(holds: Callable[[], object]) -> None:
    """Wait until that holds."""

    async def turned() -> bool:
        await asyncio.sleep(0)
        return bool(holds())

    await eventually(turned)


async def subscribers(session: Session, queue: str, count: int) -> None:
    """Wait until the queue has so many subscribers."""

    async def has() -> bool:
        found = await session.queue_query(queue)
        return found is not None and found.consumer_count == count

    await eventually(has)
