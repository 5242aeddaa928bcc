"""What was published on a channel and is not confirmed yet, over every wire channel that it has had.

A broker numbers the publications of each wire channel from 1 since confirm.select. A program sees one sequence: public
tag = `offset` + the broker's number. A confirm settles one number, or all up to it; the work is proportional to the
numbers it settles. When the wire channel is lost, what is unsettled is orphaned: it may have arrived, or not.

A returned message carries no number. Three facts of the protocol tie it to its publication without stamping anything
into the message, where consumers would see it:

1. A broker handles the publications of one channel in order, so returns come in the order of the publications.
2. A return comes before the confirm of its publication, so only unsettled publications are candidates.
3. The return repeats exchange, routing key, properties and body.

So a return belongs to the first unsettled mandatory publication after the last one returned that equals it. Where two
equal ones are under way and only the second came back, the first is reported in its place: they are the same message to
the same address, and whoever sends the reported one again has sent the right one.
A broker may rewrite properties on the way (RabbitMQ removes a BCC header): when no candidate equals the return in its
properties, they are left out of the comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from harebell import errors
from harebell.client.messages import Returned

__all__ = ["Batch", "PublishWaiter", "Publishes"]

MAX_KEPT_RETURNS = 1000  # of one batch: the error text counts all, the record keeps the first


class PublishWaiter(Protocol):
    """Waits for the confirm of a publication."""

    def settle(self, publish_tag: int, acked: bool) -> None: ...
    def returned(self, publish_tag: int, returned: Returned) -> None: ...
    def orphaned(self, publish_tag: int) -> None: ...
    def fail(self, reason: errors.HarebellError) -> None: ...


class Publishes:
    """The unsettled publications of one channel; `confirming` is set by confirm.select-ok.

    nacked, orphaned, unanswered, returns  how many were refused, were cut by a loss, were left without an answer by the
                                           end of the channel, came back
    """

    __slots__ = (
        "_mandatory", "_settled_to", "confirming", "last_tag", "nacked", "offset", "orphaned", "returns", "unanswered",
        "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.confirming = False
        self.last_tag = 0
        self.offset = 0
        self.waiters: dict[int, PublishWaiter | None] = {}  # None: nobody waits any more
        self.nacked = self.orphaned = self.unanswered = self.returns = 0
        self._settled_to = 0  # every number up to this one was covered by a multiple confirm
        self._mandatory: deque[tuple[int, bytes, bytes, bytes]] = deque()  # tag, method frame, properties, body

    def add(
        self, waiter: PublishWaiter | None, method: bytes, raw_properties: bytes, body: bytes, mandatory: bool
    ) -> int:
        """Number one publication."""
        tag = self.last_tag = self.last_tag + 1
        waiters = self.waiters
        waiters[tag] = waiter
        if mandatory:
            candidates = self._mandatory
            while candidates and candidates[0][0] not in waiters:
                candidates.popleft()
            candidates.append((tag, method, raw_properties, body))
        return tag

    def add_many(
        self,
        waiter: PublishWaiter,
        methods: Sequence[bytes],
        raw_properties: Sequence[bytes],
        bodies: Sequence[bytes],
        mandatory: bool,
    ) -> int:
        """Number as many publications, with one waiter for all of them; the first number."""
        first = self.last_tag + 1
        tags = range(first, first + len(bodies))
        waiters = self.waiters
        waiters.update(dict.fromkeys(tags, waiter))
        if mandatory:
            candidates = self._mandatory
            while candidates and candidates[0][0] not in waiters:
                candidates.popleft()
            candidates.extend(zip(tags, methods, raw_properties, bodies, strict=True))
        self.last_tag += len(bodies)
        return first

    def abandon(self, publish_tag: int) -> None:
        """This one is no longer awaited; it stays a candidate for returns until its confirm."""
        waiter = self.waiters.get(publish_tag)
        if waiter is not None:
            beside = getattr(waiter, "without_waiter", None)
            self.waiters[publish_tag] = None if beside is None else beside()

    def settle(self, wire_tag: int, multiple: bool, acked: bool) -> None:
        """A confirm came: basic.ack or basic.nack. Numbers that are not outstanding are ignored."""
        waiters = self.waiters
        publish_tag = wire_tag + self.offset
        if not multiple:
            waiter = waiters.pop(publish_tag, None)
            if waiter is not None:
                waiter.settle(publish_tag, acked)
            return
        last = publish_tag if 0 < wire_tag <= self.last_tag - self.offset else self.last_tag  # 0: all of them
        for tag in range(self._settled_to + 1, last + 1):
            waiter = waiters.pop(tag, None)
            if waiter is not None:
                waiter.settle(tag, acked)
        self._settled_to = max(self._settled_to, last)

    def returned(self, method: bytes, raw_properties: bytes, returned: Returned) -> bool:
        """A mandatory publication came back: hand it to whoever waits for its confirm. False when none matches."""
        body = returned.body
        weaker = None
        for candidate in self._mandatory:
            tag, its_method, its_properties, its_body = candidate
            if its_method == method and its_body == body and tag in self.waiters:
                if its_properties == raw_properties:
                    break
                if weaker is None:
                    weaker = candidate
        else:
            if weaker is None:
                return False
            candidate = weaker
        while self._mandatory.popleft() is not candidate:
            pass  # those before it were routed: returns come in order
        waiter = self.waiters[candidate[0]]
        if waiter is not None:
            waiter.returned(candidate[0], returned)
        return True

    def orphan(self) -> None:
        """The wire channel is gone, another will come: what is unsettled is orphaned, in the order of sending."""
        waiters, self.waiters = self.waiters, {}
        self.orphaned += len(waiters)
        self._renumber()
        for tag, waiter in waiters.items():
            if waiter is not None:
                waiter.orphaned(tag)

    def _renumber(self) -> None:
        """The next wire channel counts from 1 again, and confirms once confirm.select was sent."""
        self._mandatory.clear()
        self.offset = self._settled_to = self.last_tag
        self.confirming = False

    def fail(self, reason: errors.HarebellError) -> None:
        """The channel is closed: no confirm will come any more."""
        waiters, self.waiters = self.waiters, {}
        self.unanswered += len(waiters)
        self._renumber()
        told: set[int] = set()
        for waiter in waiters.values():
            if waiter is not None and id(waiter) not in told:
                told.add(id(waiter))
                waiter.fail(reason)


class Batch:
    """The confirms of many publications, counted; one for a whole publish_many.

    sent, settled  how many were published, and how many of these were answered
    failure        why the channel closed before all were
    """

    __slots__ = ("failure", "nacked", "orphans", "returned_count", "returns", "sent", "settled")

    def __init__(self) -> None:
        self.sent = 0
        self.settled = 0
        self.nacked: list[int] = []
        self.orphans: list[int] = []
        self.returns: list[Returned] = []
        self.returned_count = 0
        self.failure: errors.HarebellError | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.settled += 1
        if not acked:
            self.nacked.append(publish_tag)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returned_count += 1
        if len(self.returns) < MAX_KEPT_RETURNS:
            self.returns.append(returned)

    def orphaned(self, publish_tag: int) -> None:
        self.settled += 1
        self.orphans.append(publish_tag)

    def fail(self, reason: errors.HarebellError) -> None:
        self.failure = reason

    def raise_refused(self, *, one: bool = False) -> None:
        """PublishOrphaned, Nacked or Unroutable when any was not accepted; the text counts them.

        Unroutable carries a tuple of what came back, or with `one`, for a batch of one, just that.
        """
        came_back = f"{self.returned_count} of {self.sent} publications reached no queue"
        if self.orphans:
            refused = f"; the broker refused {len(self.nacked)}" if self.nacked else ""
            more = f"; {came_back}" if self.returned_count else ""
            raise errors.PublishOrphaned(
                f"the connection was lost before the answer to {len(self.orphans)} of {self.sent} publications, which "
                f"may or may not have arrived{refused}{more}",
                tuple(sorted([*self.nacked, *self.orphans])),
                tuple(self.orphans),
            )
        if self.nacked:
            more = f"; {came_back}" if self.returned_count else ""
            raise errors.Nacked(
                f"the broker refused {len(self.nacked)} of {self.sent} publications{more}", tuple(self.nacked)
            )
        if self.returned_count:
            first = self.returns[0]
            raise errors.Unroutable(
                f"{came_back}; the first went to exchange {first.exchange!r} with routing key {first.routing_key!r} "
                f"({first.reply_code} {first.reply_text}): bind a queue to it, or publish without mandatory",
                first if one else tuple(self.returns),
            )
