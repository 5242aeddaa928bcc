"""Filters of stream consumers: which messages of a log a reader wants to see, by a value that their publishers gave.

A publisher puts a string into the header `x-stream-filter-value`. A consumer names the values that it wants in
`x-stream-filter` (a string, or an array of them), and with `x-stream-match-unfiltered` also takes messages without one.
RabbitMQ (3.13 and later) looks at whole chunks of the log and lets neighbours through; here the filter is exact, so a
client that filters once more finds nothing to drop.

A message that is not wanted costs a search of its header frame; only what may be wanted is decoded.
"""

from __future__ import annotations

import re
from typing import Final

from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.protocol.v091.content import stored_content
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing.table_values import type_name

__all__ = ["FILTER", "MATCH_UNFILTERED", "StreamFilter", "stream_filter"]

FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
VALUE: Final = "x-stream-filter-value"

_KEY: Final = bytes((len(VALUE),)) + VALUE.encode()


class StreamFilter:
    """What one consumer wants: messages of these `values`, and with `unfiltered` those that have none."""

    __slots__ = ("_unfiltered", "_values", "_wanted")

    def __init__(self, values: frozenset[str], *, unfiltered: bool) -> None:
        self._values, self._unfiltered = values, unfiltered
        encoded = (value.encode("utf-8", "surrogateescape") for value in values)
        entries = (re.escape(len(value).to_bytes(4, "big") + value) for value in encoded)
        self._wanted = re.compile(re.escape(_KEY + b"S") + b"(?:" + b"|".join(entries) + b")")

    def wants(self, frames: bytes) -> bool:
        """Whether a message, given as its frames with the header frame first, passes."""
        end = header_frame_size(frames)
        if self._unfiltered:
            if frames.find(_KEY, 0, end) < 0:
                return True
        elif self._wanted.search(frames, 0, end) is None:
            return False
        # What was found may be part of another value: now the headers themselves decide.
        value = (stored_content(0, frames).decode_properties().headers or {}).get(VALUE)
        return value in self._values if isinstance(value, str) else self._unfiltered


def stream_filter(arguments: Table, where: str) -> StreamFilter | None:
    """The filter that a consumer's arguments ask for. PreconditionFailed where they are not what they have to be."""
    unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(unfiltered, bool):
        raise PreconditionFailed(
            f"invalid arg '{MATCH_UNFILTERED}' for {where}: \"expected boolean, got {type_name(unfiltered)}\""
        )
    asked = arguments.get(FILTER, [])
    values = asked if isinstance(asked, list) else [asked]
    for value in values:
        if not isinstance(value, str):
            raise PreconditionFailed(
                f"invalid arg '{FILTER}' for {where}: \"expected string or array of strings, got {type_name(value)}\""
            )
    if not values:
        return None  # everything is wanted, with a value or without
    return StreamFilter(frozenset(map(str, values)), unfiltered=unfiltered)
