"""Something that opens when it is awaited, or entered with `async with`, which also closes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

__all__ = ["Opening"]


class _Closing(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


_T = TypeVar("_T", bound=_Closing)


class Opening(Generic[_T]):
    """Something to be opened: `await` it and close the result yourself, or `async with` it."""

    def __init__(self, make: Callable[[], Awaitable[_T]]) -> None:
        self._make = make
        self._opened: _T | None = None

    def __await__(self) -> Generator[object, None, _T]:
        return self._make().__await__()

    async def __aenter__(self) -> _T:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)
