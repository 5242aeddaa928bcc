"""What connections and channels tell those who asked with `notify_...`: callbacks, behind the middlewares' event hooks.

A callback that fails is logged; the others hear all the same. Asking gives back a function that ends it.

`Notices` is a channel's part: it is asked by the core about returns, cancels and flow, and stands before the waiters of
confirms; but only where somebody listens or a middleware stands there. Nothing here is called per message otherwise.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harebell.client.confirms import Confirmations
from harebell.client.messages import Confirmation, Returned
from harebell.client.middleware.hooks import CancelEvent, CloseEvent, DialEvent, DisconnectEvent, FlowEvent

if TYPE_CHECKING:
    from harebell import errors
    from harebell.client.channel import Channel
    from harebell.client.connection import Connection
    from harebell.client.core.channel import ChannelCore
    from harebell.client.core.unconfirmed import PublishWaiter
    from harebell.client.middleware.chain import Chains

__all__ = ["Listeners", "Notices", "Stop", "Transport"]

logger = logging.getLogger("harebell.client")

Stop = Callable[[], None]
_E = TypeVar("_E")

CONFIRMING: Final = ("publish", "confirm", "confirm_or_orphaned")


class Listeners:
    """Who listens to one connection or channel, by what."""

    def __init__(self) -> None:
        self._callbacks: dict[str, dict[object, Callable[[Any], None]]] = {}

    def add(self, what: str, callback: Callable[[_E], None]) -> Stop:
        callbacks, key = self._callbacks.setdefault(what, {}), object()
        callbacks[key] = callback

        def stop() -> None:
            callbacks.pop(key, None)

        return stop

    def any(self, *what: str) -> bool:
        return any(self._callbacks.get(one) for one in what)

    def tell(self, what: str, event: object) -> None:
        for callback in list(self._callbacks.get(what, {}).values()):
            try:
                callback(event)
            except Exception:
                logger.exception("a callback of notify_%s failed on %r", what, event)


class Transport:
    """What a connection and a channel have in common: middlewares, and telling of dials, losses and the end."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._listeners = Listeners()
        self._around: dict[str, Callable[..., object]] = {}  # its methods behind their chains, once they were called

    def notify_close(self, callback: Callable[[CloseEvent], None]) -> Stop:
        """Have it called once, when this is closed for good; at once when it is closed already.

        Like all `notify_` methods this gives a function that ends the asking.
        """
        stop = self._listeners.add("close", callback)
        ended: errors.HarebellError | None = getattr(self, "_ended", None)
        if ended is not None:
            callback(CloseEvent(ended, source=self._self()))
        return stop

    def notify_dial(self, callback: Callable[[DialEvent], None]) -> Stop:
        """Have it called after each attempt to connect, or for a channel to open again, whether it went well or not."""
        return self._listeners.add("dial", callback)

    def notify_disconnect(self, callback: Callable[[DisconnectEvent], None]) -> Stop:
        """Have it called at each loss, whether this comes back or not."""
        return self._listeners.add("disconnect", callback)

    def _self(self) -> Connection | Channel:
        return self  # type: ignore[return-value]  # these two are all there is

    def _tell_dialed(self, target: str, error: BaseException | None) -> None:
        event = DialEvent(target, error, source=self._self())
        self._chains.event("dial_event", functools.partial(self._listeners.tell, "dial"))(event)

    def _tell_disconnected(self, error: errors.HarebellError, reconnecting: bool, last: Callable[[], None]) -> None:
        """last  what happens when the event has come through"""

        def innermost(event: DisconnectEvent) -> None:
            last()
            self._listeners.tell("disconnect", event)

        self._chains.event("disconnect_event", innermost)(DisconnectEvent(error, reconnecting, source=self._self()))

    def _tell_closed(self, error: errors.HarebellError) -> None:
        event = CloseEvent(error, source=self._self())
        self._chains.event("close_event", functools.partial(self._listeners.tell, "close"))(event)


class TellingChannel(Transport):
    """What a channel tells, beside that."""

    _core: ChannelCore
    _notices: Notices

    def _listen(self, what: str, callback: Callable[[_E], None]) -> Stop:
        stop = self._listeners.add(what, callback)
        self._notices.attach(self._core)
        return stop

    def notify_publish(self, callback: Callable[[Confirmation], None]) -> Stop:
        """Have it called with the Confirmation of each publication from now on, whichever method published it."""
        return self._listen("publish", callback)

    def notify_confirm(self, on_ack: Callable[[int], None], on_nack: Callable[[int], None]) -> Stop:
        """Have one of them called with the publish tag of each publication that is settled; orphaned is nacked."""

        def confirmed(confirmation: Confirmation) -> None:
            (on_ack if confirmation.acked else on_nack)(confirmation.publish_tag)

        return self._listen("confirm", confirmed)

    def notify_confirm_or_orphaned(
        self, on_ack: Callable[[int], None], on_nack: Callable[[int], None], on_orphaned: Callable[[int], None]
    ) -> Stop:
        """As `notify_confirm`, with those that a loss has orphaned told apart: these may or may not have arrived."""

        def confirmed(confirmation: Confirmation) -> None:
            on_no = on_orphaned if confirmation.orphaned else on_nack
            (on_ack if confirmation.acked else on_no)(confirmation.publish_tag)

        return self._listen("confirm_or_orphaned", confirmed)

    def notify_return(self, callback: Callable[[Returned], None]) -> Stop:
        """Have it called with each mandatory publication that comes back, with confirms on or off."""
        return self._listen("return", callback)

    def notify_cancel(self, callback: Callable[[CancelEvent], None]) -> Stop:
        """Have it called when the broker cancels a consumer of the channel."""
        return self._listen("cancel", callback)

    def notify_flow(self, callback: Callable[[FlowEvent], None]) -> Stop:
        """Have it called when publishing is held back, by the broker or by a loss, and when it goes on."""
        return self._listen("flow", callback)


class Notices:
    """What one channel tells."""

    def __init__(self, channel: Channel, chains: Chains, listeners: Listeners) -> None:
        self._channel = channel
        self._chains = chains
        self._listeners = listeners

    def _wanted(self, *what: str) -> bool:
        return self._listeners.any(*what) or any(self._chains.has(f"{one}_event") for one in what)

    def attach(self, core: ChannelCore) -> None:
        """Listen to this wire channel where somebody listens to the channel."""
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
        mandatory: bool,
        waiter: PublishWaiter | None,
    ) -> int:
        return publish(raw_properties, body, exchange, routing_key, mandatory, _Watched(self, waiter))

    def confirmed(self, confirmation: Confirmation, waiter: PublishWaiter | None) -> None:
        """A publication is settled; `waiter` is who waits for it."""
        tell = self._listeners.tell

        def published(confirmation: Confirmation) -> None:
            tell("publish", confirmation)
            if isinstance(waiter, Confirmations):
                waiter.put(confirmation)

        chains = self._chains
        chains.event("publish_event", published)(confirmation)
        chains.event("confirm_event", functools.partial(tell, "confirm"))(confirmation)
        chains.event("confirm_or_orphaned_event", functools.partial(tell, "confirm_or_orphaned"))(confirmation)

    # -- asked by the core -------------------------------------------------------------------------------------------

    def returned(self, returned: Returned, otherwise: Callable[[Returned], None]) -> None:
        """A publication came back; `otherwise` takes it where no confirm answers for it."""

        def innermost(event: Returned) -> None:
            self._listeners.tell("return", event)
            otherwise(event)

        self._chains.event("return_event", innermost)(returned)

    def cancelled(self, consumer_tag: str, queue: str) -> None:
        event = CancelEvent(consumer_tag, queue, channel=self._channel)
        self._chains.event("cancel_event", functools.partial(self._listeners.tell, "cancel"))(event)

    def flowing(self, active: bool) -> None:
        event = FlowEvent(active, channel=self._channel)
        self._chains.event("flow_event", functools.partial(self._listeners.tell, "flow"))(event)


class _Watched:
    """A waiter with a listener beside it."""

    __slots__ = ("_notices", "_returned", "_waiter")

    def __init__(self, notices: Notices, waiter: PublishWaiter | None) -> None:
        self._notices = notices
        self._waiter = waiter
        self._returned: Returned | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        waiter = self._waiter
        if waiter is not None and not isinstance(waiter, Confirmations):
            waiter.settle(publish_tag, acked)
        self._notices.confirmed(Confirmation(publish_tag, acked, returned=self._returned), waiter)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned = returned
        if self._waiter is not None and not isinstance(self._waiter, Confirmations):
            self._waiter.returned(publish_tag, returned)

    def orphaned(self, publish_tag: int) -> None:
        waiter = self._waiter
        if waiter is not None and not isinstance(waiter, Confirmations):
            waiter.orphaned(publish_tag)
        self._notices.confirmed(Confirmation(publish_tag, False, orphaned=True), waiter)

    def fail(self, reason: errors.HarebellError) -> None:
        if self._waiter is not None:
            self._waiter.fail(reason)

    def without_waiter(self) -> _Watched:
        """Nobody waits any more; the listener still listens."""
        self._waiter = None
        return self
