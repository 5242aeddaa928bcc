"""What a program holds of a session of AMQP 0-10: publish, consume, declare, transactions.

Every call waits while the connection is lost, within its timeout, and every command is executed once, however often the
connection breaks. What the broker refuses ends the session, as the specification has it (execution.exception): the call
raises the exception of its code, and so do all that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from types import TracebackType
from typing import Self, TypeVar, cast

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.client.sessions.branch import Branch, Manager, Xid
from harebell.client.sessions.calls import Call, Sent
from harebell.client.sessions.consumer import MOST_CREDIT, Consumer, credit_commands, subscribe_commands
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.core.subscription import Subscription
from harebell.client.sessions.descriptions import ExchangeDescription, QueueDescription, exchange_of, queue_of
from harebell.client.sessions.harness import SessionHarness
from harebell.client.sessions.messages import Delivery, transfer
from harebell.client.sessions.publish_many import PublishMany
from harebell.client.sessions.recovery import SessionRecovery
from harebell.client.sessions.statistics import SessionStatistics
from harebell.client.sessions.transaction import Transaction
from harebell.protocol.conversion.field_values import to_map
from harebell.protocol.v010 import Command, Map, Struct, commands as c
from harebell.protocol.v010.domains import FlowMode
from harebell.protocol.v010.structs import ExchangeBoundResult, ExchangeQueryResult, QueueQueryResult
from harebell.protocol.v091 import TableLike

__all__ = ["Session"]

S = TypeVar("S", bound=Struct)


class Session:
    """A session, over every connection that carries it. Made by `connection.session`."""

    def __init__(self, core: SessionCore, recovery: SessionRecovery, *, keep: bool) -> None:
        self.core = core
        self.recovery = recovery
        self.keep = keep
        self._manager = Manager(core)
        self._tags = 0

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.core.name

    @property
    def timeout(self) -> int | None:
        """Seconds that the broker keeps the session without a connection, as it was granted; None before that."""
        return self.core.granted

    @property
    def resumed(self) -> bool:
        """Whether the broker had a session of this name when it was opened: its numbers go on."""
        return self.core.resumed

    @property
    def is_attached(self) -> bool:
        """Whether it can be used this moment; see `is_closed`."""
        return self.core.usable

    @property
    def is_closed(self) -> bool:
        """Whether it has ended for good."""
        return self.core.reason is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it has ended; None before that."""
        return self.core.reason

    @property
    def state_lost(self) -> errors.SessionStateLost | None:
        """Set when the broker no longer has the state of the session: see `start_over`."""
        return self.core.lost

    @property
    def incomplete(self) -> int:
        """How many commands were sent and are not complete."""
        return self.core.incomplete

    def statistics(self) -> SessionStatistics:
        """What the session has published and got so far, over all its connections, in numbers."""
        return SessionStatistics(**self.core.tally(), subscriptions=self.core.deliveries.subscriptions)

    def test(self) -> SessionHarness:
        """What a test does to a session: have the broker lose its state."""
        return SessionHarness(self.core, self.recovery)

    async def start_over(self, *, timeout: float | None = None) -> None:
        """Go on after the state is lost, with a new one.

        What was not complete is not sent again: the program publishes it again, or not. Consumers have ended, exclusive
        queues are gone, a transaction is rolled back, and unsettled deliveries come again to a new consumer.
        LocalProtocolError when the state is not lost.
        """
        await self.core.start_over(self.core.deadline(timeout))

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, *, keep: bool = False, timeout: float | None = None) -> None:
        """Wait until all commands are complete, and leave the session.

        keep  the broker keeps it for its timeout, for another program that goes on under its name; else it ends now

        A session that has ended is no error. SessionStateLost when it has lost its state and has not started over;
        DeadlineExceeded when not all was completed in time: then the session is left without an answer.
        """
        core = self.core
        if core.reason is not None:
            return
        lost, deadline = core.lost, core.deadline(timeout)
        try:
            if lost is None:
                await self.sync(timeout=timeout)
            await core.detach(deadline, keep=keep)
        except BaseException as failed:
            if isinstance(failed, errors.ChannelClosed) and isinstance(core.reason, errors.ChannelClosed):
                return  # another call has left it meanwhile
            core.hang_up(keep=keep)
            raise
        if lost is not None:
            raise lost

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        core = self.core
        if kind is None:
            await self.close(keep=self.keep)
        elif issubclass(kind, asyncio.CancelledError):
            core.hang_up(keep=self.keep)  # a cancelled task does not wait for the network
        elif core.reason is None:
            try:
                await core.detach(core.deadline(None), keep=self.keep)
            except BaseException as failed:
                core.hang_up(keep=self.keep)
                if not isinstance(failed, errors.HarebellError):  # else the block's own error is raised
                    raise

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Publish one message; it is in every queue it was routed to, and on disk where it has to be.

        Nacked when a queue refuses it, Unroutable when a mandatory one reached no queue. DeadlineExceeded says whether
        it was held back, and is not sent; else it stays in the session and is published once, as it is when this call
        is cancelled. LocalProtocolError and InvalidArgument when it does not fit the wire: nothing is sent.
        """
        core = self.core
        sent = transfer(message, exchange, routing_key, mandatory=mandatory, sync=True)
        core.check_transaction("publish")
        deadline = core.deadline(timeout)
        if not core.enter_nowait():
            await core.enter(deadline, "message.transfer")
        call = Call(core.loop)
        call.number = number = core.publish(sent, call)
        await core.answered(call, deadline, "message.transfer")
        if call.rejection is not None:
            raise call.rejection.error(number, exchange, routing_key)

    async def publish_many(
        self,
        publications: Iterable[Publication] | AsyncIterable[Publication],
        *,
        window: int = 5000,
        timeout: float | None = None,
    ) -> int:
        """Publish all of them, one behind the other without waiting; count them once all are complete.

        window   how many may be incomplete at a time
        timeout  seconds for the whole of it

        PublishesFailed when some were refused or reached no queue: all others are published.
        """
        many = PublishMany(self.core, window, self.core.deadline(timeout))
        if isinstance(publications, AsyncIterable):
            async for publication in publications:
                await many.put(publication)
        else:
            await many.put_all(publications)
        return await many.finish()

    async def sync(self, *, timeout: float | None = None) -> None:
        """Wait until everything so far is complete, settlements too (execution.sync)."""
        await self._call(c.ExecutionSync(sync=True), timeout)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """What is published and accepted in `async with session.transaction()` takes effect as one unit.

        timeout  seconds for the commit, or the rollback after an error in the block

        One at a time. From the first one on the session is transactional: publishing and accepting outside of a
        transaction is a LocalProtocolError. What a consumer without acceptance (no_ack) gets belongs to none.
        """
        return Transaction(self.core, timeout)

    # -- distributed transactions ------------------------------------------------------------------------------------

    def branch(self, xid: Xid, *, join: bool = False, timeout: float | None = None) -> Branch:
        """What is published and accepted in `async with session.branch(xid)` belongs to a distributed transaction.

        join     another session works, or has worked, in the branch
        timeout  seconds for the begin and the end of the block

        Afterwards any session of the user prepares, commits or rolls the branch back. One that is not prepared within
        60 seconds (`set_branch_timeout`), or whose session ends inside the block, is rolled back. NotAllowed for a name
        that is known already, NotFound with `join` for one that is not: both end the session.
        """
        return Branch(self.core, xid, join, timeout)

    async def prepare(self, xid: Xid, *, timeout: float | None = None) -> None:
        """Have a branch on disk: from now on it survives a restart, until it is committed or rolled back.

        TransactionRolledBack when it was rolled back by itself; call `rollback` then. NotFound for an unknown one, and
        IllegalState for one that is prepared, or that a session works in: these end the session.
        """
        await self._manager.prepare(xid, timeout)

    async def commit(self, xid: Xid, *, one_phase: bool = False, timeout: float | None = None) -> None:
        """Commit a branch that is prepared, or with `one_phase` one that is not: all of it or nothing, over a kill too.

        TransactionRolledBack when it was rolled back by itself. TransactionMixed when a queue refused a message: the
        rest is committed, and the branch is in doubt until `forget_branch`. Others as `prepare`.
        """
        await self._manager.commit(xid, one_phase, timeout)

    async def rollback(self, xid: Xid, *, timeout: float | None = None) -> None:
        """Roll a branch back, prepared or not: what was accepted in it returns to its queues.

        TransactionMixed when it was committed, whole or in part, by somebody else. Others as `prepare`.
        """
        await self._manager.rollback(xid, timeout)

    async def in_doubt(self, *, timeout: float | None = None) -> list[Xid]:
        """The user's branches that are prepared, or wait to be forgotten: what a manager asks after a failure."""
        return await self._manager.in_doubt(timeout)

    async def forget_branch(self, xid: Xid, *, timeout: float | None = None) -> None:
        """Forget a branch whose outcome was mixed, or an administrator's decision. Raises as `prepare`."""
        await self._manager.forget(xid, timeout)

    async def set_branch_timeout(self, xid: Xid, seconds: int, *, timeout: float | None = None) -> None:
        """Have a branch rolled back in so many seconds from now (3,600 at most), unless it is prepared before."""
        await self._manager.set_timeout(xid, seconds, timeout)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def consume(
        self,
        queue: str,
        *,
        window: int = 500,
        window_bytes: int | None = None,
        no_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        selector: str | None = None,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """An iterator over the messages of a queue: `async for delivery in session.consume("work")`.

        window        how many deliveries may be unsettled (with `no_ack`: not taken) at a time; at most 32,768
        window_bytes  how many bytes they may have together, headers included; a message larger than that never comes
        no_ack        a message is settled when it is sent (accept-mode none)
        exclusive     no other consumer may have the queue
        consumer_tag  a name of one's own; "" makes one
        selector      a condition on headers and properties: only messages of which it is true ("price > 10")
        timeout       seconds for subscribing; waiting for a delivery has no deadline

        A missing queue (NotFound), a selector that cannot be read (WrongArgument) and the like end the session.
        """
        return self._consumer(
            queue, window, window_bytes, consumer_tag, no_ack=no_ack, exclusive=exclusive, selector=selector,
            arguments=arguments, timeout=timeout,
        )  # fmt: skip

    def browse(
        self,
        queue: str,
        *,
        window: int = 500,
        window_bytes: int | None = None,
        consumer_tag: str = "",
        selector: str | None = None,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """An iterator over copies of the messages of a queue, which stay there; `delivery.acquire()` takes one out.

        It does not end with the queue: it waits for further messages. The arguments are those of `consume`; the windows
        count what is not taken.
        """
        return self._consumer(
            queue, window, window_bytes, consumer_tag, browsing=True, selector=selector, arguments=arguments,
            timeout=timeout,
        )  # fmt: skip

    def _consumer(
        self,
        queue: str,
        window: int,
        window_bytes: int | None,
        tag: str,
        *,
        no_ack: bool = False,
        browsing: bool = False,
        exclusive: bool = False,
        selector: str | None,
        arguments: TableLike | None,
        timeout: float | None,
    ) -> Consumer:
        return Consumer(
            self.core, queue, tag=tag or self._new_tag("consumer"), window=window, window_bytes=window_bytes,
            no_ack=no_ack, browsing=browsing, exclusive=exclusive, selector=selector, arguments=arguments,
            timeout=timeout,
        )  # fmt: skip

    def _new_tag(self, kind: str) -> str:
        self._tags += 1
        return f"{kind}-{self._tags}"

    async def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is cancelled, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """
        core, deadline = self.core, self.core.deadline(timeout)
        while True:
            subscription = Subscription(core.loop, self._new_tag("get"), no_ack=no_ack, browsing=False)
            tag, attempts = subscription.tag, core.attempts
            commands = subscribe_commands(subscription, queue, FlowMode.CREDIT, 1, None)
            commands += map(Sent, (c.MessageFlush(tag), c.MessageCancel(tag, sync=True)))
            core.deliveries.subscribe(subscription)
            try:
                await core.call("message.flush", *commands, timeout=deadline - core.loop.time())
                if subscription.buffer:
                    return cast(Delivery, core.deliveries.take(subscription))
            finally:
                core.deliveries.unsubscribe(subscription)
            if core.attempts == attempts:
                return None
            # The broker may have flushed while there was no connection, to nobody: ask again.

    async def copies(self, queue: str, *, most: int | None = None, timeout: float | None = None) -> list[Delivery]:
        """Copies of the messages that are in the queue now, from its head, where they stay; `acquire` takes some out.

        most  how many at most; None is all of them
        """
        if most is not None and not 0 < most <= MOST_CREDIT:
            raise errors.InvalidArgument(f"most is {most}: 1 to {MOST_CREDIT} messages are possible")
        core, deadline = self.core, self.core.deadline(timeout)
        while True:
            subscription = Subscription(core.loop, self._new_tag("copies"), no_ack=False, browsing=True, at_once=True)
            tag, attempts, found = subscription.tag, core.attempts, subscription.buffer
            credit = MOST_CREDIT + 1 if most is None else most
            commands = subscribe_commands(subscription, queue, FlowMode.CREDIT, credit, None)
            core.deliveries.subscribe(subscription)
            begun = Call(core.loop)
            try:
                call, before = begun, -1
                while before < len(found) < credit:  # the broker sends no more than the session has room for
                    before, commands = len(found), [*commands, Sent(c.MessageFlush(tag, sync=True))]
                    await core.call("message.flush", *commands, timeout=deadline - core.loop.time(), call=call)
                    call = Call(core.loop)
                    left = credit if most is None else most - len(found)
                    commands = credit_commands(tag, left, None)
                copies = list(found)
                found.clear()
                if core.deliveries.cancel(subscription, call):
                    await core.answered(call, deadline, "message.cancel")
                core.check()
            finally:
                if begun.number is None:
                    core.deliveries.unsubscribe(subscription)
                else:
                    core.deliveries.abandon(subscription)
            if core.attempts == attempts:
                return cast("list[Delivery]", copies)
            # The broker may have flushed while there was no connection, to nobody: ask again.

    async def acquire(self, deliveries: Iterable[Delivery], *, timeout: float | None = None) -> list[Delivery]:
        """Take browsed messages out of their queues. Returns those that were still there, which are to be settled."""
        self.core.deadline(timeout)  # what is no number is refused, whether there is something to acquire or not
        return cast("list[Delivery]", await self.core.deliveries.acquire_all(deliveries, timeout))

    # -- topology ----------------------------------------------------------------------------------------------------

    async def queue_declare(
        self,
        name: str,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        alternate_exchange: str | None = None,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Declare the queue; an existing one stays as it is. With `passive` only ask: NotFound when missing.

        exclusive           for this session alone, which keeps it over a lost connection
        alternate_exchange  where rejected messages go
        """
        more = _map(arguments)
        await self._call(
            c.QueueDeclare(name, alternate_exchange, passive, durable, exclusive, auto_delete, more, sync=True), timeout
        )

    async def queue_query(self, name: str, *, timeout: float | None = None) -> QueueDescription | None:
        """What the queue is, with its messages and consumers at this moment; None when it is missing."""
        return queue_of(await self._ask(c.QueueQuery(name, sync=True), QueueQueryResult, timeout))

    async def message_count(self, name: str, *, timeout: float | None = None) -> int:
        """How many messages are ready in the queue at this moment. NotFound, and the session goes on."""
        found = await self.queue_query(name, timeout=timeout)
        if found is None:
            raise errors.NotFound(f"no queue '{name}'")
        return found.message_count

    async def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Route from the exchange to the queue. NotFound when either is missing."""
        await self._call(c.ExchangeBind(queue, exchange, binding_key, _map(arguments), sync=True), timeout)

    async def queue_unbind(
        self, queue: str, exchange: str, binding_key: str = "", *, timeout: float | None = None
    ) -> None:
        """Undo `queue_bind` with the same key. NotFound when there is no such binding."""
        await self._call(c.ExchangeUnbind(queue, exchange, binding_key, sync=True), timeout)

    async def bound(
        self,
        exchange: str,
        queue: str = "",
        binding_key: str | None = None,
        *,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Whether there is such a binding; "" and None stand for any queue, any key, any arguments."""
        command = c.ExchangeBound(exchange, queue, binding_key, _map(arguments), sync=True)
        found = await self._ask(command, ExchangeBoundResult, timeout)
        return not any(getattr(found, name) for name in found.fields())

    async def queue_purge(self, name: str, *, timeout: float | None = None) -> None:
        """Drop the ready messages of the queue."""
        await self._call(c.QueuePurge(name, sync=True), timeout)

    async def queue_delete(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> None:
        """Delete the queue. NotFound when it is missing, PreconditionFailed when an `if_` does not hold."""
        await self._call(c.QueueDelete(name, if_unused, if_empty, sync=True), timeout)

    async def exchange_declare(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        alternate_exchange: str | None = None,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Declare the exchange. NotAllowed when it exists and differs; with `passive`, NotFound when missing."""
        more = _map(arguments)
        await self._call(
            c.ExchangeDeclare(name, type, alternate_exchange, passive, durable, auto_delete, more, sync=True), timeout
        )

    async def exchange_query(self, name: str, *, timeout: float | None = None) -> ExchangeDescription | None:
        """What the exchange is; None when it is missing."""
        return exchange_of(name, await self._ask(c.ExchangeQuery(name, sync=True), ExchangeQueryResult, timeout))

    async def exchange_delete(self, name: str, *, if_unused: bool = False, timeout: float | None = None) -> None:
        """Delete the exchange and its bindings. NotFound when it is missing."""
        await self._call(c.ExchangeDelete(name, if_unused, sync=True), timeout)

    async def _call(self, command: Command, timeout: float | None) -> Call:
        return await self.core.call(command.NAME, Sent(command), timeout=timeout)

    async def _ask(self, command: Command, kind: type[S], timeout: float | None) -> S:
        result = (await self._call(command, timeout)).result
        if not isinstance(result, kind):
            said = f"{command.NAME} was completed without its result"
            raise errors.RemoteProtocolError(
                errors.InternalError, said, command.KEY[0], command.KEY[1], scope="channel"
            )
        return result

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "attached" if self.is_attached else "detached"
        return f"<Session {self.name!r}, {state}>"


def _map(arguments: TableLike | None) -> Map | None:
    return None if arguments is None else to_map(arguments)
