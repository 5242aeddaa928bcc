"""What the tests of sessions share."""

from __future__ import annotations

from harebell.client.recovery.policy import Backoff
from harebell.client.sessions import Session

__all__ = ["FAST", "drained"]

FAST = Backoff(0.001, 0.01)


async def drained(session: Session, queue: str) -> list[bytes]:
    """What is in the queue now; it is taken out."""
    found = []
    while (delivery := await session.get(queue)) is not None:
        found.append(delivery.body)
        delivery.accept()
    await session.sync()
    return found
