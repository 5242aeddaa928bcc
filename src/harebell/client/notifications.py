"""The callbacks of `notify_...` methods, called behind the middlewares' event hooks.

A callback that fails is logged, and the others are called all the same. Each method that adds one gives back a function
that takes it out.

`ChannelNotifications` is notified by the core of returns, cancels and flow, and stands before the waiters of confirms;
but only where there is a callback or a middleware for them. Otherwise nothing here is called per message.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final, TypeVar

from harebell import errors
from harebell.client.callbacks import check_plain
from harebell.client.confirms import Confirmations
from harebell.client.core.channel import ChannelCore
from harebell.client.core.unconfirmed import PublishWaiter
from harebell.client.messages import Confirmation, Returned
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import (
    CancelEvent,
    CloseEvent,
    DialEvent,
    DisconnectEvent,
    FlowEvent,
    HookedChannel,
    HookedConnection,
)

__all__ = ["ChannelNotifications", "Listeners", "Notifications", "Stop"]

logger = logging.getLogger("harebell.client")

Stop = Callable[[], None]
_E = TypeVar("_E")

CONFIRMING: Final = ("publish", "confirm", "confirm_or_orphaned")


class Listeners:
    """The callbacks of one connection or channel, by what they are called for."""

    def __init__(self) -> None:
        self._callbacks: dict[str, dict[object, Callable[[Any], None]]] = {}

    def add(self, what: str, callback: Callable[[_E], None]) -> Stop:
        check_plain(f"the callback of notify_{what}", callback, "event")
        callbacks, key = self._callbacks.setdefault(what, {}), object()
        callbacks[key] = callback

        def stop() -> None:
            callbacks.pop(key, None)

        return stop

    @property
    def registered(self) -> frozenset[object]:
        """What stands for each callback that is called now."""
        return frozenset(key for callbacks in self._callbacks.values() for key in callbacks)

    def any(self, *what: str) -> bool:
        return any(self._callbacks.get(one) for one in what)

    def call(self, what: str, event: object) -> None:
        for callback in list(self._callbacks.get(what, {}).values()):
            try:
                copy_context().run(callback, event)  # a variable that it sets is not the next one's
            except Exception:
                logger.exception("a callback of notify_%s failed on %r", what, event)


class Notifications:
    """The notifications of dials, losses and the end, which connections and channels have."""

    def __init__(self, source: HookedConnection | HookedChannel, chains: Chains) -> None:
        self.listeners = Listeners()
        self._source = source
        self._chains = chains

    def on_close(self, callback: Callable[[CloseEvent], None]) -> Stop:
        """Have it called at the end; at once when that is past."""
        stop = self.listeners.add("close", callback)
        ended = self._source.closed_reason
        if ended is not None:
            callback(CloseEvent(ended, source=self._source))
        return stop

    def dialed(self, target: str, error: BaseException | None) -> None:
        event = DialEvent(target, error, source=self._source)
        self._chains.event("dial_event", functools.partial(self.listeners.call, "dial"))(event)

    def disconnected(self, error: errors.HarebellError, reconnecting: bool) -> None:
        event = DisconnectEvent(error, reconnecting, source=self._source)
        self._chains.event("disconnect_event", functools.partial(self.listeners.call, "disconnect"))(event)

    def closed(self, error: errors.HarebellError) -> None:
        event = CloseEvent(error, source=self._source)
        self._chains.event("close_event", functools.partial(self.listeners.call, "close"))(event)


class ChannelNotifications(Notifications):
    """All notifications of one channel."""

    def __init__(self, channel: HookedChannel, chains: Chains) -> None:
        super().__init__(channel, chains)
        self._channel = channel

    def on(self, what: str, callback: Callable[[_E], None]) -> Stop:
        stop = self.listeners.add(what, callback)
        self.attach(self._channel.core)
        return stop

    def on_confirm(self, on_ack: Callable[[int], None], on_nack: Callable[[int], None]) -> Stop:
        check_plain("on_ack", on_ack, "publish_tag")
        check_plain("on_nack", on_nack, "publish_tag")

        def confirmed(confirmation: Confirmation) -> None:
            (on_ack if confirmation.acked else on_nack)(confirmation.publish_tag)

        return self.on("confirm", confirmed)

    def on_confirm_or_orphaned(
        self, on_ack: Callable[[int], None], on_nack: Callable[[int], None], on_orphaned: Callable[[int], None]
    ) -> Stop:
        check_plain("on_ack", on_ack, "publish_tag")
        check_plain("on_nack", on_nack, "publish_tag")
        check_plain("on_orphaned", on_orphaned, "publish_tag")

        def confirmed(confirmation: Confirmation) -> None:
            on_refused = on_orphaned if confirmation.orphaned else on_nack
            (on_ack if confirmation.acked else on_refused)(confirmation.publish_tag)

        return self.on("confirm_or_orphaned", confirmed)

    def _wanted(self, *what: str) -> bool:
        return self.listeners.any(*what) or any(self._chains.has(f"{one}_event") for one in what)

    def attach(self, core: ChannelCore) -> None:
        """Be notified by this wire channel, where there is a callback or a middleware."""
        if self._wanted("return", "cancel", "flow"):
            core.observer = self
        if self._wanted(*CONFIRMING) and not isinstance(core.publish, functools.partial):
            core.publish = functools.partial(self._publish, core.publish)  # type: ignore[method-assign]

    def _publish(
        self,
        publish: Callable[..., int],
        raw_properties: bytes,
        body: bytes,
        exchange: str,
        routing_key: str,
        flags: int,
        waiter: PublishWaiter | None,
    ) -> int:
        return publish(raw_properties, body, exchange, routing_key, flags, _NotifyingWaiter(self, waiter))

    def ended(self, confirmation: Confirmation, waiter: PublishWaiter | None) -> None:
        """A publication has its end; `waiter` is what waits for that."""
        call = self.listeners.call

        def published(confirmation: Confirmation) -> None:
            call("publish", confirmation)
            if isinstance(waiter, Confirmations):
                waiter.put(confirmation)

        chains = self._chains
        chains.event("publish_event", published)(confirmation)
        chains.event("confirm_event", functools.partial(call, "confirm"))(confirmation)
        chains.event("confirm_or_orphaned_event", functools.partial(call, "confirm_or_orphaned"))(confirmation)

    # -- called by the core ------------------------------------------------------------------------------------------

    def returned(self, returned: Returned, otherwise: Callable[[Returned], None]) -> None:
        """A publication came back; `otherwise` takes it where no confirm reports it."""

        def innermost(event: Returned) -> None:
            self.listeners.call("return", event)
            otherwise(event)

        self._chains.event("return_event", innermost)(returned)

    def cancelled(self, consumer_tag: str, queue: str) -> None:
        event = CancelEvent(consumer_tag, queue, channel=self._channel)
        self._chains.event("cancel_event", functools.partial(self.listeners.call, "cancel"))(event)

    def flowing(self, active: bool) -> None:
        event = FlowEvent(active, channel=self._channel)
        self._chains.event("flow_event", functools.partial(self.listeners.call, "flow"))(event)


class _NotifyingWaiter:
    """A waiter for the end of a publication, and the notifications beside it."""

    __slots__ = ("_notifications", "_returned", "waiter")

    def __init__(self, notifications: ChannelNotifications, waiter: PublishWaiter | None) -> None:
        self._notifications = notifications
        self._returned: Returned | None = None
        self.waiter = waiter

    @property
    def _first(self) -> PublishWaiter | None:
        """What is told before the notifications: `confirmations` are told with what the middlewares make of it."""
        return None if isinstance(self.waiter, Confirmations) else self.waiter

    def settle(self, publish_tag: int, acked: bool) -> None:
        if (first := self._first) is not None:
            first.settle(publish_tag, acked)
        self._notifications.ended(Confirmation(publish_tag, acked, returned=self._returned), self.waiter)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned = returned
        if (first := self._first) is not None:
            first.returned(publish_tag, returned)

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        if (first := self._first) is not None:
            first.refused(publish_tag, error)
        self._notifications.ended(Confirmation(publish_tag, False, error=error), self.waiter)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        if (first := self._first) is not None:
            first.orphaned(publish_tag, reason)
        self._notifications.ended(Confirmation(publish_tag, False, orphaned=True, error=reason), self.waiter)

    def without_waiter(self) -> _NotifyingWaiter:
        """Nothing waits any more; the notifications go on."""
        self.waiter = None
        return self
