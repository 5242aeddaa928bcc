"""The exchanges of a virtual host that hold messages: their state, and the sinks that add messages to it.

The router names the exchanges on a route that hold the message (`Route.delayed`, `Route.remembered`). The first message
makes the state of an exchange; that of a durable delayed exchange is recovered at the start.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Protocol

from harebell.broker.exchanges.delayed import Delays, Hold, Home as DelayHome
from harebell.broker.exchanges.recent_history import History
from harebell.broker.message import Message
from harebell.broker.store.store import Store
from harebell.errors import PreconditionFailed
from harebell.routing import Route
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.steps import Steps

__all__ = ["StatefulExchanges"]


class Home(DelayHome, Protocol):
    """The part of a virtual host that its stateful exchanges use."""

    name: str


class StatefulExchanges:
    """The stateful exchanges of a virtual host.

    delays   those of delayed exchanges that ever held a message, by exchange
    folders  the folders of messages of durable delayed exchanges, as in the catalog, by exchange
    """

    def __init__(self, vhost: Home, store: Store) -> None:
        self._vhost, self._store = vhost, store
        self.delays: dict[str, Delays] = {}
        self.folders: dict[str, str] = {}
        self._histories: dict[str, History] = {}

    def new_folder(self, name: str) -> str | None:
        """A new folder for the messages of the exchange, if it is durable and holds any."""
        exchange = self._vhost.router.exchange(name)
        if not exchange.durable or not isinstance(exchange, DelayedMessageExchange):
            return None
        self.folders[name] = folder = self._store.new_delay_folder()
        return folder

    def sinks(self, route: Route, keys: tuple[str, ...]) -> tuple[Hold | History, ...]:
        """The delays and histories on a message's route."""
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
        """The delays of a delayed exchange; a durable one has those from before a restart too.

        OSError when the disk refuses these.
        """
        delays = self.delays.get(name)
        if delays is None:
            vhost = self._vhost
            delays = Delays(vhost, name)
            folder = self.folders.get(name)
            if folder is not None:
                journal = self._store.queue_journal(name, folder, partial(vhost.batch.has_written, delays))
                try:
                    delays.use_journal(journal, suspect=self._store.suspect)
                except OSError:
                    delays.abandon()
                    raise
            self.delays[name] = delays
        return delays

    def revoke(self, exchange: str, message_id: str) -> Steps[int]:
        """Drop the messages that a delayed exchange holds under this id, in steps. Returns their number."""
        vhost = self._vhost
        if not isinstance(vhost.router.exchange(exchange), DelayedMessageExchange):
            raise PreconditionFailed(f"exchange '{exchange}' in vhost '{vhost.name}' delays no messages")
        delays = self.delays.get(exchange)
        return 0 if delays is None else (yield from delays.revoke(message_id))

    def history_of(self, name: str) -> Collection[Message]:
        """The messages of a recent-history exchange, for a queue that is being bound to it."""
        history = self._histories.get(name)
        return () if history is None else history.messages

    def forget(self, name: str) -> None:
        """Drop the state of an exchange that is deleted."""
        self._histories.pop(name, None)
        self.folders.pop(name, None)
        delays = self.delays.pop(name, None)
        if delays is not None:
            delays.forget()
