"""The node: one broker without its sockets, dialects and operators.

It has the virtual hosts, the users, the connections (by the protocols of `clients`), the timers, the batch and the
store, and handles what concerns all of them: alarms, consumer timeouts, the start of a stop. `operations.startup` makes
one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Final

from harebell.broker.auth import Logins, Users
from harebell.broker.batch import Batch
from harebell.broker.clients import Connection
from harebell.broker.counts import Churn
from harebell.broker.exchanges.delayed import Delays
from harebell.broker.observers import Listener
from harebell.broker.queues.base import DecoratorFactory, Queue
from harebell.broker.queues.deduplication import Duplicates
from harebell.broker.queues.drops import Drops
from harebell.broker.queues.length_limit import LengthLimit
from harebell.broker.rules.limits import check_vhost_limits
from harebell.broker.rules.parameters import Component, Parameters, no_vhost
from harebell.broker.store.catalog import Catalog
from harebell.broker.store.data_folder import LastStop
from harebell.broker.store.files import Files
from harebell.broker.store.store import Store
from harebell.broker.timers import Timers
from harebell.broker.vhost import VirtualHost, described
from harebell.config import Limits
from harebell.errors import ConnectionForced, InternalError
from harebell.routing import definitions

__all__ = ["Node"]

CATALOG: Final = "catalog.sqlite"  # in the data folder
SWEEP_MS: Final = 60_000  # between two checks for overdue acknowledgements, at most

DEFAULT_LIMITS: Final = Limits()


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class Node:
    """One broker.

    data        folder of the store; it is made when missing
    temporary   True: the folder is deleted with the broker, so that the catalog is in memory only
    last_stop   how the last broker on this folder stopped
    call_soon   runs a callable in this thread, from any thread
    sync        False: publisher confirms do not wait for the disk
    events      the listener that is notified of changes
    limits      the resources that clients may use
    clock       milliseconds that never go back
    components  objects that act on parameters, by the name of their component
    files       the operating system, for the messages of queues, streams and delayed exchanges
    """

    def __init__(
        self,
        data: Path,
        call_soon: Callable[[Callable[[], None]], object],
        events: Listener,
        *,
        temporary: bool = False,
        last_stop: LastStop = LastStop.KILLED,
        sync: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], int] = monotonic_ms,
        components: Mapping[str, Component] | None = None,
        files: Files = os,
    ) -> None:
        self.name = f"harebell@{socket.gethostname()}"
        self.connections: set[Connection] = set()
        self.churn = Churn()
        self.events = events
        self.decorators: list[DecoratorFactory] = [Duplicates.of, LengthLimit.of, Drops.of]
        self._pids = count(1)
        self.timers = Timers(clock)
        self.last_stop = last_stop
        data.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog.in_memory() if temporary else Catalog.open(data / CATALOG, sync=sync)
        self.users = Users()
        self.logins = Logins(self.users, self.timers, lambda answer: call_soon(lambda: self._in_batch(answer)))
        self.limits = limits
        self.consumer_timeout = _milliseconds(limits.consumer_timeout)
        self._next_sweep = self.timers.at(self.timers.now() + SWEEP_MS, self._sweep)
        self.vhosts: dict[str, VirtualHost] = {}
        self.parameters = Parameters(self.vhosts, self.catalog, self.events, components)
        self.alarms: set[str] = set()
        self.draining = False
        self.batch = Batch(call_soon, self.catalog, self.timers, self._close_all, sync=sync, files=files)
        self.store = Store(data, self.batch.commit, self.timers.now, last_stop=last_stop, files=files)
        self.lobby = VirtualHost(self, "")  # the virtual host of a connection until connection.open

    def new_vhost(self, name: str) -> VirtualHost:
        """A virtual host, empty, and not announced yet."""
        vhost = self.vhosts[name] = VirtualHost(self, name)
        self.events.prepare_vhost(vhost)
        return vhost

    def add_vhost(self, definition: definitions.VirtualHost) -> VirtualHost:
        """Create a virtual host, or apply the definition to an existing one. Returns it.

        Description, tags and default queue type are also taken from the definition's metadata, where RabbitMQ 3.10
        writes them; limits, if there are any, become a parameter. InvalidArgument for an invalid definition.
        """
        definition = described(definition)
        check_vhost_limits(definition.limits or {})
        new = definition.name not in self.vhosts
        vhost = self.new_vhost(definition.name) if new else self.vhosts[definition.name]
        vhost.definition = definition
        self.catalog.put_vhost(definition)
        if new:
            self.events.vhost_created(vhost)
        if definition.limits:
            self.parameters.set_limits(definition.name, definition.limits)
        return vhost

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with everything in it; its connections are closed with 320.

        NotFound for an unknown one.
        """
        vhost = self.vhosts.pop(name, None)
        if vhost is None:
            raise no_vhost(name)
        for connection in tuple(self.connections):
            if connection.vhost is vhost:
                connection.close(ConnectionForced(f"vhost '{name}' is deleted"))
        self.users.forget_vhost(name)
        vhost.clear()
        self.catalog.remove_vhost(name)
        self.events.vhost_deleted(name)
        self.parameters.forget_vhost(name)
        vhost.policies.forget()
        self.batch.end()

    def add_connection(self, connection: Connection) -> None:
        """Add the connection of a new client."""
        self.connections.add(connection)
        self.churn.connection_created += 1

    def forget_connection(self, connection: Connection) -> None:
        """Remove a connection whose transport is gone."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.churn.connection_closed += 1
            if connection.mechanism:  # it has sent start-ok
                self.events.connection_closed(connection)

    def new_pid(self) -> str:
        """A name for a connection or a channel, never used again, in the form of Erlang's processes."""
        return f"<{self.name}.{next(self._pids)}>"

    def add_decorator(self, factory: DecoratorFactory) -> None:
        """Let `factory` decorate every queue, those that exist and later ones."""
        self.decorators.append(factory)
        for vhost in self.vhosts.values():
            for queue in tuple(vhost.queues.values()):
                queue.decorate([factory])

    def save(self) -> None:
        """End a batch that no connection began: its changes are then on disk. OSError when the store failed."""
        self.batch.end()
        if self.batch.failed is not None:
            raise self.batch.failed

    def _in_batch(self, callback: Callable[[], None]) -> None:
        callback()
        self.batch.end()

    def _sweep(self) -> None:
        """Return deliveries that were not acknowledged in time; the interval depends on the shortest timeout."""
        queues = [queue for vhost in self.vhosts.values() for queue in vhost.queues.values()]
        for queue in queues:
            queue.rest()
        timeouts = [queue.settings.consumer_timeout or self.consumer_timeout for queue in queues]
        least = min(timeouts, default=self.consumer_timeout)
        now = self.timers.now()
        for connection in tuple(self.connections):
            connection.give_back_overdue(now, self.consumer_timeout, least)
        self._next_sweep = self.timers.at(now + min(SWEEP_MS, max(1, least // 4)), self._sweep)

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits; open connections keep the values that they have negotiated."""
        self.limits = limits
        self.consumer_timeout = _milliseconds(limits.consumer_timeout)
        self.watch_consumers(self.consumer_timeout)

    def watch_consumers(self, timeout: int) -> None:
        """Check often enough for a queue with this consumer timeout, in milliseconds."""
        soon = self.timers.now() + max(1, timeout // 4)
        if self._next_sweep.deadline > soon:
            self._next_sweep.cancel()
            self._next_sweep = self.timers.at(soon, self._sweep)

    def run_timers(self) -> None:
        """Run the timers that are due: the clock has reached `timers.next_deadline`."""
        try:
            self.timers.run()
        except OSError as error:  # a delayed message may be one for a stream
            self.batch.fail(error)
        self.batch.end()

    def raise_alarm(self, resource: str) -> None:
        """Block publications from now on: the broker is low on the resource ("memory", "disk")."""
        if resource not in self.alarms:
            self.alarms.add(resource)
            self.events.alarm("set", resource)
            self.batch.end()

    def clear_alarm(self, resource: str) -> None:
        if resource in self.alarms:
            self.alarms.remove(resource)
            self.events.alarm("cleared", resource)
        if not self.alarms:
            for connection in tuple(self.connections):
                connection.unblock()
        self.batch.end()

    def _close_all(self, error: OSError) -> None:
        """Close every connection: the store failed."""
        for connection in tuple(self.connections):
            connection.retract()
            connection.close(InternalError(f"the broker's store failed: {error.strerror}"))

    def drain(self, drained: Callable[[], None]) -> None:
        """Stop reading clients' input; `drained` is called when the confirms of all their publications are sent."""
        self.draining = True
        for connection in tuple(self.connections):
            connection.drain()
        self.batch.when_drained(drained)

    def abandon(self) -> None:
        """Undo a failed start: the catalog is not changed."""
        self.catalog.rollback()
        self.catalog.close()
        self.logins.verifier.stop()
        self.batch.commit.stop()

    def stop(self) -> None:
        """Close the connections, then sync and close the store."""
        for connection in tuple(self.connections):
            connection.close(ConnectionForced("broker forced connection closure with reason 'shutdown'"))
        self.batch.end()
        for vhost in self.vhosts.values():
            kept: tuple[Queue | Delays, ...] = (*vhost.queues.values(), *vhost.delays.values())
            for each in kept:
                if self.batch.failed is None:
                    each.close()
        self.catalog.close()
        self.batch.rearm = lambda: None  # calls from other threads set no timers any more
        self.logins.verifier.stop()
        self.batch.commit.stop()
