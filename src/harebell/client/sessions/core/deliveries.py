"""The deliveries of a session: to which subscription a transfer belongs, and how each is settled.

A transfer is complete when its delivery is settled, or taken where there is nothing to settle: the window counts that.
What belongs to no subscription, because it was cancelled meanwhile, is released.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from harebell import errors
from harebell.client.sessions.calls import Call, Sent, Waiting
from harebell.client.sessions.core.settlements import Settlements, ranges_of
from harebell.client.sessions.core.subscription import Subscription
from harebell.client.sessions.messages import Delivery
from harebell.protocol.v010 import Command, Content, commands as c
from harebell.protocol.v010.structs import Acquired

__all__ = ["Deliveries"]

MOST_ROUTES: Final = 1024  # payloads of transfers whose subscription is remembered


class Owner(Protocol):
    """The session of the deliveries."""

    name: str
    generation: int
    transaction: list[Delivery] | None
    reason: errors.HarebellError | None
    lost: errors.SessionStateLost | None

    def check(self) -> None: ...
    def check_transaction(self, what: str) -> None: ...
    def complete(self, number: int) -> None: ...
    def defer(self, command: Command, waiting: Waiting | None = None) -> None: ...
    async def call(
        self, what: str, *commands: Sent, timeout: float | None = None, call: Call | None = None
    ) -> Call: ...


class Deliveries:
    """The deliveries of one session.

    settlements  those that are not issued yet
    held         how many deliveries are to be settled
    """

    def __init__(self, session: Owner) -> None:
        self._session = session
        self._subscriptions: dict[str, Subscription] = {}
        self._routes: dict[bytes, Subscription | None] = {}
        self.settlements = Settlements()
        self.held = 0

    def end(self, reason: errors.HarebellError) -> None:
        """The session has ended, or its state is lost."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            subscription.end(reason)
        self._routes.clear()
        self.settlements.clear()
        self.held = 0

    def receive(self, number: int, content: Content) -> None:
        """Give a transfer to its subscription. RemoteProtocolError when it is malformed."""
        try:
            subscription = self._routes[content.command]
        except KeyError:
            command = cast(c.MessageTransfer, content.decode_command())
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            subscription = self._routes[content.command] = self._subscriptions.get(command.destination or "")
        if subscription is None:
            self.settlements.release(number, set_redelivered=False)
            self._session.complete(number)
            return
        acquired, settled = not subscription.browsing, subscription.no_ack
        self.held += acquired and not settled
        subscription.add(
            Delivery(
                content, self, subscription.tag, number, self._session.generation, acquired=acquired, settled=settled
            )
        )

    def subscribe(self, subscription: Subscription) -> None:
        """Have the transfers of its destination; message.subscribe is issued next."""
        self._subscriptions[subscription.tag] = subscription
        self._routes.clear()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Give back what was not taken, and what still comes."""
        if self._subscriptions.pop(subscription.tag, None) is not None:
            self._routes.clear()
        for delivery in subscription.buffer:
            self._give_back(delivery)
        subscription.end(None)

    def abandon(self, subscription: Subscription) -> None:
        """End a subscription without waiting for it."""
        if self._session.reason is None and self._session.lost is None and subscription.tag in self._subscriptions:
            self.unsubscribe(subscription)
            self._session.defer(c.MessageCancel(subscription.tag))

    def take(self, subscription: Subscription) -> Delivery:
        """The next delivery of a subscription that has one."""
        delivery = subscription.buffer.popleft()
        if delivery.settled or not delivery.acquired:
            self._session.complete(delivery.number)
        return delivery

    def _give_back(self, delivery: Delivery) -> None:
        if not delivery.settled:
            delivery.settled = True
            if delivery.acquired:
                self.settlements.release(delivery.number, set_redelivered=False)
                self.held -= 1
        self._session.complete(delivery.number)

    def _settles(self, delivery: Delivery, what: str) -> None:
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

    def _settled(self, delivery: Delivery) -> None:
        delivery.settled = True
        self.held -= 1
        self._session.complete(delivery.number)

    def accept(self, delivery: Delivery) -> None:
        self._settles(delivery, "accept")
        self._session.check_transaction("accept")
        self.settlements.accept(delivery.number)
        self._settled(delivery)
        if self._session.transaction is not None:
            self._session.transaction.append(delivery)

    def release(self, delivery: Delivery, *, set_redelivered: bool) -> None:
        self._settles(delivery, "release")
        self.settlements.release(delivery.number, set_redelivered=set_redelivered)
        self._settled(delivery)

    def reject(self, delivery: Delivery, text: str | None) -> None:
        self._settles(delivery, "reject")
        self.settlements.reject(delivery.number, text)
        self._settled(delivery)

    def acquired_again(self, deliveries: list[Delivery]) -> None:
        """A transaction was rolled back: what was accepted in it can be settled again."""
        for delivery in deliveries:
            if delivery.generation == self._session.generation and delivery.settled:
                delivery.settled = False
                self.held += 1

    async def acquire(self, delivery: Delivery, timeout: float | None) -> bool:
        if delivery.acquired:
            raise errors.LocalProtocolError(f"acquire: delivery {delivery.number} is acquired")
        if delivery.generation != self._session.generation:
            return False
        command = c.MessageAcquire(ranges_of([delivery.number])[0], sync=True)
        call = await self._session.call(command.NAME, Sent(command), timeout=timeout)
        if isinstance(call.result, Acquired) and call.result.transfers:
            delivery.acquired, delivery.settled = True, False
            self.held += 1
        return delivery.acquired
