"""The exchanges of a virtual host that hold messages: what each of them has, and the sinks that put messages there.

The router says which exchanges on a route hold the message (`Route.delayed`, `Route.remembered`). The state of one is
made with its first message; that of a durable delayed exchange is found again at the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from harebell.broker.exchanges.delayed import Delays, Hold, Home as DelayHome
from harebell.broker.exchanges.recent_history import History
from harebell.broker.message import Message
from harebell.broker.store.store import Store
from harebell.errors import PreconditionFailed
from harebell.routing import Route
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange

__all__ = ["StatefulExchanges"]


class Home(DelayHome, Protocol):
    """The virtual host of the exchanges."""

    name: str


class StatefulExchanges:
    """`delays` are those of delayed exchanges that ever held something."""

    def __init__(self, vhost: Home, store: Store) -> None:
        self._vhost, self._store = vhost, store
        self.delays: dict[str, Delays] = {}
        self._histories: dict[str, History] = {}

    def sinks(self, route: Route, keys: tuple[str, ...]) -> tuple[Hold | History, ...]:
        """What holds a message on its route: delays and histories."""
        found: list[Hold | History] = []
        for name, delay in route.delayed:
            found.append(Hold(self.delays_of(name), delay, keys))
        for name in route.remembered:
            history = self._histories.get(name) or History.of(self._vhost.router.exchange(name))
            if history is not None:
                self._histories[name] = history
                found.append(history)
        return tuple(found)

    def delays_of(self, name: str) -> Delays:
        """What the delayed exchange holds back; of a durable one also what it held back before the broker stopped."""
        delays = self.delays.get(name)
        if delays is None:
            vhost = self._vhost
            delays = self.delays[name] = Delays(vhost, name)
            if vhost.router.exchange(name).durable:
                journal = self._store.delay_journal(vhost.name, name, partial(vhost.batch.has_written, delays))
                delays.use_journal(journal, suspect=self._store.suspect)
        return delays

    def revoke(self, exchange: str, message_id: str) -> int:
        """Take back what a delayed exchange holds under this id; how many there were."""
        vhost = self._vhost
        if not isinstance(vhost.router.exchange(exchange), DelayedMessageExchange):
            raise PreconditionFailed(f"exchange '{exchange}' in vhost '{vhost.name}' delays no messages")
        delays = self.delays.get(exchange)
        return 0 if delays is None else delays.revoke(message_id)

    def history_of(self, name: str) -> Iterable[Message]:
        """The messages that a recent-history exchange has for a queue that is bound to it now."""
        history = self._histories.get(name)
        return () if history is None else history.messages

    def forget(self, name: str) -> None:
        """The exchange is deleted."""
        self._histories.pop(name, None)
        delays = self.delays.pop(name, None)
        if delays is not None:
            delays.forget()
