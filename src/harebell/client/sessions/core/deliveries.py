"""The deliveries of a session: to which subscription a transfer belongs, and how each is settled.

A transfer is complete when its delivery is settled, or taken where there is nothing to settle: the window counts that.
What belongs to no subscription, because it was cancelled meanwhile, is released. What is noted by a call takes effect
before the next output (`gather`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol, cast

from harebell import errors
from harebell.client.sessions.calls import Acquisition, Call, Sent, Waiting
from harebell.client.sessions.core.settlements import Settlements, ranges_of
from harebell.client.sessions.core.subscription import Subscription
from harebell.client.sessions.messages import BaseDelivery, Delivery, Settler
from harebell.protocol.v010 import Command, Content, Struct, commands as c
from harebell.protocol.v010.serial import wide_ranges
from harebell.protocol.v010.structs import Acquired

__all__ = ["Deliveries"]

MOST_ROUTES: Final = 1024  # payloads of transfers whose subscription is remembered


class Owner(Protocol):
    """The session of the deliveries."""

    name: str
    loop: asyncio.AbstractEventLoop
    generation: int
    transaction: list[BaseDelivery] | None
    reason: errors.HarebellError | None
    lost: errors.SessionStateLost | None

    def check(self) -> None: ...
    def check_transaction(self, what: str) -> None: ...
    def flush(self) -> None: ...
    def defer(self, command: Command, waiting: Waiting | None = None) -> None: ...
    async def call(
        self, what: str, *commands: Sent, timeout: float | None = None, call: Call | None = None
    ) -> Call: ...


class Deliveries:
    """The deliveries of one session.

    settlements  what is noted, and not sent yet
    settler      what settles the deliveries that a program has
    make         their class: that of the asyncio API, or of the blocking one
    received     how many there were; of these `accepted`, `released` and `rejected`
    """

    def __init__(self, session: Owner) -> None:
        self._session = session
        self._subscriptions: dict[str, Subscription] = {}
        self._routes: dict[bytes, Subscription | None] = {}
        self._held = 0
        self.settlements = Settlements()
        self.settler: Settler = self
        self.make: type[BaseDelivery] = Delivery
        self.received = self.accepted = self.released = self.rejected = 0

    @property
    def held(self) -> int:
        """How many deliveries are to be settled."""
        return self._held

    @property
    def buffered(self) -> int:
        """How many came, and were not taken yet."""
        return sum(len(subscription.buffer) for subscription in self._subscriptions.values())

    @property
    def subscriptions(self) -> int:
        """How many there are."""
        return len(self._subscriptions)

    def end(self, reason: errors.HarebellError | None) -> None:
        """The session has ended, or its state is lost; None: it was left by this client."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            subscription.end(reason)
        self._routes.clear()
        self.settlements.clear()
        self._held = 0

    def receive(self, number: int, content: Content) -> None:
        """Give a transfer to its subscription. RemoteProtocolError when it is malformed."""
        try:
            subscription = self._routes[content.command]
        except KeyError:
            command = cast(c.MessageTransfer, content.decode_command())
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            subscription = self._routes[content.command] = self._subscriptions.get(command.destination or "")
        self.received += 1
        if subscription is None:
            self._held += 1  # until the next output
            self.settlements.released(False).append(number)
            self._session.flush()
            return
        acquired, settled = not subscription.browsing, subscription.no_ack
        self._held += acquired and not settled
        if subscription.at_once:
            self.settlements.taken.append(number)
            self._session.flush()
        subscription.add(
            self.make(
                content,
                self.settler,
                subscription.tag,
                number,
                self._session.generation,
                acquired=acquired,
                settled=settled,
            )
        )

    def subscribe(self, subscription: Subscription) -> None:
        """Have the transfers of its destination; message.subscribe is issued next."""
        self._subscriptions[subscription.tag] = subscription
        self._routes.clear()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Give back what was not taken, and what still comes."""
        if self._has(subscription):
            del self._subscriptions[subscription.tag]
            self._routes.clear()
        buffer = subscription.buffer
        while buffer:
            try:
                delivery = buffer.popleft()
            except IndexError:  # a thread has taken the last one
                break
            self.give_back(delivery)
        subscription.end(None)

    def cancel(self, subscription: Subscription, waiting: Waiting | None = None) -> bool:
        """Have message.cancel sent, once for each subscription. Whether this call does it."""
        session = self._session
        if subscription.cancelled or session.reason is not None or session.lost is not None:
            return False
        if not self._has(subscription):
            return False
        subscription.cancelled = True
        session.defer(c.MessageCancel(subscription.tag, sync=waiting is not None), waiting)
        return True

    def abandon(self, subscription: Subscription) -> None:
        """End a subscription without waiting for it."""
        self.cancel(subscription)
        if self._has(subscription):
            self.unsubscribe(subscription)

    def _has(self, subscription: Subscription) -> bool:
        """Whether it is the one of its tag."""
        return self._subscriptions.get(subscription.tag) is subscription

    def take(self, subscription: Subscription) -> BaseDelivery:
        """The next delivery of a subscription that has one."""
        delivery = subscription.buffer.popleft()
        if delivery.settled or not delivery.acquired:
            self._session.flush()
            self.settlements.taken.append(delivery.number)
        return delivery

    def give_back(self, delivery: BaseDelivery) -> None:
        """Release a delivery that nobody has, and that was not settled; nothing where its session has ended."""
        session = self._session
        if session.reason is not None or session.lost is not None or delivery.generation != session.generation:
            return
        if delivery.acquired and not delivery.settled:
            self._note(delivery, self.settlements.released(False).append)
        else:
            self._note(delivery, self.settlements.taken.append)

    def gather(self, complete: Callable[[int, int], None]) -> None:
        """Complete what was settled, and what was taken with nothing to settle."""
        accepted, released, rejected = self.settlements.gather(complete)
        self._held -= accepted + released + rejected
        self.accepted += accepted
        self.released += released
        self.rejected += rejected

    def _settles(self, delivery: BaseDelivery, what: str) -> None:
        session = self._session
        if session.reason is not None:
            session.check()
        if delivery.generation != session.generation or session.lost is not None:
            raise errors.SessionStateLost(
                f"{what}: the broker has no state of session '{session.name}' any more, and delivers the message again"
            )
        if delivery.settled or not delivery.acquired:
            why = "is settled already" if delivery.settled else "is not acquired: acquire() comes first"
            raise errors.LocalProtocolError(f"{what}: delivery {delivery.number} {why}")

    def _note(self, delivery: BaseDelivery, note: Callable[[int], None]) -> None:
        self._session.flush()
        number = delivery.number
        delivery.settled = True
        note(number)  # a call of C: no signal comes between these two

    def accept(self, delivery: BaseDelivery) -> None:
        session = self._session
        self._settles(delivery, "accept")
        session.check_transaction("accept")
        if session.transaction is not None:
            session.transaction.append(delivery)
        self._note(delivery, self.settlements.accepted.append)

    def release(self, delivery: BaseDelivery, *, set_redelivered: bool) -> None:
        self._settles(delivery, "release")
        self._note(delivery, self.settlements.released(set_redelivered).append)

    def reject(self, delivery: BaseDelivery, text: str | None) -> None:
        self._settles(delivery, "reject")
        self._note(delivery, self.settlements.rejected(text).append)

    def acquired_again(self, deliveries: list[BaseDelivery]) -> None:
        """A transaction was rolled back: what was accepted in it can be settled again."""
        for delivery in deliveries:
            if delivery.generation == self._session.generation and delivery.settled:
                delivery.settled = False
                self._held += 1
                self.accepted -= 1

    async def acquire(self, delivery: BaseDelivery, timeout: float | None) -> bool:
        if delivery.acquired:
            raise errors.LocalProtocolError(f"acquire: delivery {delivery.number} is acquired")
        return bool(await self.acquire_all([delivery], timeout))

    async def acquire_all(self, deliveries: Iterable[BaseDelivery], timeout: float | None) -> list[BaseDelivery]:
        """Take browsed messages out of their queues. Returns those that were still there.

        When this is given up, what it takes all the same goes back.
        """
        session = self._session
        wanted = {
            delivery.number: delivery
            for delivery in deliveries
            if not delivery.acquired and delivery.generation == session.generation
        }
        taken: list[BaseDelivery] = []
        for ranges in ranges_of(wanted):
            command = c.MessageAcquire(ranges, sync=True)
            call = Acquisition(session.loop, partial(self._give_back_acquired, wanted))
            try:
                await session.call(command.NAME, Sent(command), timeout=timeout, call=call)
            except BaseException:
                call.give_up()
                for delivery in taken:
                    self.give_back(delivery)
                raise
            taken += self._acquired(wanted, call.result)
        return taken

    def _acquired(self, wanted: Mapping[int, BaseDelivery], result: Struct | None) -> list[BaseDelivery]:
        """Those that message.acquire has taken out of their queues; they are to be settled."""
        if not isinstance(result, Acquired):
            return []
        pairs = wide_ranges(result.transfers, max(wanted))
        taken = [wanted[number] for low, high in pairs for number in range(low, high + 1) if number in wanted]
        for delivery in taken:
            delivery.acquired, delivery.settled = True, False
        self._held += len(taken)
        return taken

    def _give_back_acquired(self, wanted: Mapping[int, BaseDelivery], result: Struct | None) -> None:
        for delivery in self._acquired(wanted, result):
            self.give_back(delivery)
