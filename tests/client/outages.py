"""What the tests of recovery share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.recovery.policy import Backoff, Recovery

FAST = Recovery(backoff=Backoff(0.001, 0.05))


class Behind(Backoff):
    """Delays that leave a broker the time to notice that the old connection is gone."""

    def delay(self, attempt: int) -> float:
        return 0.05 + super().delay(attempt)


# RabbitMQ deletes a dead connection's exclusive queues by their names, also when they were just declared anew.
NOTICED = Recovery(backoff=Behind(0.001, 0.05))
E = TypeVar("E", bound=e.Event)


async def next_of(events: e.Events, kind: type[E]) -> E:
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the events ended without {kind.__name__}")


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():
            pass


async def ready(channel: Channel, queue: str, count: int) -> None:
    """Wait until the queue has that many ready messages; RabbitMQ requeues some time after the channel is gone."""
    async with asyncio.timeout(60):
        while (await channel.queue_inspect(queue)).message_count != count:
            pass


async def bodies(channel: Channel, queue: str) -> list[bytes]:
    """What is in the queue now; it is taken out."""
    found = []
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        found.append(delivery.body)
    return found
