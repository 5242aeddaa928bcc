"""Where a consumer of a stream queue continues on its next wire channel.

A stream takes nothing back: what is not acknowledged does not come again by itself. So a consumer that comes back after
a loss says where it continues:

    "handed_out"   behind the last delivery that the program was handed. What it was handed and has not acknowledged yet
                   needs no acknowledgement any more, because it does not come again
    "settled"      at the first delivery that it was handed and has not acknowledged: from there on all come again, as
                   from a queue

Before the first delivery, "next" and "last" would leave a gap as long as the outage: then it continues at the time at
which it began, and may be handed a few messages from before that.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from typing import Final, Literal, cast

from harebell.client.core.unacked import Deliveries
from harebell.client.messages import Delivery
from harebell.protocol.v091 import Table, TableLike

__all__ = ["OFFSET", "Position", "Resume"]

OFFSET: Final = "x-stream-offset"  # the argument of basic.consume

Resume = Literal["handed_out", "settled"]


class Position:
    """The position of one consumer.

    resume    what it continues behind
    expected  the number of the message that is to come next, after it has come back; None for any
    """

    def __init__(self, resume: Resume, arguments: TableLike | None) -> None:
        self.resume = resume
        self.expected: int | None = None
        self._asked = None if arguments is None else arguments.get(OFFSET)
        self._began = time.time()
        self._last: int | None = None  # the number of the message behind which it continues
        self._newest: int | None = None  # of the last message handed out
        self._unsettled: deque[Delivery] = deque()  # handed out; some, but for the earliest, may be settled by now

    def handed_out(self, delivery: Delivery, deliveries: Deliveries | None) -> None:
        """The program gets this one, which the table has; None: it needs no acknowledgement."""
        if deliveries is None:
            self._newest = delivery.stream_offset
            return
        self._unsettled.append(delivery)
        self._drop_settled(deliveries)

    def _drop_settled(self, deliveries: Deliveries) -> None:
        unsettled, unacked, released = self._unsettled, deliveries.unacked, deliveries.released
        while unsettled and (tag := unsettled[0].delivery_tag) not in unacked and tag not in released:
            self._newest = unsettled.popleft().stream_offset

    @property
    def last(self) -> int | None:
        """The number of the last message that was handed out; None before the first."""
        return self._unsettled[-1].stream_offset if self._unsettled else self._newest

    def settled(self, deliveries: Deliveries) -> int | None:
        """The number of the message up to which all that were handed out are settled; None for none."""
        self._drop_settled(deliveries)
        return self._newest

    def lost(self, deliveries: Deliveries, kept: Delivery | None = None) -> None:
        """The wire channel is lost, and its table still says what is not settled.

        kept  the last that came, where those in a buffer are kept: they need no acknowledgement
        """
        if kept is not None:
            self._newest = kept.stream_offset
        settled = self.settled(deliveries)
        if self.resume == "handed_out":
            self._last = self.last
            deliveries.release(delivery.delivery_tag for delivery in self._unsettled)
        else:
            self._last = settled
            self._unsettled.clear()

    def arguments(self, given: TableLike | None) -> Table:
        """The arguments with which it continues."""
        arguments = cast(Table, dict(given or {}))
        if self._last is not None:
            self.expected = arguments[OFFSET] = self._last + 1
        elif self._asked is None or self._asked in ("next", "last"):
            arguments[OFFSET] = datetime.fromtimestamp(int(self._began), UTC)
        return arguments
