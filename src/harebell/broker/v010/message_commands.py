"""The class message in a session, but for transfers: subscriptions, their credit, and what becomes of deliveries.

Deliveries are settled at once where they are few, and in slices where they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from harebell.broker.auth import Access
from harebell.broker.connections.consume_arguments import check_consume_arguments, selector_of
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.queues.browse import BROWSE, View
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.settling import DELIVERIES_PER_STEP
from harebell.broker.rules.limits import check_consumers
from harebell.broker.slices import Work
from harebell.broker.v010.commands import LATER, Outcome
from harebell.broker.v010.deliveries import Deliveries, select
from harebell.broker.v010.dtx import DistributedTransactions
from harebell.broker.v010.fragments import Fragments, Owner
from harebell.broker.v010.subscription import Subscription, SubscriptionSession
from harebell.broker.v010.subscriptions import Subscriptions
from harebell.broker.v010.topology import table_of
from harebell.broker.v010.transactions import Transactions
from harebell.errors import (
    AccessRefused,
    NotAllowed,
    NotFound,
    NotImplemented as NotImplemented540,
    ResourceLocked,
    WrongArgument,
)
from harebell.protocol.v010 import Command, Struct, commands as c
from harebell.protocol.v010.domains import AcceptMode, AcquireMode
from harebell.protocol.v010.serial import narrow_ranges, wide_ranges
from harebell.protocol.v010.structs import Acquired, MessageResumeResult
from harebell.protocol.v010.values import Ranges

__all__ = ["HANDLERS", "MessageCommands"]


class MessageSession(SubscriptionSession, Protocol):
    """The session of the commands."""

    node: Node
    access: Access
    subscriptions: Subscriptions
    deliveries: Deliveries
    transactions: Transactions
    dtx: DistributedTransactions
    fragments: Fragments

    @property
    def owner(self) -> Owner: ...
    @property
    def next_number(self) -> int:
        """The number of the broker's next command."""

    def work(self, number: int, command: Command, work: Work) -> None:
        """Execute a long command in slices; the connection's input waits until that is done."""

    def complete(self, low: int, high: int) -> None: ...
    def result(self, number: int, result: Struct) -> None:
        """Send the result of a command, and complete it."""


class Queues(Protocol):
    """The queues that the session may use."""

    def queue(self, name: str, command: str) -> Queue:
        """The queue that a command names."""


class MessageCommands:
    """The handlers of one session."""

    def __init__(self, session: MessageSession, queues: Queues) -> None:
        self._session = session
        self._topology = queues

    def _subscribe(self, number: int, command: c.MessageSubscribe) -> Outcome:
        tag = command.destination or ""
        queue = self._topology.queue(command.queue, "message.subscribe")
        if tag in self._session.subscriptions.table:
            raise NotAllowed(f"message.subscribe: there is a subscription '{tag}' already")
        if command.resume_id or command.resume_ttl:
            raise NotImplemented540(
                "message.subscribe: resume-id is not implemented: a session that lasts gets whole messages again"
            )
        if command.accept_mode not in tuple(AcceptMode) or command.acquire_mode not in tuple(AcquireMode):
            raise WrongArgument("message.subscribe: unknown accept-mode or acquire-mode")
        check_consumers(self._session.node.limits, len(self._session.subscriptions.table))
        self._session.access.read_queue("consume", queue.name)
        arguments = table_of(command.arguments, "message.subscribe")
        if BROWSE in arguments:
            raise WrongArgument(f"message.subscribe: acquire-mode not-acquired browses, not the argument '{BROWSE}'")
        check_consume_arguments(arguments, queue.type, str(queue), exclusive=command.exclusive)
        if command.acquire_mode == AcquireMode.NOT_ACQUIRED and isinstance(queue, ClassicQueue):
            queue = View(queue)
            arguments[BROWSE] = True
        queue.check_consume(False, 1)
        selector = selector_of(arguments, str(queue), WrongArgument)
        subscription = Subscription(self._session, queue, command, arguments, selector)
        try:
            queue.add_consumer(subscription)
        except AccessRefused as error:  # 0-9-1's code for a queue with an exclusive consumer
            raise ResourceLocked(error.detail) from None
        self._session.subscriptions.add(subscription)
        return None

    def _resume(self, number: int, command: c.MessageResume) -> Outcome:
        destination = command.destination or ""
        if destination and not self._session.vhost.router.has_exchange(destination):
            raise NotFound(f"message.resume: no exchange '{destination}' in vhost '{self._session.vhost.name}'")
        return MessageResumeResult(self._session.fragments.offset(self._session.owner, destination, command.resume_id))

    def _cancel(self, number: int, command: c.MessageCancel) -> Outcome:
        self._session.subscriptions.cancel(command.destination or "", command.NAME)
        return None

    def _flow(self, number: int, command: c.MessageFlow) -> Outcome:
        self._subscription(command.destination, command).flow(command.unit, command.value)
        return None

    def _set_flow_mode(self, number: int, command: c.MessageSetFlowMode) -> Outcome:
        self._subscription(command.destination, command).set_mode(command.flow_mode)
        return None

    def _stop(self, number: int, command: c.MessageStop) -> Outcome:
        if not self._session.subscriptions.gone(command.destination or ""):
            self._subscription(command.destination, command).stop()
        return None

    def _flush(self, number: int, command: c.MessageFlush) -> Outcome:
        subscription = self._subscription(command.destination, command)
        self._session.work(number, command, self._flushing(number, subscription))
        return LATER

    def _flushing(self, number: int, subscription: Subscription) -> Work:
        """Deliver what is there and what the credit covers, then take the rest of the credit away."""
        queue = subscription.queue
        subscription.flushing = True
        while not queue.deleted and not subscription.cancelled:
            if queue.deliver_share():
                if not queue.postpones(subscription):
                    break
                queue.batch.slices.give_way()
            yield
        subscription.flushing = False
        subscription.stop()
        self._session.complete(number, number)

    def _subscription(self, tag: str | None, command: Command) -> Subscription:
        return self._session.subscriptions.get(tag or "", command.NAME)

    def _wide(self, ranges: Ranges, command: Command) -> list[tuple[int, int]]:
        try:
            return wide_ranges(ranges, self._session.next_number)
        except ValueError as error:
            raise WrongArgument(f"{command.NAME}: {error}") from None

    def _settle(self, number: int, command: Command, ranges: list[tuple[int, int]], work: Work) -> Outcome:
        """Settle the deliveries in these ranges: few at once, many in slices."""
        if sum(high - low + 1 for low, high in ranges) > DELIVERIES_PER_STEP:
            self._session.work(number, command, self._settling(number, work))
            return LATER
        for _ in work:
            pass
        return None

    def _settling(self, number: int, work: Work) -> Work:
        yield from work
        self._session.complete(number, number)

    def _accept(self, number: int, command: c.MessageAccept) -> Outcome:
        session, deliveries = self._session, self._session.deliveries
        ranges = self._wide(command.transfers, command)
        accepting = deliveries.accepting
        if session.transactions.selected:
            accepting = session.transactions.accepting
        elif session.dtx.branch is not None:
            accepting = session.dtx.accepting
        return self._settle(number, command, ranges, accepting(deliveries.shares(ranges)))

    def _reject(self, number: int, command: c.MessageReject) -> Outcome:
        deliveries, ranges = self._session.deliveries, self._wide(command.transfers, command)
        return self._settle(number, command, ranges, deliveries.rejecting(deliveries.shares(ranges)))

    def _release(self, number: int, command: c.MessageRelease) -> Outcome:
        deliveries, ranges = self._session.deliveries, self._wide(command.transfers, command)
        if self._session.transactions.selected:  # Qpid's clients release what they accepted before they roll back
            deliveries.restore(self._session.transactions.give_back(ranges))
        counted = command.set_redelivered
        work = deliveries.releasing(deliveries.shares(ranges), failed=False, counted=counted)
        return self._settle(number, command, ranges, work)

    def _acquire(self, number: int, command: c.MessageAcquire) -> Outcome:
        numbers = select(self._session.deliveries.browsed, self._wide(command.transfers, command))
        self._session.work(number, command, self._acquiring(number, numbers))
        return LATER

    def _acquiring(self, number: int, numbers: list[int]) -> Work:
        acquired: list[tuple[int, int]] = []
        yield from self._session.deliveries.acquiring(numbers, acquired)
        self._session.result(number, Acquired(narrow_ranges(acquired)))


Handler: TypeAlias = "Callable[[MessageCommands, int, Any], Outcome]"  # each takes the command type that is its key

HANDLERS: Final[dict[type[Command], Handler]] = {
    c.MessageAccept: MessageCommands._accept,
    c.MessageReject: MessageCommands._reject,
    c.MessageRelease: MessageCommands._release,
    c.MessageAcquire: MessageCommands._acquire,
    c.MessageResume: MessageCommands._resume,
    c.MessageSubscribe: MessageCommands._subscribe,
    c.MessageCancel: MessageCommands._cancel,
    c.MessageSetFlowMode: MessageCommands._set_flow_mode,
    c.MessageFlow: MessageCommands._flow,
    c.MessageFlush: MessageCommands._flush,
    c.MessageStop: MessageCommands._stop,
}
