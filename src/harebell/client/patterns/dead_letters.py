"""What lies in a dead-letter queue, and why: `async for letter in connection.dead_letters("work.dead")`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from harebell.client.patterns.reader import QueueReader
from harebell.client.patterns.retry import DeadLetter, dead_letter_of

__all__ = ["DeadLetters"]


class DeadLetters:
    """An asynchronous iterator of DeadLetter. Made by `connection.dead_letters`."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    async def __aenter__(self) -> Self:
        await self._reader.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._reader.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DeadLetter:
        return dead_letter_of(await anext(self._reader))
