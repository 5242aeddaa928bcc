"""The first wait for a message, which starts a consumer or a reader.

Rule: who gives that wait up, gives up the wait alone. What it began goes on starting, and the next wait has it: waits
that are each shorter than the round trips to the broker get their messages too.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["Startable", "abandon_starting", "start_by_waiting", "stop_starting"]


class Startable(Protocol):
    """A consumer or a reader. `first`: the start that a wait began, while it runs or until its error is told."""

    first: asyncio.Task[object] | None

    async def start(self) -> object: ...


async def start_by_waiting(consumer: Startable) -> None:
    """Start the consumer, or wait for the start that an earlier wait began. What made it fail is raised once.

    Returns too when `stop_starting` has ended the start: the caller looks whether there is something to wait for.
    """
    task = consumer.first
    if task is None:
        task = consumer.first = asyncio.get_running_loop().create_task(_started(consumer))
        task.add_done_callback(_seen)
    await asyncio.wait([task])
    if consumer.first is task:
        consumer.first = None
    elif task.cancelled():
        return
    task.result()


async def _started(consumer: Startable) -> None:
    """Start it, and give nothing: a consumer whose task's result is itself is freed by the cyclic collector alone."""
    await consumer.start()


async def stop_starting(consumer: Startable) -> None:
    """End a start that is under way, as if who began it had been cancelled."""
    task = consumer.first
    if task is not None:
        abandon_starting(consumer)
        await asyncio.wait([task])


def abandon_starting(consumer: Startable) -> None:
    """As `stop_starting`, without waiting for its end."""
    task, consumer.first = consumer.first, None
    if task is not None:
        task.cancel()


def _seen(task: asyncio.Task[object]) -> None:
    """The next wait tells the error; if there is none, nobody asks for it."""
    if not task.cancelled():
        task.exception()
