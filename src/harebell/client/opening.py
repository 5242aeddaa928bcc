"""Something that opens when it is awaited, or entered with `async with`, which also closes it."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

__all__ = ["Opening"]


class _Closing(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


_T = TypeVar("_T", bound=_Closing)


class Opening(Generic[_T]):
    """Something to be opened: `await` it and close the result yourself, or `async with` it.

    what  the call that gave this, for the text of an error: who forgets the `await` is told so
    """

    def __init__(self, make: Callable[[], Awaitable[_T]], what: str) -> None:
        self._make = make
        self._what = what
        self._opened: _T | None = None
        self._begun = False

    def __await__(self) -> Generator[object, None, _T]:
        self._begun = True
        return self._make().__await__()

    def __aenter__(self) -> CoroutineType[Any, Any, _T]:  # as of a coroutine function, which pyright asks for
        self._begun = True
        return self._enter()  # type: ignore[return-value]

    async def _enter(self) -> _T:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # a type checker reports these itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(
                f"{self._what} is not awaited, and has no {name!r} yet: write `await {self._what}`, or "
                f"`async with {self._what} as ...`"
            )

        def __enter__(self) -> NoReturn:
            raise TypeError(
                f"{self._what} is entered with `async with`; `harebell.blocking` is for programs without a loop"
            )

        def __exit__(self, *error: object) -> None:
            """For the text of `__enter__`: `with` looks for both."""

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(f"{self._what} was never awaited", RuntimeWarning, source=self, stacklevel=1)
