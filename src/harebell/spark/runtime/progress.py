"""Following a streaming query: how many rows it has read so far, until it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

__all__ = ["Query", "follow", "rows_read"]

LOOK_SECONDS: Final = 0.2


class Query(Protocol):
    """As much of a StreamingQuery as is used here."""

    @property
    def isActive(self) -> bool: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...
    def awaitTermination(self, timeout: int | None = None) -> bool | None: ...
    def exception(self) -> Exception | None: ...


def rows_read(batch: Any) -> int:
    """The rows of a micro-batch, from its progress. What Spark Connect sends has them by source alone."""
    whole = batch["numInputRows"]
    return int(whole) if whole is not None else sum(int(source["numInputRows"]) for source in batch["sources"])


def follow(query: Query, progress: Callable[[int], None]) -> int:
    """Wait for a query's end, telling how many rows it has read so far; how many they were. Raises its exception."""
    batches: dict[int, int] = {}  # Spark itself remembers the last 100 only
    while True:
        ended = not query.isActive
        batches.update((batch["batchId"], rows_read(batch)) for batch in query.recentProgress)
        read = sum(batches.values())
        progress(read)
        if ended:
            break
        query.awaitTermination(LOOK_SECONDS)  # type: ignore[arg-type]  # a fraction works, its annotation is too narrow
    error = query.exception()
    if error is not None:
        raise error
    return read
