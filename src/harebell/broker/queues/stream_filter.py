"""Filters of stream consumers: they choose messages of a log by a value that publishers set.

A publisher sets the header `x-stream-filter-value` to a string. A consumer names the values that it wants in
`x-stream-filter` (a string, or an array of them), and with `x-stream-match-unfiltered` also takes messages without one.
RabbitMQ (3.13 and later) filters whole chunks of the log and delivers neighbours too; here the filter is exact, so a
client's own filter drops nothing more.

The header frame of every message is searched for the values; only messages that may match are decoded.
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
    """One consumer's filter: messages with one of these `values`, and with `unfiltered` those without a value."""

    __slots__ = ("_unfiltered", "_values", "_wanted")

    def __init__(self, values: frozenset[str], *, unfiltered: bool) -> None:
        self._values, self._unfiltered = values, unfiltered
        encoded = (value.encode("utf-8", "surrogateescape") for value in values)
        entries = (re.escape(len(value).to_bytes(4, "big") + value) for value in encoded)
        self._wanted = re.compile(re.escape(_KEY + b"S") + b"(?:" + b"|".join(entries) + b")")

    def wants(self, frames: bytes) -> bool:
        """Whether a message, given as its frames with the header frame first, matches."""
        end = header_frame_size(frames)
        if self._unfiltered:
            if frames.find(_KEY, 0, end) < 0:
                return True
        elif self._wanted.search(frames, 0, end) is None:
            return False
        # The value found may be part of another one: decode the headers to decide.
        value = (stored_content(0, frames).decode_properties().headers or {}).get(VALUE)
        return value in self._values if isinstance(value, str) else self._unfiltered


def stream_filter(arguments: Table, where: str) -> StreamFilter | None:
    """The filter in a consumer's arguments; None without one. PreconditionFailed for an invalid one."""
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
        return None  # all messages match, with or without a value
    return StreamFilter(frozenset(map(str, values)), unfiltered=unfiltered)
