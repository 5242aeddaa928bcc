"""Tells a stream queue from another one that was declared under its name later, whose numbers mean other messages.

Rules: Harebell says a stream's id, which no other stream ever has. Other brokers say none. There a mark is compared: a
second and the number of the first message that was stored in it or later. In the same stream that number never falls;
in one that was declared later, all messages were stored after that second, so it is that stream's first. The second is
of this machine's clock, and may differ from the broker's: the number is what the broker answers, so a difference never
makes one stream look like two. It only lengthens the time (a second otherwise) in which a new one looks like the old.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from harebell.client.servers import HAREBELL, RABBITMQ
from harebell.spark.streams.bounds import BoundsReader, StreamBounds
from harebell.spark.streams.offsets import UNKNOWN, Identity

__all__ = ["MARK_SECONDS", "is_another", "make_identity", "mark_holds"]

MARK_SECONDS: Final = 10
"""How old a mark may be when a batch is planned; a new one costs a consumer."""

MARKED: Final = (HAREBELL, RABBITMQ)  # the products whose moments are known to be those of storing


def make_identity(reader: BoundsReader, queue: str, bounds: StreamBounds, entry: Mapping[str, Any]) -> Identity:
    """The identity of the stream as it is now, for the entry of a batch's end."""
    if bounds.id is not None:
        return Identity(bounds.id)
    known = Identity.of(entry)
    if known.id is not None:  # of a Harebell that does not say it to this user
        return known
    second = int(time.time()) + 1
    if reader.product not in MARKED or (known.mark is not None and second - known.mark[0] <= MARK_SECONDS):
        return known
    number = min(reader.number_at(queue, datetime.fromtimestamp(second, UTC)), entry["next"])
    # Of a stream that begins there, it would say nothing.
    return Identity(mark=(second, number)) if number > max(bounds.first, 0) else known


def is_another(reader: BoundsReader, queue: str, bounds: StreamBounds, entry: Mapping[str, Any]) -> bool:
    """Whether the queue is another stream than the one that the entry of a checkpoint is about.

    A mark is looked at when there is something to read: what is not read cannot be mistaken.
    """
    known = Identity.of(entry)
    if known.id is not None:
        return bounds.id != known.id if bounds.id is not None else reader.product not in (None, HAREBELL)
    return not bounds.emptied and bounds.tail > entry["next"] and not mark_holds(reader, queue, known)


def mark_holds(reader: BoundsReader, queue: str, known: Identity) -> bool:
    """Whether a mark, where there is one, is still true of the queue."""
    if known.mark is None:
        return True
    second, number = known.mark
    found = reader.number_at(queue, datetime.fromtimestamp(second, UTC))
    return found == UNKNOWN or found >= number
