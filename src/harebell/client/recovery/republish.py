"""What the policies of a channel do to publications that were not accepted: publish them again, or set them aside.

With such a policy each publication is kept until it has its end (`Kept`, which stands before its waiter). Rules:

1. A publication keeps its tag, however often it is sent. Its waiter is told one end, after the last attempt.
2. What was orphaned is published again in its order, and before anything that is new: the program's publications wait.
3. What an error of the broker may be about (`outcomes`) is published again alone: if it is refused again, the
   others go through.
4. When an attempt may have arrived, no later attempt can make that undone: unless that is confirmed, the publication is
   orphaned, whatever becomes of it.
5. What was nacked is published again after a pause that grows, behind whatever was published meanwhile.
6. What is nacked again and again makes the channel open another wire channel: RabbitMQ 3.10 goes on nacking on a
   channel that published to a quorum queue while its leader died, and confirms the same on any other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heapify, heappop, heappush
from typing import Final

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.outcomes import address_of, fits, may_be_about, nacked, names_an_exchange, unroutable
from harebell.client.core.unconfirmed import PublishWaiter
from harebell.client.messages import NO_PROPERTIES, Message, OnNack, OnOrphan, Publication, Returned
from harebell.client.recovery.policy import Backoff
from harebell.client.recovery.requests import Requests
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.codec import MALFORMED
from harebell.protocol.v091.hot import MANDATORY

__all__ = ["Republisher"]

logger = logging.getLogger("harebell.client")

MOST_STRIKES: Final = 3  # errors of the broker that may be about one publication; behind them it is not sent again
CHUNK: Final = 256  # publications between two turns of the loop
NACKED: Final = Backoff(0.1, 10)  # seconds between attempts at one that is nacked
PATIENCE: Final = 6  # how often one is nacked until another wire channel is opened: for some 2 s
MOST_PATIENCE: Final = 12  # it grows by one each time that did not help: a full queue nacks on every channel
ANSWERS: Final = 10.0  # seconds that those under way have for their answers before the wire channel is closed


class Kept:
    """One publication that is kept, as the waiter for its confirms.

    tag       its public tag
    waiter    what waits for its end
    doubt     why an attempt may have arrived; None: none was orphaned
    strikes   how many errors of the broker may have been about it
    attempts  how often it was nacked on the present wire channel, the one with this `number`
    waiting   it is not on the wire: it waits to be published again
    """

    __slots__ = (
        "_came_back", "_republisher", "attempts", "body", "doubt", "exchange", "flags", "number", "raw_properties",
        "routing_key", "strikes", "tag", "unwanted", "waiter", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        republisher: Republisher,
        tag: int,
        waiter: PublishWaiter | None,
        exchange: str,
        routing_key: str,
        flags: int,
        raw_properties: bytes,
        body: bytes,
    ) -> None:
        self._republisher = republisher
        self.waiter = waiter
        self._came_back: Returned | None = None
        self.tag = tag
        self.exchange = exchange
        self.routing_key = routing_key
        self.flags = flags
        self.raw_properties = raw_properties
        self.body = body
        self.doubt: errors.HarebellError | None = None
        self.strikes = 0
        self.attempts = 0
        self.number = 0
        self.waiting = False
        self.unwanted = False  # nobody awaits it any more: it is not published again

    # -- as the waiter of one attempt ----------------------------------------------------------------------------------

    def settle(self, publish_tag: int, acked: bool) -> None:
        if acked and self._came_back is not None:
            self.tell_orphaned(unroutable(self.tag, self.address, self._came_back))
        elif acked:
            self.tell_settled(True)
        else:
            self._republisher.nacked(self)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        if self.doubt is not None:
            self._came_back = returned
        elif self.waiter is not None:
            self.waiter.returned(self.tag, returned)

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        if self.doubt is not None:
            self._republisher.refused(self, error)
            return
        self._republisher.over(self)
        if self.waiter is not None:
            self.waiter.refused(self.tag, error)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self._came_back = None
        self.doubt = reason
        if may_be_about(reason, self.exchange, self.routing_key):
            self.strikes += 1
        self._republisher.orphaned(self, reason)

    def without_waiter(self) -> Kept:
        self.unwanted = True
        self.waiter = getattr(self.waiter, "without_waiter", lambda: None)()
        return self

    def waits_for(self, waiter: object) -> bool:
        inner: object = self.waiter
        while inner is not None and inner is not waiter:
            inner = getattr(inner, "waiter", None)
        return inner is waiter

    # -- its end -------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return address_of(self.exchange, self.routing_key)

    def publication(self) -> Publication:
        """What was published, to be set aside."""
        message: Message | bytes = self.body
        if self.raw_properties != NO_PROPERTIES:
            try:
                message = Message(self.body, properties=Properties.decode(self.raw_properties))
            except MALFORMED:
                logger.error("publication %d is set aside without its properties, which are malformed: %r",
                             self.tag, self.raw_properties)  # fmt: skip
        return Publication(message, self.exchange, self.routing_key, bool(self.flags & MANDATORY))

    def tell_settled(self, acked: bool) -> None:
        self._republisher.over(self)
        if acked and self.attempts:
            self._republisher.went_through()
        if self.waiter is not None:
            self.waiter.settle(self.tag, acked)

    def tell_orphaned(self, reason: errors.HarebellError) -> None:
        self._republisher.over(self)
        if self.waiter is not None:
            self.waiter.orphaned(self.tag, reason)


class Republisher:
    """The publications of one channel that are kept.

    on_orphan, on_nack  what becomes of those without an answer, and of nacked ones
    parked              those that were set aside: (publish tag, publication)
    spawn               runs a task that ends with the connection
    renew               has the channel get another wire channel, unless that would cost more than publications
    """

    def __init__(
        self,
        requests: Requests,
        parked: deque[tuple[int, Publication]],
        spawn: Callable[[Coroutine[object, object, None]], None],
        renew: Callable[[], None],
    ) -> None:
        self.on_orphan: OnOrphan = "raise"
        self.on_nack: OnNack = "raise"
        self._requests = requests
        self._parked = parked
        self._spawn = spawn
        self._renew = renew
        self._number = 1  # of the present wire channel
        self._patience = PATIENCE
        self._stuck = False  # the present wire channel nacks again and again
        self._again: list[Kept] = []  # orphaned ones
        self._later: list[tuple[float, int, Kept]] = []  # a heap of nacked ones: when they are due, tag
        self._moved: dict[int, Kept] = {}  # by public tag: those that wait, or have another tag on the wire
        self._change: asyncio.Future[None] | None = None
        self._running = False

    def keep(
        self,
        publish_tag: int,
        waiter: PublishWaiter | None,
        exchange: str,
        routing_key: str,
        flags: int,
        raw_properties: bytes,
        body: bytes,
    ) -> PublishWaiter:
        return Kept(self, publish_tag, waiter, exchange, routing_key, flags, raw_properties, body)

    def waiting_for(self, waiter: object) -> list[int]:
        """The tags of those that wait to be published again, and that this waits for."""
        return [kept.tag for kept in self._moved.values() if kept.waiting and kept.waits_for(waiter)]

    def abandon(self, publish_tag: int) -> None:
        """This one is no longer awaited: it is not published again."""
        kept = self._moved.get(publish_tag)
        if kept is not None:
            kept.without_waiter()
            if kept.waiting:
                self._take_out(kept)
                self._end(kept, errors.ChannelClosed("its caller has given it up"))

    # -- the ends of attempts ------------------------------------------------------------------------------------------

    def orphaned(self, kept: Kept, reason: errors.HarebellError) -> None:
        """An attempt may or may not have arrived."""
        self._changed()
        if self.on_orphan != "retry" or kept.unwanted or kept.strikes >= MOST_STRIKES or not self._requests.reviving:
            self.give_up(kept, reason)
            return
        kept.waiting = True
        self._moved[kept.tag] = kept
        self._again.append(kept)

    def nacked(self, kept: Kept) -> None:
        """The broker has refused an attempt."""
        self._changed()
        if self.on_nack == "retry" and not kept.unwanted and self._requests.ended is None:
            if kept.number != self._number:
                kept.number, kept.attempts = self._number, 0
            kept.attempts += 1
            self._stuck = self._stuck or kept.attempts >= self._patience
            kept.waiting = True
            self._moved[kept.tag] = kept
            heappush(self._later, (self._loop.time() + NACKED.delay(kept.attempts), kept.tag, kept))
            self._start()
        elif kept.doubt is not None:
            self.give_up(kept, nacked(kept.tag, kept.address))
        else:
            if self.on_nack == "park" and not kept.unwanted:
                self._parked.append((kept.tag, kept.publication()))
            kept.tell_settled(False)

    def went_through(self) -> None:
        """One that was nacked is confirmed."""
        self._patience = PATIENCE
        self._stuck = False

    def refused(self, kept: Kept, error: errors.HarebellError) -> None:
        """It was sent alone, and the broker has closed the channel because of it; the others would fare no better."""
        self.give_up(kept, error)
        if names_an_exchange(error):
            for other in [other for other in self._again if other.strikes]:
                if fits(error, other.exchange, other.routing_key):
                    self._take_out(other)
                    self.give_up(other, error)

    def give_up(self, kept: Kept, reason: errors.HarebellError) -> None:
        """There is no other attempt at one that may have arrived."""
        if self.on_orphan == "park" and not kept.unwanted:
            self._parked.append((kept.tag, kept.publication()))
        kept.tell_orphaned(reason)

    def over(self, kept: Kept) -> None:
        """It is told its end."""
        if self._change is not None:
            self._changed()
        if self._moved:
            self._moved.pop(kept.tag, None)

    def end(self, reason: errors.HarebellError) -> None:
        """The channel is closed for good: nothing is published again."""
        waiting = [*self._again, *(kept for _, _, kept in self._later)]
        self._again.clear()
        self._later.clear()
        for kept in sorted(waiting, key=_tag_of):
            self._end(kept, reason)
        self._changed()

    def _end(self, kept: Kept, reason: errors.HarebellError) -> None:
        """It waits, and will not be published again."""
        kept.waiting = False
        if kept.doubt is not None:
            self.give_up(kept, reason)
        else:
            kept.tell_settled(False)  # each attempt at it was nacked

    def _take_out(self, kept: Kept) -> None:
        self._again[:] = [other for other in self._again if other is not kept]
        self._later[:] = [entry for entry in self._later if entry[2] is not kept]
        heapify(self._later)

    # -- publishing them again -----------------------------------------------------------------------------------------

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._requests.availability.loop

    def resume(self, core: ChannelCore) -> None:
        """This wire channel is about to be used: what was orphaned goes first."""
        self._number += 1
        self._stuck = False
        if self._again:
            self._again.sort(key=_tag_of)
            core.hold(True)
            self._start()
            self._changed()

    def _start(self) -> None:
        if not self._running:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._again or self._later:
                core = await self._usable()
                if core is None:
                    return
                if self._again:
                    await self._publish_orphans(core)
                elif self._stuck:
                    await self._try_another(core)
                else:
                    await self._publish_nacked(core)
        finally:
            self._running = False

    async def _usable(self) -> ChannelCore | None:
        """A wire channel that takes publications, once there is one. None: the channel is closed for good."""
        requests = self._requests
        while requests.ended is None:
            core, transport = requests.core, requests.transport
            if core.reason is not None or not core.ready:
                await requests.availability.change()
            elif transport.writing_paused or transport.blocked is not None or not core.flows:
                await transport.change()
            else:
                return core
        return None

    async def _publish_orphans(self, core: ChannelCore) -> None:
        """As many as the transport takes now, in their order; then the program's own go on."""
        transport, again = self._requests.transport, self._again
        alone = False
        for _ in range(CHUNK):
            alone = bool(again) and again[0].strikes > 0
            if not again or transport.writing_paused or (alone and core.publishes.waiters):
                break
            self._publish(core, again.pop(0))
            if alone:
                break
        transport.expecting()
        transport.flush_now()
        if alone:
            while core.publishes.waiters and core.reason is None:
                await self._wait(None)
        elif again:
            await asyncio.sleep(0)
        if not self._again and core.reason is None:
            core.hold(False)

    async def _publish_nacked(self, core: ChannelCore) -> None:
        """Those that are due."""
        later, now = self._later, self._loop.time()
        while later and later[0][0] <= now:
            self._publish(core, heappop(later)[2])
        transport = self._requests.transport
        transport.expecting()
        transport.flush()
        if later:
            await self._wait(later[0][0] - now)

    async def _try_another(self, core: ChannelCore) -> None:
        """Ask for another wire channel once those under way have their answers; nothing new is sent meanwhile."""
        core.hold(True)
        until = self._loop.time() + ANSWERS
        while core.publishes.waiters and core.reason is None and self._loop.time() < until:
            await self._wait(until - self._loop.time())
        if core.reason is not None:
            return
        core.hold(False)
        if self._stuck:  # none went through meanwhile
            self._stuck = False
            self._number += 1  # they are counted anew, also where it stays the same wire channel
            self._patience = min(self._patience + 1, MOST_PATIENCE)
            if not core.publishes.waiters or self.on_orphan == "retry":
                self._renew()

    def _publish(self, core: ChannelCore, kept: Kept) -> None:
        kept.waiting = False
        if not core.publishes.confirming:  # the feature "confirms" is taken out: there would be no answer
            self._end(kept, kept.doubt or nacked(kept.tag, kept.address))
            return
        try:
            core.publish_again(kept.raw_properties, kept.body, kept.exchange, kept.routing_key, kept.flags, kept)
        except errors.LocalProtocolError as error:  # this broker takes shorter frames than the last one
            self._end(kept, error)

    async def _wait(self, seconds: float | None) -> None:
        """Until one of those under way has its end, or another wire channel is there; at most so long."""
        self._change = change = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._changed)
        try:
            await change
        finally:
            if timer is not None:
                timer.cancel()

    def _changed(self) -> None:
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)


def _tag_of(kept: Kept) -> int:
    return kept.tag
