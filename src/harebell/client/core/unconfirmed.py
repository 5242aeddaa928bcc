"""What was published on a channel and has no answer yet, over every wire channel that it has had.

A broker numbers the publications of each wire channel from 1, beginning with the first behind confirm.select; so does
this table, whether the answer comes early, late or never. A program sees one sequence: public tag = `offset` + the
broker's number. A confirm settles one number, or all up to it; the work is proportional to the
numbers it settles.

The law: whoever waits for a publication is told one end of it, once. `settle`: the broker's confirm, and before it
`returned`, where the publication came back. Without a confirm, when the wire channel ends for whatever reason,
`end` tells: `refused`, where the broker ended it because of this one (`outcomes` says when that is known), else
`orphaned`: it was written, and may or may not have arrived. `end` is the only place that ends publications.

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

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from harebell import errors
from harebell.client.core.outcomes import Failures, blames_publishing, cut_by, suspects
from harebell.client.core.slots import copy_of
from harebell.client.messages import Returned

__all__ = ["Batch", "PublishWaiter", "Publishes"]

MAX_KEPT_RETURNS: Final = 1000  # of one batch: the error text counts all, the record keeps the first
FEWEST_RUNS: Final = 64  # addresses that are kept before any are forgotten


class PublishWaiter(Protocol):
    """Waits for the end of a publication: it is told one of `settle`, `refused` and `orphaned`, once.

    returned  it came back; its confirm follows
    refused   the broker has closed the channel because of it: it has not arrived
    orphaned  it may or may not have arrived; `reason` is what has ended its channel
    """

    def settle(self, publish_tag: int, acked: bool) -> None: ...
    def returned(self, publish_tag: int, returned: Returned) -> None: ...
    def refused(self, publish_tag: int, error: errors.HarebellError) -> None: ...
    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None: ...


class Publishes:
    """The unsettled publications of one channel; `confirming`: confirm.select was sent.

    method    the method frame of the last publication
    nacked, orphaned, refused, returns  how many were nacked, may or may not have arrived, were refused with the channel
                                        closed, came back
    """

    __slots__ = (
        "_mandatory", "_runs", "_runs_limit", "_settled_to", "confirming", "last_tag", "method", "nacked", "offset",
        "orphaned", "refused", "returns", "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.confirming = False
        self.last_tag = 0
        self.offset = 0
        self.waiters: dict[int, PublishWaiter | None] = {}  # None: nobody waits any more
        self.nacked = self.orphaned = self.refused = self.returns = 0
        self._settled_to = 0  # every number up to this one was covered by a multiple confirm
        self._mandatory: deque[tuple[int, bytes, bytes, bytes]] = deque()  # tag, method frame, properties, body
        # Whose fault the end of a channel is, their addresses say. One entry for many: most publications of a program
        # have the address of the one before them.
        self._runs: list[tuple[int, bytes]] = []  # (first tag, method frame of all up to the next run)
        self._runs_limit = FEWEST_RUNS
        self.method = b""

    def add(
        self, waiter: PublishWaiter | None, method: bytes, raw_properties: bytes, body: bytes, comes_back: int
    ) -> int:
        """Number one publication. `comes_back`: whether the broker returns what it cannot deliver.

        It is numbered when `last_tag` says so, which is last: `forget_unnumbered` undoes what an interrupt left half
        done.
        """
        tag = self.last_tag + 1
        waiters = self.waiters
        waiters[tag] = waiter
        if method is not self.method:
            self._begin_run(tag, method)
        if comes_back:
            candidates = self._mandatory
            while candidates and candidates[0][0] not in waiters:
                candidates.popleft()
            candidates.append((tag, method, raw_properties, body))
        self.last_tag = tag
        return tag

    def forget_unnumbered(self) -> None:
        """Undo what is known of a publication behind the last tag."""
        last, runs, candidates = self.last_tag, self._runs, self._mandatory
        self.waiters.pop(last + 1, None)
        while candidates and candidates[-1][0] > last:
            candidates.pop()
        while runs and runs[-1][0] > last:
            runs.pop()
        self.method = runs[-1][1] if runs else b""

    def add_many(
        self,
        waiter: PublishWaiter,
        methods: Sequence[bytes],
        raw_properties: Sequence[bytes],
        bodies: Sequence[bytes],
        comes_back: int,
    ) -> int:
        """Number as many publications, with one waiter for all of them; the first number."""
        first = self.last_tag + 1
        tags = range(first, first + len(bodies))
        waiters = self.waiters
        waiters.update(dict.fromkeys(tags, waiter))
        if methods and methods.count(methods[0]) == len(methods):
            if methods[0] is not self.method:
                self._begin_run(first, methods[0])
        else:
            for tag, method in zip(tags, methods, strict=True):
                if method is not self.method:
                    self._begin_run(tag, method)
        if comes_back:
            candidates = self._mandatory
            while candidates and candidates[0][0] not in waiters:
                candidates.popleft()
            candidates.extend(zip(tags, methods, raw_properties, bodies, strict=True))
        self.last_tag += len(bodies)
        return first

    def _begin_run(self, tag: int, method: bytes) -> None:
        """The address is another one from this publication on."""
        runs = self._runs
        if len(runs) >= self._runs_limit:
            oldest = next(iter(self.waiters))  # there is at least the one that begins the run
            runs[:] = runs[max(bisect_right(runs, oldest, key=_first) - 1, 0) :]
            self._runs_limit = max(2 * len(runs), FEWEST_RUNS)
        runs.append((tag, method))
        self.method = method

    def abandon(self, publish_tag: int) -> None:
        """This one is no longer awaited; it stays a candidate for returns until its confirm."""
        waiter = self.waiters.get(publish_tag)
        if waiter is not None:
            beside = getattr(waiter, "without_waiter", None)
            self.waiters[publish_tag] = None if beside is None else beside()

    def waiting_for(self, waiter: object) -> Iterator[int]:
        """The public tags of the publications that this waits for, itself or behind what stands before it."""
        for tag, stands in self.waiters.items():
            inner: object = stands
            while inner is not None and inner is not waiter:
                inner = getattr(inner, "waiter", None)
            if inner is waiter:
                yield getattr(stands, "tag", tag)

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

    def returned(self, address: bytes, raw_properties: bytes, returned: Returned) -> bool:
        """A publication came back: hand it to whoever waits for its confirm. False when none matches.

        address  the beginning of its method frame, without the flags
        """
        body = returned.body
        weaker = None
        for candidate in self._mandatory:
            tag, its_method, its_properties, its_body = candidate
            if its_body == body and its_method.startswith(address) and tag in self.waiters:
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
        tag = candidate[0]
        waiter = self.waiters[tag]
        if waiter is not None:
            waiter.returned(tag, returned)
            self.waiters[tag] = _CameBack(waiter)
        return True

    def end(self, reason: errors.HarebellError) -> None:
        """The wire channel has ended: tell what is unsettled its end, in the order of sending."""
        waiters, self.waiters = self.waiters, {}
        blamed: int | None = None
        if waiters and blames_publishing(reason) and isinstance(reason, errors.ChannelError):
            unanswered = [tag for tag, waiter in waiters.items() if not isinstance(waiter, _CameBack)]
            suspected = [*islice(suspects(reason, unanswered, self._runs), 2)]
            if not suspected:  # the broker calls the exchange by another name
                suspected = unanswered[:2]
            if len(suspected) == 1:
                blamed = suspected[0]
                self.refused += 1
        self.orphaned += len(waiters) - (blamed is not None)
        self._renumber()
        for tag, waiter in waiters.items():
            if waiter is None:
                continue
            if tag == blamed:
                waiter.refused(tag, copy_of(reason))
            else:
                waiter.orphaned(tag, reason)

    def _renumber(self) -> None:
        """The next wire channel counts from 1 again, and confirms once confirm.select was sent."""
        self._mandatory.clear()
        self._runs.clear()
        self.method = b""
        self.offset = self._settled_to = self.last_tag
        self.confirming = False


class _CameBack:
    """The waiter of a publication that has come back: its end is known, with or without the confirm that follows."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: PublishWaiter) -> None:
        self.waiter: PublishWaiter | None = waiter

    def settle(self, publish_tag: int, acked: bool) -> None:
        if self.waiter is not None:
            self.waiter.settle(publish_tag, acked)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        """Once is enough."""

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.settle(publish_tag, True)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.settle(publish_tag, True)

    def without_waiter(self) -> _CameBack:
        beside = getattr(self.waiter, "without_waiter", None)
        self.waiter = None if beside is None else beside()
        return self


def _first(run: tuple[int, bytes]) -> int:
    return run[0]


class Batch:
    """The ends of many publications, counted; one for a whole publish_many.

    sent, settled      how many were published, and how many of these have their end
    unnumbered         how many were published before confirm.select: these have no tag, and no end is told
    nacked, orphans    the tags of those
    returns, refusals  what came back, and the broker's errors, by tag
    reason             why those are orphans
    parks, parks_nacked  orphaned ones, nacked ones are set aside: they are no failure
    next_tag           the tag that the next one has when no other publication of the channel comes between; -1: unknown
    """

    __slots__ = (
        "_runs", "nacked", "next_tag", "orphans", "parks", "parks_nacked", "reason", "refusals", "returned_count",
        "returns", "sent", "settled", "unnumbered",
    )  # fmt: skip

    def __init__(self, *, parks: bool = False, parks_nacked: bool = False) -> None:
        self.sent = 0
        self.settled = 0
        self.unnumbered = 0
        self.next_tag = -1
        self.nacked: list[int] = []
        self.orphans: list[int] = []
        self.returns: dict[int, Returned | None] = {}
        self.returned_count = 0
        self.refusals: dict[int, errors.HarebellError] = {}
        self.reason: errors.HarebellError | None = None
        self.parks = parks
        self.parks_nacked = parks_nacked
        self._runs: list[tuple[int, int]] = []  # (first tag, its position): all up to the next run follow it

    @property
    def under_way(self) -> int:
        """How many are without their end."""
        return self.sent - self.unnumbered - self.settled

    def numbered(self, publish_tag: int, position: int) -> None:
        """From this one on, publish tags and positions go up together."""
        self._runs.append((publish_tag, position))

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.settled += 1
        if not acked:
            self.nacked.append(publish_tag)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returned_count += 1
        self.returns[publish_tag] = returned if self.returned_count <= MAX_KEPT_RETURNS else None

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.settled += 1
        self.refusals[publish_tag] = error

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.settled += 1
        self.orphans.append(publish_tag)
        self.reason = reason

    def failures(self, unanswered: Iterable[int] = ()) -> Failures:
        """What was not accepted, by position.

        unanswered  the tags of others that are given up, and may or may not arrive
        """
        position = self._position
        orphans = [] if self.parks else self.orphans
        return Failures(
            map(position, [] if self.parks_nacked else self.nacked),
            map(position, orphans),
            map(position, unanswered),
            {position(tag): returned for tag, returned in self.returns.items()},
            {position(tag): error for tag, error in self.refusals.items()},
            self.reason,
        )

    def _position(self, publish_tag: int) -> int:
        first, position = self._runs[bisect_right(self._runs, publish_tag, key=_first_tag) - 1]
        return position + publish_tag - first

    def raise_refused(self, *, one: bool = False) -> None:
        """The error of what was not accepted, if anything was not; the text counts all.

        PublishOrphaned, Nacked, the broker's error, or Unroutable: the first of these that there is. Its `failures` are
        those of all. Unroutable carries a tuple of what came back, or with `one`, for a batch of one, just that.
        """
        error = self.error(one=one)
        if error is not None:
            error.failures = self.failures()
            raise error

    def error(
        self, *, one: bool = False, unanswered: Sequence[int] = (), late: str = ""
    ) -> errors.HarebellError | None:
        """That error.

        unanswered, late  the tags of those that are given up because the caller's time is over, and what to say then
        """
        nacked = [] if self.parks_nacked else self.nacked
        came_back = f"{self.returned_count} of {self.sent} publications reached no queue"
        more = "".join(
            f"; {text}"
            for number, text in (
                (len(nacked), f"the broker refused {len(nacked)}"),
                (len(self.refusals), f"the broker refused {len(self.refusals)} and closed the channel"),
                (self.returned_count, came_back),
            )
            if number
        )
        orphans = [*([] if self.parks else self.orphans), *unanswered]
        if orphans:
            if late:
                kind: type[errors.PublishOrphaned] = errors.ConfirmTimeout
                text = f"{late}; {len(orphans)} of {self.sent} publications may or may not arrive{more}"
            else:
                reason, kind = self.reason, errors.PublishOrphaned
                text = (
                    f"{'it was cut' if reason is None else cut_by(reason)} before the answer to {len(orphans)} of "
                    f"{self.sent} publications, which may or may not have arrived{more}"
                )
            error: errors.HarebellError = kind(text, tuple(sorted([*nacked, *self.refusals, *orphans])), tuple(orphans))
            error.__cause__ = None if self.reason is None else copy_of(self.reason)
            return error
        if self.refusals:
            return copy_of(next(iter(self.refusals.values())))
        if nacked:
            more = f"; {came_back}" if self.returned_count else ""
            return errors.Nacked(f"the broker refused {len(nacked)} of {self.sent} publications{more}", tuple(nacked))
        if self.returned_count:
            first = next(iter(self.returns.values()))
            assert first is not None  # the first ones are kept
            kept = tuple(returned for returned in self.returns.values() if returned is not None)
            return errors.Unroutable(
                f"{came_back}; the first went to exchange {first.exchange!r} with routing key {first.routing_key!r} "
                f"({first.reply_code} {first.reply_text}): bind a queue to it, or publish without mandatory",
                first if one else kept,
            )
        return None


def _first_tag(run: tuple[int, int]) -> int:
    return run[0]
