"""A subscription of a session as an asynchronous iterator.

    async for delivery in session.consume("work", window=500):
        delivery.accept()

It lives on over a lost connection, and no delivery comes twice by it. It ends with the reason when the session ends or
its state is lost, and without one after a cancel or a close of our own. Leaving the `async with` block, or dropping the
iterator, cancels the subscription and releases what was not taken.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self, cast

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.sessions.calls import Call, Sent
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.core.subscription import Subscription
from harebell.client.sessions.messages import Delivery
from harebell.client.starting import start_by_waiting, stop_starting
from harebell.protocol.conversion.field_values import to_map
from harebell.protocol.v010 import commands as c
from harebell.protocol.v010.domains import AcceptMode, AcquireMode, CreditUnit, FlowMode
from harebell.protocol.v091 import TableLike

__all__ = ["MOST_CREDIT", "SELECTOR", "Consumer", "subscribe_commands"]

SELECTOR: Final = "x-apache-selector"
"""The argument that Qpid's C++ broker has for a selector, and Harebell too."""

FAIR: Final = 256  # deliveries handed out before other tasks get their turn
MOST_CREDIT: Final = 0xFFFF_FFFE  # a credit has 32 bits, and all of them set say that there is no limit
MOST_WINDOW: Final = 32_768  # deliveries: half of what a session has room for, received and not complete


def subscribe_commands(
    subscription: Subscription,
    queue: str,
    mode: FlowMode,
    messages: int,
    size: int | None,
    *,
    exclusive: bool = False,
    arguments: TableLike | None = None,
) -> list[Sent]:
    """The commands that subscribe and give credit: so many messages, and bytes (None: without limit)."""
    tag = subscription.tag
    accept = AcceptMode.NONE if subscription.no_ack else AcceptMode.EXPLICIT
    acquire = AcquireMode.NOT_ACQUIRED if subscription.browsing else AcquireMode.PRE_ACQUIRED
    more = None if arguments is None else to_map(arguments)
    return [
        Sent(c.MessageSubscribe(queue, tag, accept, acquire, exclusive, arguments=more)),
        Sent(c.MessageSetFlowMode(tag, mode)),
        *credit_commands(tag, messages, size, last=mode == FlowMode.WINDOW),
    ]


def credit_commands(tag: str, messages: int, size: int | None, *, last: bool = False) -> list[Sent]:
    """The commands that give credit: so many messages, and bytes (None: without limit); `last`: no other follows."""
    return [
        Sent(c.MessageFlow(tag, CreditUnit.BYTE, MOST_CREDIT + 1 if size is None else size)),
        Sent(c.MessageFlow(tag, CreditUnit.MESSAGE, messages, sync=last)),
    ]


class Consumer:
    """An asynchronous iterator of Delivery, made by `session.consume`; it subscribes when it is entered or first asked.

    Several tasks may iterate over one consumer; each delivery goes to one of them.
    """

    def __init__(
        self,
        core: SessionCore,
        queue: str,
        *,
        tag: str,
        window: int,
        window_bytes: int | None,
        no_ack: bool,
        browsing: bool,
        exclusive: bool,
        selector: str | None,
        arguments: TableLike | None,
        timeout: float | None,
    ) -> None:
        if selector is not None:
            if SELECTOR in (arguments or {}):
                raise errors.InvalidArgument(f"selector is given by the argument '{SELECTOR}' too: give it once")
            arguments = {**(arguments or {}), SELECTOR: selector}
        if not 1 <= window <= MOST_WINDOW:
            raise errors.InvalidArgument(f"window is {window}: 1 to {MOST_WINDOW} messages are possible")
        if window_bytes is not None and not 1 <= window_bytes <= MOST_CREDIT:
            raise errors.InvalidArgument(f"window_bytes is {window_bytes}: 1 to {MOST_CREDIT} are possible")
        self.core = core
        self._loop = core.loop
        self.starting: asyncio.Future[errors.HarebellError | None] | None = None
        self.first: asyncio.Task[object] | None = None
        self._handed = 0
        self._queue = queue
        self._timeout = timeout
        self.subscription = Subscription(core.loop, tag, no_ack=no_ack, browsing=browsing)
        self._commands = subscribe_commands(
            self.subscription,
            queue,
            FlowMode.WINDOW,
            window,
            window_bytes,
            exclusive=exclusive,
            arguments=arguments,
        )

    @property
    def tag(self) -> str:
        """The consumer tag, which is the destination of its transfers."""
        return self.subscription.tag

    @property
    def buffered(self) -> int:
        """Deliveries that came and were not taken yet."""
        return len(self.subscription.buffer)

    async def start(self) -> None:
        """Subscribe if that is not done. NotFound for a missing queue (the session ends with it), DeadlineExceeded."""
        while self.starting is not None:
            if self.starting.done():
                return
            starting = self.starting
            await asyncio.wait([starting])  # another task subscribes
            if (failed := starting.result()) is not None:
                raise copy_of(failed)
        starting = self.starting = self._loop.create_future()
        subscription = self.subscription
        self.core.deliveries.subscribe(subscription)
        call = Call(self._loop)
        failed = None
        try:
            await self.core.call("message.subscribe", *self._commands, timeout=self._timeout, call=call)
        except BaseException as error:
            failed = error if isinstance(error, errors.HarebellError) else None  # else the others try it themselves
            if call.number is None:
                self.core.deliveries.unsubscribe(subscription)
            else:
                self.core.deliveries.abandon(subscription)
            self.subscription = Subscription(
                self._loop, subscription.tag, no_ack=subscription.no_ack, browsing=subscription.browsing
            )
            self.starting = None
            raise
        finally:
            starting.set_result(failed)

    async def cancel(self, *, timeout: float | None = None) -> None:
        """End the subscription; what was not taken is released. In a session that has ended, or twice, no error.

        When this is cancelled, or its time is over, the subscription ends all the same.
        """
        core = self.core
        deadline = core.deadline(timeout)
        await stop_starting(self)
        while self.starting is not None and not self.starting.done():  # another task subscribes
            await asyncio.wait([self.starting], timeout=max(0.0, deadline - self._loop.time()))
            if self._loop.time() >= deadline:
                raise errors.DeadlineExceeded("message.cancel: message.subscribe has no answer in time")
        subscription, call, returned = self.subscription, Call(self._loop), 0
        try:
            if core.deliveries.cancel(subscription, call):
                await core.answered(call, deadline, "message.cancel")
            elif self._subscribed and core.reason is None and core.lost is None:  # another task cancels it
                await core.synced(deadline, "message.cancel")
        finally:
            if not subscription.finished:
                returned = len(subscription.buffer)
                core.deliveries.unsubscribe(subscription)
        if returned and not subscription.no_ack:
            await core.synced(deadline, "message.release")

    @property
    def _started(self) -> bool:
        return self.starting is not None and self.starting.done()

    @property
    def _subscribed(self) -> bool:
        return self._started and not self.subscription.finished

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # cancelled or interrupted: wait for no network
            self.core.deliveries.abandon(self.subscription)
            return
        try:
            await self.cancel()
        except errors.HarebellError:
            if kind is None:
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self._started:
            await start_by_waiting(self)
        self._handed += 1
        if not self._handed % FAIR:
            await asyncio.sleep(0)
        if not self.subscription.buffer:
            await self.subscription.filled()
        return cast(Delivery, self.core.deliveries.take(self.subscription))

    def __del__(self) -> None:
        # `async for` has no way to say that it was left; the last reference going away says it.
        subscription: Subscription | None = getattr(self, "subscription", None)
        if subscription is not None and self._subscribed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.core.deliveries.abandon, subscription)
