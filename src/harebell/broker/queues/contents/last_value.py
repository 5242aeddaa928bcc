"""Last-value queues: a new message takes the place of the one that waits with the same key.

The argument `x-last-value-key` names the header that is the key (Qpid's C++ broker: `qpid.last_value_queue_key`). The
new message goes to the end of the queue. A message that a consumer holds stays its own; when it comes back and a newer
one with its key waits, it is dropped. Messages without the header are ordinary ones.

In the journal the new message is written before the old one is settled: after a kill both may be there, and the older
one is dropped then.
"""

from __future__ import annotations

from collections.abc import Hashable

from harebell.broker.message import Held
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.removed import Entries, Removed
from harebell.broker.swept import SLACK, STEP
from harebell.routing.table_values import canonical

__all__ = ["LastValueBacklog"]


class LastValueBacklog(Backlog):
    """A backlog with at most one message for each value of the header `key`."""

    def __init__(self, top: int, key: str) -> None:
        super().__init__(top)
        self._key = key
        self._latest: dict[Hashable, Held] = {}
        self._unswept: dict[Hashable, Held] = {}  # as `_latest`; a sweep has not looked at them

    def push(self, held: Held) -> None:
        super().push(held)
        value = self._value(held)
        if value is None:
            return
        before = self._latest_of(value)
        self._latest[value] = held
        if before is not None:
            self.remove(before)
            self._settle(before)
        elif self._unswept or len(self._latest) > 2 * self.count + SLACK:
            self._sweep()

    def put_back(self, held: Held) -> Held:
        value = self._value(held)
        latest = None if value is None else self._latest_of(value)
        if latest is not None and latest.position > held.position:
            self._settle(held)
            held.gone = True
            return held
        super().put_back(held)
        if latest is not None:  # an older one came back before
            self.remove(latest)
            self._settle(latest)
        if value is not None:
            self._latest[value] = held
        return held

    def remove_all(self) -> Removed:
        keys = [Entries(self._latest), Entries(self._unswept)]
        self._latest, self._unswept = {}, {}
        return super().remove_all().and_then(Removed(0, (), keys))

    def _latest_of(self, value: Hashable) -> Held | None:
        """The message with this key that waits."""
        held = self._latest.get(value)
        if held is None:
            held = self._unswept.get(value)
        return None if held is None or held.gone else held

    def _sweep(self) -> None:
        """Forget the keys of messages that have left, of STEP keys at a time."""
        if not self._unswept:
            self._latest, self._unswept = {}, self._latest
        for _ in range(min(STEP, len(self._unswept))):
            value, held = self._unswept.popitem()
            if not held.gone:
                self._latest.setdefault(value, held)

    def _settle(self, held: Held) -> None:
        if self.journal is not None:
            self.journal.settle(held.position)

    def _value(self, held: Held) -> Hashable | None:
        headers = held.message.content.decode_properties().headers
        value = None if headers is None else headers.get(self._key)
        return None if value is None else canonical(value)
