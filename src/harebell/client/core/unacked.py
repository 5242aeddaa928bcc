"""What was delivered on a channel and is not acknowledged yet, over every wire channel that it has had.

A broker numbers the deliveries of each wire channel from 1. A program sees one sequence instead: public tag =
`offset` + wire tag. When a wire channel is lost,

1. what the program was handed and did not acknowledge is orphaned: the broker delivers it again, and an
   acknowledgement of the old delivery can no longer reach it;
2. what only lay in a buffer is forgotten: it comes again too, and the program has not seen it;
3. `offset` becomes the highest tag that was handed out, so that the sequence goes on without a gap.

In a transaction, what was acknowledged since the last commit is remembered: a rollback makes it unacknowledged again,
and a loss orphans it, for the broker has undone it.

The table is exact: single and multiple acknowledgements may be mixed at will. This module knows no wire.
"""

from __future__ import annotations

from collections.abc import Iterable

from harebell import errors

__all__ = ["Deliveries"]


class Deliveries:
    """The unsettled deliveries of one channel.

    unacked   public tags that the broker waits for; the hot path adds and removes
    orphans   public tags that were handed out on a wire channel that is gone, and were never settled
    offset    public tag = offset + wire tag, now
    last_tag  the highest public tag that came
    orphaned  how many were ever orphaned
    """

    __slots__ = ("_settled_to", "_uncommitted", "last_tag", "offset", "orphaned", "orphans", "unacked")

    def __init__(self) -> None:
        self.unacked: set[int] = set()
        self.orphans: set[int] = set()
        self.offset = 0
        self.last_tag = 0
        self.orphaned = 0
        self._settled_to = 0  # nothing up to this one is in `unacked`
        self._uncommitted: set[int] | None = None  # outside of transactions

    def settle(self, tag: int, multiple: bool) -> tuple[bool, errors.HarebellError | None]:
        """(whether the acknowledgement goes to the broker, what to raise after that).

        tag       a public tag; with `multiple`, 0 is all of them
        multiple  it and everything before it

        A tag that this wire channel has not delivered goes to the broker: its answer says what is wrong with it.
        """
        if not multiple:
            if tag in self.unacked:
                self.unacked.remove(tag)
                if self._uncommitted is not None:
                    self._uncommitted.add(tag)
                return True, None
            if tag in self.orphans:
                self.orphans.remove(tag)
                return False, errors.AcknowledgeOrphans(tag, tag)
            return (True, None) if tag > self.offset or tag == 0 else (False, _settled_before(tag))
        up_to = tag or self.last_tag
        orphaned = [orphan for orphan in self.orphans if orphan <= up_to] if self.orphans else []
        if not orphaned:
            if 0 < up_to <= self.offset:
                return False, _settled_before(tag)
            self._drop(up_to)
            return True, None
        acked = [unacked for unacked in self.unacked if unacked <= up_to]
        self.orphans.difference_update(orphaned)
        self._drop(up_to)
        return bool(acked), errors.AcknowledgeOrphans(
            min(orphaned),
            max(orphaned),
            min(acked, default=0),
            max(acked, default=0),
            len(orphaned),
            len(acked),
        )

    def _drop(self, up_to: int) -> None:
        up_to, unacked = min(up_to, self.last_tag), self.unacked
        if self._uncommitted is not None:
            self._uncommitted.update(tag for tag in unacked if tag <= up_to)
        covered = range(self._settled_to + 1, up_to + 1)
        if len(covered) <= 4 * len(unacked):
            unacked.difference_update(covered)
        else:  # most were settled one by one, or the broker does not count
            unacked.difference_update([tag for tag in unacked if tag <= up_to])
        self._settled_to = max(self._settled_to, up_to)

    def begin(self) -> None:
        """A transaction begins: the first of the wire channel, or the next one after a commit."""
        self._uncommitted = set()

    def rolled_back(self) -> None:
        """What was acknowledged in the transaction waits for its acknowledgement again."""
        if self._uncommitted:
            self.unacked |= self._uncommitted
            self._settled_to = min(self._settled_to, min(self._uncommitted) - 1)
        self.begin()

    def invalidated(self, buffered: Iterable[int]) -> None:
        """The broker takes everything back on this wire channel (basic.recover): the old tags mean nothing to it.

        buffered  the tags among them that the program has not seen
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
            self._uncommitted = None
        while self.last_tag in unseen:
            self.last_tag -= 1
        self.offset = self._settled_to = self.last_tag


def _settled_before(tag: int) -> errors.HarebellError:
    return errors.LocalProtocolError(
        f"delivery {tag} was acknowledged or refused before, on a connection that is gone: settle each delivery once"
    )
