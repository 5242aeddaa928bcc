"""The first wait for a message, which starts the subscription.

Rule: who gives that wait up, gives up the wait alone. The subscription goes on starting, and the next wait has it:
waits that are each shorter than the round trip to the broker get their messages too.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["Startable", "start_by_waiting", "stop_starting"]


class Startable(Protocol):
    """A consumer. `first`: the start that a wait began, while it runs or until its error is told."""

    first: asyncio.Task[None] | None

    async def start(self) -> None: ...


async def start_by_waiting(consumer: Startable) -> None:
    """Start the consumer, or wait for the start that an earlier wait began. What made it fail is raised once."""
    task = consumer.first
    if task is None:
        task = consumer.first = asyncio.get_running_loop().create_task(consumer.start())
        task.add_done_callback(_seen)
    await asyncio.wait([task])
    if consumer.first is task:
        consumer.first = None
    task.result()


async def stop_starting(consumer: Startable) -> None:
    """End a start that is under way, as if who began it had been cancelled."""
    task, consumer.first = consumer.first, None
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])


def _seen(task: asyncio.Task[None]) -> None:
    """The next wait tells the error; if there is none, nobody asks for it."""
    if not task.cancelled():
        task.exception()
