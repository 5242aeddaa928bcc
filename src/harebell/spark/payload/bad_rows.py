"""Rows whose body could not be read: into a column, an exception, or an exchange. Never dropped in silence.

Rules: a row that goes to an exchange is published with `mandatory` and confirmed before the rest of its batch is handed
on; what cannot be published fails the task. A task that Spark runs again, and another action on the same DataFrame,
publish again: at least once. The message is as it was but for what would hurt it on its second journey: the properties
expiration and user_id and the headers CC and BCC are moved to headers `x-bad-row-...`, and it is persistent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from harebell.client.messages import Message, Publication
from harebell.errors import UndecodableBody
from harebell.spark.connection import TRANSIENT, Link, retrying
from harebell.spark.headers import headers_from_json
from harebell.spark.schema import PROPERTY_COLUMNS, TIMESTAMP_NUMBER, unsigned

if TYPE_CHECKING:
    from harebell.spark.options import SourceOptions

__all__ = ["BadRowsPublisher", "fail"]

log = logging.getLogger("harebell.spark")

PREFIX: Final = "x-bad-row-"
MAX_REASON: Final = 500  # characters: a header has to fit into one frame with all others
WINDOW: Final = 1000  # unconfirmed messages at a time
PERSISTENT: Final = 2
# A second expiry, a user other than the publisher, and copies to others: moved aside, not lost.
_MOVED_PROPERTIES: Final = ("expiration", "user_id")
_MOVED_HEADERS: Final = ("CC", "BCC")


def fail(batch: pa.RecordBatch, reasons: dict[int, str]) -> None:
    """Raises UndecodableBody for the first bad row, naming it. The batch has queue, offset and message_id."""
    row = min(reasons)
    queue, offset, message_id = (batch.column(name)[row].as_py() for name in ("queue", "offset", "message_id"))
    which = f"message {offset}" if offset is not None else "a message"
    named = f" (message_id '{message_id}')" if message_id is not None else ""
    others = f"; {len(reasons) - 1} more in this batch" if len(reasons) > 1 else ""
    raise UndecodableBody(f"{which} of queue '{queue}'{named} cannot be read: {reasons[row]}{others}")


class BadRowsPublisher:
    """Publishes bad rows to option badRowsExchange. One per task; connects when the first bad row comes."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._link: Link | None = None

    def publish(self, batch: pa.RecordBatch, reasons: dict[int, str]) -> None:
        """Publishes these rows of a batch that has all columns; returns when all are confirmed.

        Raises Unroutable, Nacked, or the connection's error when the broker stays away for retry_timeout seconds.
        """
        rows = sorted(reasons)
        payload = self._options.payload
        publications = [
            publication(row, reasons[number], payload.bad_exchange or "", payload.bad_routing_key)
            for number, row in zip(rows, batch.take(pa.array(rows)).to_pylist(), strict=True)
        ]
        retrying(lambda: self._publish(publications), self._options.retry_timeout, "publishing bad rows")
        log.warning(
            "%d of %d messages of queue '%s' could not be read and went to exchange '%s'; the first: %s",
            len(rows),
            batch.num_rows,
            batch.column("queue")[0].as_py(),
            payload.bad_exchange,
            reasons[rows[0]],
        )

    def close(self) -> None:
        """Gives the connection up, if there is one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _publish(self, publications: list[Publication]) -> None:
        try:
            if self._link is None:
                self._link = Link(self._options.url, self._options.timeout)
                self._link.confirm_select()
            self._link.publish(publications, WINDOW, self._options.timeout)
        except TRANSIENT:
            self.close()
            raise


def publication(row: dict[str, Any], reason: str, exchange: str, routing_key: str | None) -> Publication:
    """The message of a row again, with what was wrong and where it came from in its headers."""
    headers: dict[str, Any] = dict(headers_from_json(row["headers"])) if row["headers"] is not None else {}
    for name in _MOVED_HEADERS:
        if name in headers:
            headers[PREFIX + name.lower()] = headers.pop(name)
    properties = {name: row[name] for name in PROPERTY_COLUMNS if name != "headers"}
    if row[TIMESTAMP_NUMBER] is not None:
        properties["timestamp"] = unsigned(row[TIMESTAMP_NUMBER])
    for name in _MOVED_PROPERTIES:
        if properties[name] is not None:
            headers[PREFIX + name.replace("_", "-")] = properties[name]
            properties[name] = None
    headers[PREFIX + "reason"] = reason[:MAX_REASON]
    for name in ("queue", "offset", "exchange", "routing_key"):
        if row[name] is not None:
            headers[PREFIX + name.replace("_", "-")] = row[name]
    properties["delivery_mode"] = PERSISTENT
    key = row["routing_key"] if routing_key is None else routing_key
    return Publication(Message(row["body"], headers=headers, **properties), exchange, key, True)
