"""Last-value queues: a new message takes the place of the one that waits with the same key.

The argument `x-last-value-key` names the header that is the key (Qpid's C++ broker: `qpid.last_value_queue_key`). The
new message goes to the end of the queue. A message that a consumer holds stays its own; when it comes back and a newer
one with its key waits, it is dropped. Messages without the header are ordinary ones.

In the journal the new message is written before the old one is settled: after a kill both may be there, and the older
one is dropped then.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.backlog import Backlog
from harebell.broker.queues.removed import Removed
from harebell.routing.table_values import canonical

__all__ = ["LastValueBacklog"]

SLACK: Final = 64  # keys of messages that have left before they are forgotten


class LastValueBacklog(Backlog):
    """A backlog with at most one message for each value of the header `key`."""

    def __init__(self, top: int, key: str) -> None:
        super().__init__(top)
        self._key = key
        self._latest: dict[Hashable, Held] = {}

    def push(self, held: Held) -> None:
        super().push(held)
        value = self._value(held)
        if value is None:
            return
        before = self._latest.get(value)
        self._latest[value] = held
        if before is not None and not before.gone:
            self.remove(before)
            self._settle(before)
        elif len(self._latest) > 2 * self.count + SLACK:
            self._latest = {value: held for value, held in self._latest.items() if not held.gone}

    def put_back(self, held: Held) -> None:
        value = self._value(held)
        latest = None if value is None else self._latest.get(value)
        if latest is not None and latest.position > held.position and not latest.gone:
            self._settle(held)
            return
        super().put_back(held)
        if value is not None:
            self._latest[value] = held

    def remove_all(self) -> Removed:
        self._latest.clear()
        return super().remove_all()

    def _settle(self, held: Held) -> None:
        if self.journal is not None:
            self.journal.settle(held.position)

    def _value(self, held: Held) -> Hashable | None:
        headers = held.message.content.decode_properties().headers
        value = None if headers is None else headers.get(self._key)
        return None if value is None else canonical(value)
