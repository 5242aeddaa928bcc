"""Drives a coroutine from one suspension to the next, so that a test can interfere at each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Literal, TypeVar

T = TypeVar("T")
Moment = Literal["waiting", "answered"]


class Stepped:
    """Awaits `work`, and calls `interfere` at its suspension number `at`, counting from 1.

    moment     "waiting": as it begins to wait; "answered": when what it waits for has come and it has not run yet
    suspended  how often it has waited
    """

    def __init__(self, work: Coroutine[object, object, T], at: int, moment: Moment, interfere: Callable[[], object]):
        self._work = work
        self._at = at
        self._moment = moment
        self._interfere = interfere
        self.suspended = 0

    def __await__(self) -> Generator[object, None, T]:
        work = self._work
        error: BaseException | None = None
        while True:
            try:
                waits_for = work.throw(error) if error is not None else work.send(None)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            self.suspended += 1
            if self.suspended == self._at:
                if self._moment == "answered" and isinstance(waits_for, asyncio.Future):
                    waits_for.add_done_callback(lambda _: self._interfere())
                else:
                    self._interfere()
            error = None
            try:
                yield waits_for
            except BaseException as thrown:
                error = thrown


async def cancelled_at(work: Coroutine[object, object, object], at: int, moment: Moment) -> bool:
    """Run it in a task that is cancelled at that suspension; whether it got so far. Its errors are raised."""

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        await Stepped(work, at, moment, task.cancel)

    task = asyncio.ensure_future(run())
    try:
        async with asyncio.timeout(60):
            await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        return True
    return False
