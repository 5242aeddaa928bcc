"""Streaming queries: started although Python is slow to start, and followed to their end.

Spark starts a Python process for each streaming query over a Python data source and waits for it exactly 10 seconds,
which no setting changes; then the query ends with "Python worker failed to connect back", before its first batch. A
machine that is busy enough needs longer. The checkpoint is as it was, so the query can be started again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

__all__ = ["Query", "follow", "rows_read", "start_query"]

log = logging.getLogger("harebell.spark")

POLL_SECONDS: Final = 0.2
START_POLL_SECONDS: Final = 0.05
START_SECONDS: Final = 180.0  # of trying to start a query; a try ends after 10
LATE_WORKER: Final = "Python worker failed to connect back"
STARTING: Final = "Initializing"  # how Spark's status begins until the sources are there


class Query(Protocol):
    """As much of a StreamingQuery as is used here."""

    @property
    def isActive(self) -> bool: ...
    @property
    def status(self) -> dict[str, Any]: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...
    def awaitTermination(self, timeout: int | None = None) -> bool | None: ...
    def exception(self) -> Exception | None: ...
    def stop(self) -> None: ...


Q = TypeVar("Q", bound=Query)


def start_query(start: Callable[[], Q], seconds: float = START_SECONDS) -> Q:
    """The query that `start` (a DataStreamWriter's) starts; started again while Spark finds its Python process late.

    Returns when the query's sources are there, or when it has ended; after `seconds` of trying, the query that failed.
    """
    deadline = time.monotonic() + seconds
    while True:
        query = start()
        try:
            while query.isActive and str(query.status["message"]).startswith(STARTING):
                time.sleep(START_POLL_SECONDS)
        except BaseException:
            query.stop()
            raise
        error = None if query.isActive else query.exception()
        if error is None or LATE_WORKER not in str(error) or time.monotonic() > deadline:
            return query
        log.warning("Spark's Python process did not start within its 10 seconds; starting the query again")


def rows_read(batch: Any) -> int:
    """The rows of a micro-batch, from its progress. What Spark Connect sends has them by source alone."""
    whole = batch["numInputRows"]
    return int(whole) if whole is not None else sum(int(source["numInputRows"]) for source in batch["sources"])


def follow(query: Query, progress: Callable[[int], None]) -> int:
    """Waits for a query's end and returns the rows that it read; `progress` gets their number so far.

    Raises the query's exception.
    """
    batches: dict[int, int] = {}  # Spark itself remembers the last 100 only
    while True:
        ended = not query.isActive
        batches.update((batch["batchId"], rows_read(batch)) for batch in query.recentProgress)
        read = sum(batches.values())
        progress(read)
        if ended:
            break
        query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]  # a fraction works, its annotation is too narrow
    error = query.exception()
    if error is not None:
        raise error
    return read
