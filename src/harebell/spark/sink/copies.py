"""Copies of messages: rows that were read and are written again, so that they do not go back where they came from.

A row of a read says where its message was published (`exchange`, `routing_key`) and which queue it was in (`queue`).
Published there again, it comes to the queue that is read once more: a batch doubles what is there, a stream goes on for
ever. So a frame with a column of a read needs the option exchange; and a row whose address is the one that it had, or
its own queue by the default exchange, is refused. `toOrigin` allows both.

Two properties cannot always be copied: user_id, which a broker takes from that user only, becomes the header
x-copied-user-id for another user's; the header CC, which names further routing keys, is left out where the option
routingKey replaces the first (`row_encoding`). This module opens no connection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from harebell.errors import InvalidArgument
from harebell.protocol.v091.fields import read_table, write_table

if TYPE_CHECKING:
    import pyarrow as pa

    from harebell.protocol.v091 import Table
    from harebell.spark.options import SinkOptions

__all__ = ["OF_A_READ", "CopyGuard", "check_copy", "is_copy", "without_strangers"]

# What a read adds about the reading itself; a row that was read can be written without dropping them first.
OF_A_READ: Final = ("queue", "offset", "redelivered")
COPIED_USER: Final = "x-copied-user-id"
HINT: Final = (
    "give options 'exchange' and 'routingKey' to publish elsewhere, or toOrigin=true if they are to go there again"
)


def is_copy(names: Collection[str]) -> bool:
    """Whether a frame with these columns is of rows that were read."""
    return any(name in names for name in OF_A_READ)


def check_copy(names: Collection[str], options: SinkOptions) -> None:
    """Raises InvalidArgument for rows that were read, and of which each would go where it was published before."""
    if options.to_origin:
        if options.exchange is not None and options.routing_key is not None:
            raise InvalidArgument(
                "option 'toOrigin' is for rows that say where they were published; options 'exchange' and 'routingKey' "
                "send all of them elsewhere: leave it or them out"
            )
        return
    if not is_copy(names):
        return
    if options.exchange is None and "exchange" in names:
        raise InvalidArgument(
            "these rows were read from a queue, and their column 'exchange' says where each message was published: "
            f"there it would come back to that queue, in a stream for ever; {HINT}"
        )
    if options.exchange == "" and options.routing_key is None:
        raise InvalidArgument(
            "these rows were read from a queue, and by the default exchange their column 'routing_key' names the queue "
            f"that each message goes to: it would come back to its own; {HINT}"
        )


class CopyGuard:
    """Refuses rows that were read and would go back where they came from. Made once per task.

    user  the user that publishes
    """

    def __init__(self, names: Collection[str], options: SinkOptions) -> None:
        self.user = options.url.parameters()[0].username
        self._exchange, self._key = options.exchange, options.routing_key
        self._to_origin = options.to_origin
        self._has_address = "exchange" in names and "routing_key" in names
        self._has_queue = "queue" in names and self._exchange == ""

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises InvalidArgument, whose text counts the rows and names the first."""
        if self._to_origin or self._exchange is None:
            return
        if self._has_address:
            same = pc.equal(batch.column("exchange"), self._exchange)
            if self._key is not None:
                same = pc.and_(same, pc.equal(batch.column("routing_key"), self._key))
            self._refuse(batch, same, "exchange and with the routing key that it was published with")
        if self._has_queue:
            self._refuse(batch, pc.equal(batch.column("queue"), self._key), "queue that it was read from")

    def _refuse(self, batch: pa.RecordBatch, same: pa.Array, where: str) -> None:
        count = pc.sum(same).as_py()
        if not count:
            return
        row = pc.index(same, True).as_py()
        known = [name for name in ("queue", "offset", "exchange", "routing_key") if name in batch.schema.names]
        first = ", ".join(f"{name} {batch.column(name)[row].as_py()!r}" for name in known)
        raise InvalidArgument(
            f"{count} of {batch.num_rows} rows would go to the {where}, the first of {first}: it would come back to "
            f"the queue that is read; {HINT}"
        )


def without_strangers(columns: dict[str, list[Any]], constants: dict[str, Any], user: str, rows: int) -> None:
    """Moves the user_id of other users than the one that publishes into a header: a broker refuses such a message.

    `columns` and `constants` are the values of properties, by row and for all.
    """
    users: Sequence[str | None] = columns["user_id"]
    strange = [row for row, name in enumerate(users) if name is not None and name != user]
    if not strange:
        return
    headers = columns.setdefault("headers", [constants.pop("headers", None)] * rows)
    columns["user_id"] = own = list(users)
    for row in strange:
        headers[row] = _with(headers[row], users[row])
        own[row] = None


def _with(headers: Table | bytes | None, user: str | None) -> Table | bytes:
    if isinstance(headers, bytes):  # encoded, with its length
        return write_table({**read_table(headers, 0)[0], COPIED_USER: user})
    return {**(headers or {}), COPIED_USER: user}
