"""The gate: callers go on in their order, a few at a time, and all of them where they are to fail."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from harebell import errors
from harebell.client.sessions.core.gate import MOST_ENTERING, Gate


class Case:
    """A gate with room for so many callers."""

    def __init__(self) -> None:
        self.room = 0
        self.error: errors.HarebellError | None = None
        self.passed: list[int] = []
        self.gate = Gate(asyncio.get_running_loop(), self.check, lambda: self.room > 0)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    async def call(self, number: int) -> None:
        async def wait(future: asyncio.Future[object]) -> object:
            return await future

        await self.gate.enter(wait)
        self.room -= 1
        self.passed.append(number)

    async def start(self, count: int) -> list[asyncio.Task[None]]:
        tasks = [asyncio.ensure_future(self.call(number)) for number in range(count)]
        await asyncio.sleep(0)
        return tasks


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_callers_go_on_in_their_order() -> None:
    case = Case()
    tasks = await case.start(3 * MOST_ENTERING)
    while len(case.passed) < len(tasks):
        case.room = 7  # less than are let through
        case.gate.open()
        late = asyncio.ensure_future(case.call(len(tasks)))
        tasks.append(late)
        await turns()
        if len(tasks) > 4 * MOST_ENTERING:
            case.room = len(tasks)
            case.gate.open()
            await turns(50)
    assert case.passed == list(range(len(tasks)))


async def test_all_learn_of_an_error() -> None:
    case = Case()
    tasks = await case.start(3 * MOST_ENTERING)
    case.error = errors.ChannelClosed("over")
    case.gate.open()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {errors.ChannelClosed}
    with pytest.raises(errors.ChannelClosed):
        await case.call(0)


async def test_one_that_is_cancelled_lets_the_next_through() -> None:
    case = Case()
    tasks = await case.start(4)
    tasks[1].cancel()  # while it waits
    await turns()
    case.room = 1
    case.gate.open()
    tasks[0].cancel()  # when it was let through
    await turns()
    assert case.passed == [2]
    case.room = 1
    case.gate.open()
    await turns()
    assert case.passed == [2, 3]
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
