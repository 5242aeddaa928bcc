"""Reads from a progress of a streaming query how far behind its AMQP sources are, and how many messages were lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

__all__ = ["lag", "lost"]


class Progressing(Protocol):
    """As much of a StreamingQuery as is used here."""

    @property
    def lastProgress(self) -> Any: ...


def lag(query: Progressing | Mapping[str, Any]) -> dict[str, int]:
    """How many messages of each stream queue the query has not read yet, as of its last progress, or of that given.

    {} before the first progress, and for queries without stream queues: of a queue that is drained, what it has ready
    is what is behind.
    """
    behind: dict[str, int] = {}
    for end, latest in _sources(query):
        for queue, entry in latest.items():
            done = end.get(queue, {}).get("next", entry["base"])
            behind[queue] = behind.get(queue, 0) + max(0, entry["next"] - done)
    return behind


def lost(query: Progressing | Mapping[str, Any]) -> dict[str, int]:
    """How many messages of each stream queue retention took before the query read them, since its checkpoint began.

    Only with failOnDataLoss=false, and of queues where it happened.
    """
    counts: dict[str, int] = {}
    for end, _ in _sources(query):
        for queue, entry in end.items():
            if entry.get("lost"):
                counts[queue] = counts.get(queue, 0) + entry["lost"]
    return counts


def _sources(query: Progressing | Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(end offset, latest offset) of the sources that are stream queues of ours."""
    progress = query if isinstance(query, Mapping) else query.lastProgress
    if progress is None:
        return
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if end is not None:
            yield end, latest or {}


def _offsets(value: object) -> Mapping[str, Any] | None:
    """Offsets of stream queues, which Spark gives as text, or as what that is the JSON of."""
    try:
        offsets = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if isinstance(offsets, dict) and all(isinstance(entry, dict) and "next" in entry for entry in offsets.values()):
        return offsets
    return None
