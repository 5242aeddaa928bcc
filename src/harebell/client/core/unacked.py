"""What was delivered on a channel and is not acknowledged yet, over every wire channel that it has had.

A broker numbers the deliveries of each wire channel from 1. A program sees one sequence instead: public tag =
`offset` + wire tag. When a wire channel is lost,

1. what the program was handed and did not acknowledge is orphaned: the broker delivers it again, and an
   acknowledgement of the old delivery can no longer reach it;
2. what only lay in a buffer is forgotten: it comes again too, and the program has not seen it;
3. `offset` becomes the highest tag that was handed out, so that the sequence goes on without a gap.

No acknowledgement covers what the program has not seen: one with `multiple` is sent in parts, around deliveries that
lie in a buffer, and never says "all", which would cover those that are still on their way. A second acknowledgement of
a delivery is not sent, because the broker would close the channel for it: it raises an error that names the first.

In a transaction, what was acknowledged since the last commit is remembered: a rollback makes it unacknowledged again,
and a loss orphans it, for the broker has undone it.

The table is exact: single and multiple acknowledgements may be mixed at will. This module knows no wire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol

from harebell import errors

__all__ = ["Deliveries", "Sent", "Unseen"]

MAX_REMEMBERED: Final = 10_000  # refused deliveries, for the text of an error

Sent = Sequence[tuple[int, bool]]
"""The acknowledgements for the broker: (public tag, whether it covers all before it)."""


class Unseen(Protocol):
    """The tags of the deliveries that lie in buffers, where the program has not seen them."""

    def first(self) -> int:
        """The lowest of them; 0 for none."""

    def __iter__(self) -> Iterator[int]: ...


class Deliveries:
    """The unsettled deliveries of one channel.

    unacked   public tags of what the program was handed and the broker waits for; the hot path adds and removes. What a
              thread took from a buffer to hand it out later is in here, too
    orphans   public tags that were handed out on a wire channel that is gone, and were never settled
    released  those of them that need no settling, for they do not come again: a stream's
    offset    public tag = offset + wire tag, now
    last_tag  the highest public tag that came
    orphaned  how many were ever orphaned
    ended     the channel is closed for good: nothing can be settled any more
    """

    __slots__ = (
        "_forgotten", "_refused", "_settled_to", "_uncommitted", "ended", "last_tag", "offset", "orphaned", "orphans",
        "released", "unacked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.unacked: set[int] = set()
        self.orphans: set[int] = set()
        self.released: set[int] = set()
        self.offset = 0
        self.last_tag = 0
        self.orphaned = 0
        self.ended = False
        self._settled_to = 0  # nothing up to this one is in `unacked`
        self._uncommitted: set[int] | None = None  # outside of transactions
        self._refused: dict[int, str] = {}  # how those were settled that were not acknowledged
        self._forgotten = False  # some of these are not remembered any more

    def settle(self, tag: int, multiple: bool, how: str, unseen: Unseen) -> tuple[Sent, errors.HarebellError | None]:
        """(what goes to the broker, what to raise after that).

        tag       a public tag; with `multiple`, 0 is the last one that the program has seen
        multiple  it and everything before it that the program has seen
        how       the program's call, for the text of an error
        """
        if multiple:
            return self._settle_all(tag, how, unseen)
        if tag in self.unacked:
            self.unacked.remove(tag)
            self._remember((tag,), how)
            return ((tag, False),), None
        if tag in self.orphans:
            self.orphans.remove(tag)
            return (), errors.AcknowledgeOrphans(tag, tag)
        if tag in self.released:
            self.released.remove(tag)
            return (), None
        return (), self._refused_locally(tag, how, unseen)

    def _settle_all(self, tag: int, how: str, unseen: Unseen) -> tuple[Sent, errors.HarebellError | None]:
        if not 0 <= tag <= self.last_tag:
            return (), self._refused_locally(tag, how, unseen)
        up_to = tag or self.last_tag
        unacked, released = self.unacked, self.released
        if released:
            self.released = {left for left in released if left > up_to}
        orphaned = [orphan for orphan in self.orphans if orphan <= up_to] if self.orphans else []
        first = unseen.first()
        if not orphaned and up_to in unacked and not 0 < first <= up_to and how == "ack":  # the common case
            self._drop(up_to)
            return ((up_to, True),), None
        hidden = set(unseen) if 0 < first <= up_to else ()
        covered = sorted(seen for seen in unacked if seen <= up_to and seen not in hidden)
        if not covered and not orphaned:
            done = not tag or len(self.released) < len(released)
            return (), None if done else self._refused_locally(tag, how, unseen)
        unacked.difference_update(covered)
        self._remember(covered, how)
        before = [seen for seen in covered if not 0 < first < seen]
        sent = [(before[-1], True)] if before else []
        sent += [(seen, False) for seen in covered[len(before) :]]
        if not orphaned:
            return sent, None
        self.orphans.difference_update(orphaned)
        return sent, errors.AcknowledgeOrphans(
            min(orphaned),
            max(orphaned),
            min(covered, default=0),
            max(covered, default=0),
            len(orphaned),
            len(covered),
        )

    def _drop(self, up_to: int) -> None:
        unacked = self.unacked
        if self._uncommitted is not None:
            self._uncommitted.update(tag for tag in unacked if tag <= up_to)
        covered = range(self._settled_to + 1, up_to + 1)
        if len(covered) <= 4 * len(unacked):
            unacked.difference_update(covered)
        else:  # most were settled one by one, or the broker does not count
            unacked.difference_update([tag for tag in unacked if tag <= up_to])
        self._settled_to = max(self._settled_to, up_to)

    def _remember(self, tags: Sequence[int], how: str) -> None:
        """These are settled now."""
        if self._uncommitted is not None:
            self._uncommitted.update(tags)
        if how != "ack":
            refused = self._refused
            for tag in tags:
                refused[tag] = how
            while len(refused) > MAX_REMEMBERED:
                del refused[next(iter(refused))]
                self._forgotten = True

    def _refused_locally(self, tag: int, how: str, unseen: Unseen) -> errors.HarebellError:
        """Why this one cannot be settled: it was settled before, or the program has never got it."""
        if not 0 < tag <= self.last_tag:
            return errors.LocalProtocolError(
                f"{how} of delivery {tag}, which never came: the last delivery of this channel is {self.last_tag}"
            )
        if tag in set(unseen):
            return errors.LocalProtocolError(
                f"{how} of delivery {tag}, which is in the buffer of a consumer: take it from there first"
            )
        first = self._refused.get(tag, "" if self._forgotten else "ack")
        where = ", on a connection that is gone" if tag <= self.offset else ""
        return errors.LocalProtocolError(
            f"{how} of delivery {tag}, which was settled before{f' ({first})' if first else ''}{where}: settle each "
            "delivery once"
        )

    def begin(self) -> None:
        """A transaction begins: the first of the wire channel, or the next one after a commit."""
        self._uncommitted = set()

    def rolled_back(self) -> None:
        """What was acknowledged in the transaction waits for its acknowledgement again."""
        uncommitted = self._uncommitted or ()
        self.begin()
        self.unsettle(uncommitted)

    def unsettle(self, tags: Collection[int]) -> None:
        """These wait for their acknowledgement again: the broker has undone it, or it was not sent."""
        if tags:
            self.unacked.update(tags)
            self._settled_to = min(self._settled_to, min(tags) - 1)
            for tag in tags:
                self._refused.pop(tag, None)
            if self._uncommitted:
                self._uncommitted.difference_update(tags)

    def gave_back(self, tag: int) -> None:
        """The client has put it back into its queue by itself: the program has not got it."""
        self.unacked.discard(tag)

    def release(self, tags: Iterable[int]) -> None:
        """These were handed out, and do not come again when the wire channel is lost: settling them does nothing."""
        released = self.unacked.intersection(tags)
        self.unacked -= released
        self.released |= released

    def invalidated(self, buffered: Iterable[int]) -> None:
        """The broker takes everything back on this wire channel (basic.recover): the old tags mean nothing to it.

        buffered  tags that the program has not seen
        """
        orphans = self.unacked.difference(buffered)
        self.orphaned += len(orphans)
        self.orphans |= orphans
        self.unacked.clear()

    def lost(self, buffered: Iterable[int]) -> None:
        """The wire channel is gone; `buffered` are the tags that the program has not seen, and will not."""
        unseen = set(buffered)
        self.invalidated(unseen)
        if self._uncommitted is not None:
            self.orphaned += len(self._uncommitted)
            self.orphans |= self._uncommitted
            for tag in self._uncommitted:
                self._refused.pop(tag, None)
            self._uncommitted = None
        while self.last_tag in unseen:
            self.last_tag -= 1
        self.offset = self._settled_to = self.last_tag

    def end(self, buffered: Iterable[int]) -> None:
        """The channel is closed for good, and the broker delivers again what was not acknowledged."""
        self.invalidated(buffered)
        self.ended = True
