"""Dead letters: the headers of a message that died in a queue, and the queues that it may not enter again.

Rules (RabbitMQ 4's):

- `x-death` is an array, the most recent death first. A death is a (queue, reason) pair: dying again for the same
  reason in the same queue counts up and comes to the front; its time, exchange and keys stay those of the first time.
- A death's fields, in this order: original-expiration (only when the message had an expiration), count, reason, queue,
  time (of the first such death), exchange, routing-keys (with CC's, without BCC's).
- A count is an integer of 64 bits on the wire. All other headers, and the entries of earlier deaths, stay as they were.
- x-first-death-* are written once, x-last-death-* every time.
- The first death in the broker replaces an `x-death` that a publisher sent.
- The dead letter is routed by the queue's x-dead-letter-routing-key, or else by all the message's own keys. The caller
  removes the expiration property, so that the letter does not expire again.
- A cycle without a rejection in it is automatic and would never end: a letter does not enter a queue in which it died
  before, unless a consumer has rejected it since.

The module reads no clock (times are arguments, in seconds) and does not route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from harebell.protocol.v091.typed_values import Int64
from harebell.routing.copies import without_bcc
from harebell.routing.table_values import Table

__all__ = ["Death", "Reason", "dead_letter_headers", "dead_letter_keys", "deaths", "without_cycles"]

Reason = Literal["rejected", "expired", "maxlen", "delivery_limit"]

_HEADER: Final = "x-death"


class Death:
    """One entry of `x-death`. `time` is in seconds since the epoch; `original_expiration` in ms, as text, or None."""

    __slots__ = ("count", "exchange", "original_expiration", "queue", "reason", "routing_keys", "time")

    def __init__(
        self,
        queue: str,
        reason: str,
        count: int,
        exchange: str,
        routing_keys: tuple[str, ...],
        time: int,
        original_expiration: str | None = None,
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.count = count
        self.exchange = exchange
        self.routing_keys = routing_keys
        self.time = time
        self.original_expiration = original_expiration

    def table(self) -> dict[str, object]:
        """The entry as a field table, its fields in RabbitMQ's order; the time is an aware datetime in UTC."""
        head: dict[str, object] = {}
        if self.original_expiration is not None:
            head["original-expiration"] = self.original_expiration
        return head | {
            "count": Int64(self.count),
            "reason": self.reason,
            "queue": self.queue,
            "time": datetime.fromtimestamp(self.time, UTC),
            "exchange": self.exchange,
            "routing-keys": list(self.routing_keys),
        }


def deaths(headers: Table) -> tuple[Death, ...]:
    """The deaths in the headers, most recent first, without malformed entries.

    Use it for headers that a broker wrote: a publisher can send anything under this name.
    """
    return tuple(death for _, death in _entries(headers))


def _entries(headers: Table) -> list[tuple[object, Death]]:
    """The entries of the headers that are deaths, each as it is and as a Death."""
    entries = headers.get(_HEADER)
    if not isinstance(entries, (list, tuple)):
        return []
    return [(entry, death) for entry in entries if (death := _parse(entry)) is not None]


def dead_letter_headers(
    headers: Table,
    *,
    queue: str,
    reason: Reason,
    exchange: str,
    routing_keys: Sequence[str],
    time: int,
    expiration: str | None = None,
    bcc: Sequence[str] = (),
    died_before: bool,
) -> dict[str, object]:
    """The headers of the dead letter, a new dict.

    `queue` is where the message died. `exchange` and `routing_keys` are those that it was published with before (CC's
    and BCC's keys included; `bcc` names the latter). `time` is in seconds since the epoch, `expiration` the property if
    any. `died_before` says that this broker dead-lettered the message already, so that its `x-death` can be trusted.
    """
    earlier = _entries(headers) if died_before else []
    this = next((death for _, death in earlier if (death.queue, death.reason) == (queue, reason)), None)
    if this is None:
        recorded = list(routing_keys)
        for key in bcc:
            if key in recorded:
                recorded.remove(key)  # once: a key that is also the routing key or in CC stays
        now = Death(queue, reason, 1, exchange, tuple(recorded), time, expiration)
    else:
        now = Death(
            queue, reason, this.count + 1, this.exchange, this.routing_keys, this.time, this.original_expiration
        )
    after = without_bcc(headers)
    after[_HEADER] = [now.table(), *(entry for entry, death in earlier if death is not this)]
    last = {"reason": reason, "queue": queue, "exchange": exchange}
    for field, value in last.items():
        if not (died_before and f"x-first-death-{field}" in after):
            after[f"x-first-death-{field}"] = value
        after[f"x-last-death-{field}"] = value
    return after


def dead_letter_keys(dead_letter_routing_key: str | None, routing_keys: Sequence[str]) -> tuple[str, ...]:
    """The keys to route the dead letter by: the queue's setting, else the message's own with CC's and BCC's."""
    return tuple(routing_keys) if dead_letter_routing_key is None else (dead_letter_routing_key,)


def without_cycles(reason: Reason, headers: Table, queues: Sequence[str]) -> tuple[str, ...]:
    """The queues that a dead letter may enter, of those that it is routed to.

    `headers` are the letter's own, this death included; `reason` is that of this death. A rejected message may enter
    any queue.
    """
    if reason == "rejected":
        return tuple(queues)
    history = deaths(headers)
    return tuple(queue for queue in queues if not _comes_around(queue, history))


def _comes_around(queue: str, history: Sequence[Death]) -> bool:
    """True when the letter died in `queue` before, and no consumer rejected it then or since."""
    for death in history:
        if death.reason == "rejected":
            return False
        if death.queue == queue:
            return True
    return False


def _parse(entry: object) -> Death | None:
    if not isinstance(entry, Mapping):
        return None
    queue, reason, count, exchange = (entry.get(field) for field in ("queue", "reason", "count", "exchange"))
    keys, time, expiration = (entry.get(field) for field in ("routing-keys", "time", "original-expiration"))
    if not (isinstance(queue, str) and isinstance(reason, str) and isinstance(exchange, str)):
        return None
    if not (isinstance(count, int) and isinstance(time, datetime) and isinstance(keys, (list, tuple))):
        return None
    return Death(
        queue,
        reason,
        count,
        exchange,
        tuple(key for key in keys if isinstance(key, str)),
        int(time.timestamp()),
        expiration if isinstance(expiration, str) else None,
    )
