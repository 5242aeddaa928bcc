"""Deliveries of a session with numbers one behind the other, kept together: they cost little, one by one.

Where messages are acquired, the messages and their places in the queue are kept until they are settled (`Delivered`);
in window mode, who gets how much credit back for the completion of each (`Window`). A part that is taken out of a run
is a run of its own. Nearly always all of a run are of one subscription; where subscriptions take turns they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, Protocol, TypeAlias, cast

from harebell.broker.message import Given
from harebell.broker.queues.base import Back, Queue
from harebell.protocol.v010.runs import MOST_IN_RUN, Run, Runs

__all__ = ["Account", "Delivered", "Origin", "Taken", "Taker", "Unsettled", "Window", "Windows"]

Taken: TypeAlias = "Given | None"
"""What a queue gave; None: it stays there."""

_GONE: Final = cast("Given", object())  # in the place of a message that was taken out


class Taker(Protocol):
    """The subscription of deliveries. `acked` counts those that were acknowledged; `no_ack`: none is waited for."""

    acked: int
    no_ack: bool
    cancelled: bool

    def completed(self, count: int, size: int, epoch: int) -> None:
        """Give the credit of complete transfers back."""

    def watch_acks(self) -> None:
        """Notify queues of each acknowledgement."""


Origin: TypeAlias = "tuple[Queue, Taker]"
"""Where a delivery comes from, and who got it: one object for all deliveries of a subscription."""


class Delivered(Run):
    """Deliveries that are acquired and not settled.

    origin     where they come from; `origins` of each, where that differs
    positions  their places in their queues
    messages   what the queues gave, to be returned to them; None: it stays in the queue
    """

    __slots__ = ("_taken_first", "messages", "origin", "origins", "positions")

    def __init__(
        self,
        first: int,
        origin: Origin,
        positions: Sequence[int],
        messages: list[Taken],
        origins: list[Origin] | None = None,
    ) -> None:
        super().__init__(first, len(messages))
        self.origin = origin
        self.positions = positions
        self.messages = messages
        self.origins = origins
        self._taken_first = 0  # so many at the beginning have been taken out; the others are there, if these are `left`

    def __len__(self) -> int:
        return self.left

    def extend(
        self, origin: Origin, positions: Sequence[int], messages: list[Taken], origins: list[Origin] | None
    ) -> None:
        count, own = len(messages), self.positions
        if self.origins is not None:
            self.origins += repeat(origin, count) if origins is None else origins
        elif origins is not None or origin is not self.origin:
            own_origins = repeat(self.origin, len(self.messages))
            self.origins = [*own_origins, *(repeat(origin, count) if origins is None else origins)]
        if isinstance(own, list):
            own += positions
        elif isinstance(own, range) and isinstance(positions, range) and own.stop == positions.start:
            self.positions = range(own.start, positions.stop)
        else:
            self.positions = [*own, *positions]
        self.messages += messages
        self.left += count
        self.stop += count

    def take(self, low: int, high: int) -> list[Delivered]:
        """Take out the deliveries with the numbers from `low` to `high`, as far as they are still there."""
        at, end = low - self.first, high - self.first + 1
        messages = self.messages
        if at >= self._taken_first and self.left == len(messages) - self._taken_first:
            return [self._part(at, end)]
        found = []
        while at < end:
            if messages[at] is _GONE:
                at += 1
                continue
            stop = at + 1
            while stop < end and messages[stop] is not _GONE:
                stop += 1
            found.append(self._part(at, stop))
            at = stop
        return found

    def _part(self, at: int, end: int) -> Delivered:
        """Take out the deliveries at these places, all of which are there."""
        part = self._copy(at, end)
        self.left -= end - at
        if self.left:
            self.messages[at:end] = repeat(_GONE, end - at)
            if at == self._taken_first:
                self._taken_first = end
        return part

    def _copy(self, at: int, end: int) -> Delivered:
        origins = None if self.origins is None else self.origins[at:end]
        origin = self.origin if origins is None else origins[0]
        return Delivered(self.first + at, origin, self.positions[at:end], self.messages[at:end], origins)

    def put_back(self, part: Delivered) -> None:
        """Put back what was taken out of this run."""
        at = part.first - self.first
        self.messages[at : at + len(part.messages)] = part.messages
        self.left += part.left
        self._taken_first = min(self._taken_first, at)

    # -- of a run that is whole --------------------------------------------------------------------------------------

    def cut(self, count: int) -> Iterator[Delivered]:
        """The run in pieces of that many deliveries."""
        for at in range(0, len(self.messages), count):
            yield self._copy(at, at + count)

    def groups(self) -> Iterable[tuple[Origin, Sequence[int], list[Taken]]]:
        """The deliveries by their origin: their places, and the messages."""
        if self.origins is None:
            return ((self.origin, self.positions, self.messages),)
        found: dict[Origin, tuple[list[int], list[Taken]]] = {}
        for origin, position, message in zip(self.origins, self.positions, self.messages, strict=True):
            group = found.get(origin)
            if group is None:
                group = found[origin] = ([], [])
            group[0].append(position)
            group[1].append(message)
        return [(origin, positions, messages) for origin, (positions, messages) in found.items()]

    def backs(self) -> Iterator[tuple[Queue, list[Back]]]:
        """What returns to each queue: places and messages."""
        for (queue, _), positions, messages in self.groups():
            if back := [
                (position, message)
                for position, message in zip(positions, messages, strict=True)
                if message is not None
            ]:
                yield queue, back

    # -- of any ------------------------------------------------------------------------------------------------------

    def numbers(self) -> Iterator[int]:
        """The numbers that are still there."""
        for number, message in enumerate(self.messages, self.first):
            if message is not _GONE:
                yield number

    def queues(self) -> Iterator[Queue]:
        """The queue of each delivery that is still there."""
        if self.origins is None:
            return repeat(self.origin[0], self.left)
        found = zip(self.origins, self.messages, strict=True)
        return iter([queue for (queue, _), message in found if message is not _GONE])

    def takers(self) -> list[tuple[int, Taker]]:
        """The number of each delivery that is still there, and who got it."""
        origins = repeat(self.origin, len(self.messages)) if self.origins is None else self.origins
        found = zip(origins, enumerate(self.messages, self.first), strict=True)
        return [(number, taker) for (_, taker), (number, message) in found if message is not _GONE]

    def queue_of(self, number: int) -> Queue | None:
        """The queue of a delivery; None when it is not there any more."""
        at = number - self.first
        if self.messages[at] is _GONE:
            return None
        return (self.origin if self.origins is None else self.origins[at])[0]


class Unsettled(Runs[Delivered]):
    """The deliveries of a session that are acquired and not settled."""

    __slots__ = ()

    def delivered(
        self,
        first: int,
        origin: Origin,
        positions: Sequence[int],
        messages: list[Taken],
        origins: list[Origin] | None = None,
    ) -> None:
        """Add deliveries with the numbers from `first` on, the highest so far; `origins` of each, if they differ."""
        last, count = self.last, len(messages)
        if last is not None and last.stop == first and first - last.first + count <= MOST_IN_RUN:
            last.extend(origin, positions, messages, origins)
            self.count += count
        else:
            self.append(Delivered(first, origin, positions, messages, origins))

    def take(self, low: int, high: int) -> list[Delivered]:
        """Take out the deliveries with the numbers from `low` to `high`."""
        found: list[Delivered] = []
        for run, first, last in self.between(low, high):
            found += run.take(first, last)
        return found

    def shares(self, ranges: Iterable[tuple[int, int]], most: int) -> Iterator[list[Delivered]]:
        """Take out the deliveries in these ranges, which are sorted and do not overlap, about `most` at a time."""
        share: list[Delivered] = []
        size = 0
        for low, high in ranges:
            while low <= high:
                reached = self.reach(low, high, most - size)
                for part in self.take(low, reached):
                    share.append(part)
                    size += part.left
                low = reached + 1
                if size >= most:
                    yield share
                    share, size = [], 0
        if share:
            yield share

    def put_back(self, part: Delivered) -> None:
        """Put back what was taken out."""
        run = self.covering(part.first)
        if run is None:
            self.insert(part)
        else:
            run.put_back(part)
            self.count += part.left

    def numbers(self) -> Iterator[int]:
        for run in self:
            yield from run.numbers()

    def ranges_of(self, queue: Queue) -> list[tuple[int, int]]:
        """The numbers of the deliveries from that queue, as sorted pairs."""
        found: list[tuple[int, int]] = []
        for run in self:
            if run.origins is None:
                if run.origin[0] is queue:
                    found.append((run.first, run.stop - 1))
            else:
                own = enumerate(run.origins, run.first)
                found += [(number, number) for number, origin in own if origin[0] is queue]
        return found

    def queue_of(self, number: int) -> Queue | None:
        """The queue of the delivery with that number; None when there is none."""
        run = self.covering(number)
        return None if run is None else run.queue_of(number)


Account: TypeAlias = "tuple[Taker, int]"
"""Who gets credit back for a transfer: the subscription, and its epoch when that was sent. One object for an epoch."""


class Window(Run):
    """Transfers whose completion gives credit back.

    account  whose; `accounts` of each, where that differs
    costs    what each costs in bytes; None: nothing
    """

    __slots__ = ("account", "accounts", "costs")

    def __init__(
        self, first: int, count: int, account: Account, costs: list[int] | None, accounts: list[Account] | None
    ) -> None:
        super().__init__(first, count)
        self.account = account
        self.accounts = accounts
        self.costs = costs

    def extend(self, count: int, account: Account, costs: list[int] | None, accounts: list[Account] | None) -> None:
        before = self.stop - self.first
        if self.accounts is not None:
            self.accounts += repeat(account, count) if accounts is None else accounts
        elif accounts is not None or account is not self.account:
            self.accounts = [*repeat(self.account, before), *(repeat(account, count) if accounts is None else accounts)]
        if self.costs is not None:
            self.costs += repeat(0, count) if costs is None else costs
        elif costs is not None:
            self.costs = [0] * before + costs
        self.left += count
        self.stop += count

    def complete(self, low: int, high: int) -> None:
        """Give back the credit of the transfers from `low` to `high`, which were not complete before."""
        at, end = low - self.first, high - self.first + 1
        self.left -= end - at
        costs = None if self.costs is None else self.costs[at:end]
        if self.accounts is None:
            taker, epoch = self.account
            taker.completed(end - at, 0 if costs is None else sum(costs), epoch)
            return
        counts: dict[Account, int] = {}
        for account in self.accounts[at:end]:
            counts[account] = counts.get(account, 0) + 1
        sizes: dict[Account, int] = {}
        for account, cost in zip(self.accounts[at:end], costs or (), strict=False):
            sizes[account] = sizes.get(account, 0) + cost
        for account, count in counts.items():
            account[0].completed(count, sizes.get(account, 0), account[1])


class Windows(Runs[Window]):
    """The transfers of a session whose completion gives credit back."""

    __slots__ = ()

    def sent(
        self,
        first: int,
        count: int,
        account: Account,
        costs: list[int] | None,
        accounts: list[Account] | None = None,
    ) -> None:
        """Add transfers with the numbers from `first` on, the highest so far; `accounts` of each, if they differ."""
        last = self.last
        if last is not None and last.stop == first and first - last.first + count <= MOST_IN_RUN:
            last.extend(count, account, costs, accounts)
            self.count += count
        else:
            self.append(Window(first, count, account, costs, accounts))

    def completed(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Give back the credit of transfers in these ranges, which are complete now."""
        for low, high in ranges:
            for window, first, last in self.between(low, high):
                window.complete(first, last)

    def completing(self, ranges: Iterable[tuple[int, int]], step: int) -> Iterator[None]:
        """As `completed`, in steps of about so many transfers."""
        for low, high in ranges:
            while low <= high:
                reached = self.reach(low, high, step)
                self.completed(((low, reached),))
                low = reached + 1
                yield
