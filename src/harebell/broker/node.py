"""The broker without its sockets: vhosts, users, connections, the store, and the end of a batch.

A batch is what one connection sent in one read. While it is worked off, work gathers here: queues that have something
to deliver, streams that have something to write, publishers that have something to confirm, connections that have
something to send. `end_batch` does it all once, in that order, so that its cost is per batch and not per message.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from harebell.broker.auth import Logins, Users
from harebell.broker.exchanges.delayed import Delays
from harebell.broker.operations.events import EVENT_EXCHANGE, Events
from harebell.broker.operations.limits import check_vhost_limits
from harebell.broker.operations.parameters import Component, Parameters, no_vhost
from harebell.broker.operations.recovery import recover
from harebell.broker.operations.statistics import Churn, Drops
from harebell.broker.operations.user_changes import UserChanges
from harebell.broker.queues.classic import Queue
from harebell.broker.queues.decorators import DecoratorFactory
from harebell.broker.queues.deduplication import Duplicates
from harebell.broker.queues.length_limit import LengthLimit
from harebell.broker.store.catalog import Catalog
from harebell.broker.store.data_folder import LastStop, make_folders
from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.stream_folders import StreamStore
from harebell.broker.timers import Timers
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.connection import Connection, Transport
from harebell.broker.vhost import VirtualHost, described
from harebell.config import Limits
from harebell.errors import ConnectionForced, InternalError, NotFound
from harebell.routing import definitions
from harebell.routing.exchange import TopicExchange

__all__ = ["Node"]

CATALOG: Final = "catalog.sqlite"  # in the data folder
SWEEP_MS: Final = 60_000  # between two looks for overdue acknowledgements, at most

log = logging.getLogger("harebell.broker")
DEFAULT_LIMITS: Final = Limits()


def _nothing() -> None:
    pass


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class Written(Protocol):
    """What has something to write at the end of a batch: a stored queue, a delayed exchange."""

    @property
    def deleted(self) -> bool: ...
    def flush(self) -> int:
        """Write it; the ticket of the sync that will cover it."""

    def advance(self) -> None:
        """Show it, as far as it is on the disk."""


class Node:
    """One broker.

    data        folder of the store; it is made when missing
    temporary   True: the folder goes with the broker, so that what is declared is kept in memory alone
    last_stop   how the broker before, on this folder, ended
    call_soon   runs a callable in this thread, from any thread
    sync        False: publisher confirms do not wait for the disk
    events      True: what happens is told on the exchange amq.rabbitmq.event of vhost "/"
    limits      what clients may use
    clock       milliseconds that never go back
    components  what acts on parameters, by the name of their component
    files       the operating system, for the messages of queues, streams and delayed exchanges
    """

    def __init__(
        self,
        data: Path,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        temporary: bool = False,
        last_stop: LastStop = LastStop.KILLED,
        sync: bool = True,
        events: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], int] = monotonic_ms,
        components: Mapping[str, Component] | None = None,
        files: Files = os,
    ) -> None:
        self.name = f"harebell@{socket.gethostname()}"
        self.connections: set[Connection] = set()
        self.held: set[Connection] = set()  # publishers that wait for the disk
        self.churn = Churn()
        self.events = Events(self, on=events)
        self.decorators: list[DecoratorFactory] = [Duplicates.of, LengthLimit.of, Drops.of]
        self._pids = count(1)
        self.timers = Timers(clock)
        self.last_stop = last_stop
        data.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog.in_memory() if temporary else Catalog.open(data / CATALOG, sync=sync)
        self.after_commit: list[Callable[[], None]] = []  # what may be done once the catalog has what changed
        self.users = Users()
        self.users.watcher = UserChanges(self)
        self.logins = Logins(self.users, self.timers, lambda answer: call_soon(lambda: self._in_batch(answer)))
        self.limits = limits
        self.consumer_timeout = _milliseconds(limits.consumer_timeout)
        self._next_sweep = self.timers.at(self.timers.now() + SWEEP_MS, self._sweep)
        self.vhosts: dict[str, VirtualHost] = {}
        self.parameters = Parameters(self.vhosts, self.catalog, self.events, components)
        self.lobby = VirtualHost(self, "")  # where a connection is before it says which virtual host it wants
        self.alarms: set[str] = set()
        self.failed: OSError | None = None
        self.draining = False
        # What the current batch leaves to do.
        self.scheduled: list[Queue] = []
        self.written: list[Written] = []
        self._ticket = 0  # of the sync that covers what it wrote
        self._unsynced: dict[Written, int] = {}  # what has written -> the sync that will cover it
        self._when_safe: list[Callable[[], None]] = []
        self.confirming: list[Confirms] = []
        self.unflushed: list[Connection] = []
        self._awaiting: list[Confirms] = []
        self._safe: deque[tuple[int, list[Callable[[], None]]]] = deque()  # what is to be called after which sync
        self._ending = False
        self._drained: Callable[[], None] = _nothing
        self.rearm: Callable[[], None] = _nothing  # told after a batch in which the next deadline changed
        self.commit = GroupCommit(call_soon, self._synced, self.store_failed, sync=sync, files=files)
        self.data, self.files = data, files
        make_folders(data, "queues", "delays", "streams")
        self.streams = StreamStore(data, self.commit, clean=last_stop is LastStop.CLEAN, files=files)
        try:
            recover(self)
        except BaseException:
            self.catalog.rollback()
            self.catalog.close()
            self.logins.verifier.stop()
            self.commit.stop()
            raise

    def new_vhost(self, name: str) -> VirtualHost:
        """A virtual host, empty, that nobody has heard of yet."""
        vhost = self.vhosts[name] = VirtualHost(self, name)
        if self.events.on and name == "/":
            vhost.router.predeclare(EVENT_EXCHANGE, TopicExchange, internal=True)
        return vhost

    def add_vhost(self, definition: definitions.VirtualHost) -> VirtualHost:
        """The virtual host, made, or given what the definition says of it if it is there.

        Description, tags and default queue type are also taken from the definition's metadata, where RabbitMQ 3.10
        writes them; limits, when it has any, become the parameter that they are. InvalidArgument for what cannot be.
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
        """Delete the virtual host with all that is in it; its connections are closed with 320.

        NotFound when there is none.
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
        self.end_batch()

    def accept(self, transport: Transport) -> Connection:
        connection = Connection(self, transport)
        self.connections.add(connection)
        self.churn.connection_created += 1
        return connection

    def forget_connection(self, connection: Connection) -> None:
        """Its transport is gone."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.held.discard(connection)
            self.churn.connection_closed += 1
            if connection.mechanism:  # it came as far as start-ok
                self.events.connection_closed(connection)

    def new_pid(self) -> str:
        """A name for a connection or a channel that no other ever has; Erlang's processes have such ones."""
        return f"<{self.name}.{next(self._pids)}>"

    def add_decorator(self, factory: DecoratorFactory) -> None:
        """Let `factory` decorate every queue, those that are there and those to come."""
        self.decorators.append(factory)
        for vhost in self.vhosts.values():
            for queue in tuple(vhost.queues.values()):
                queue.decorate([factory])

    def trace(self, vhost: str, on: bool) -> None:
        """Switch the firehose of a virtual host. NotFound when there is none of that name."""
        found = self.vhosts.get(vhost)
        if found is None:
            raise NotFound(f"no vhost '{vhost}'")
        found.set_tracing(on)

    def end_batch(self, publisher: Connection | None = None, size: int = 0) -> None:
        """Deliver, write to the disk, confirm, and hand output to the transports.

        What was delivered is noted on disk before anybody sees it, so that it never comes again as if it were new. The
        batch was `size` bytes of `publisher`, who owes them to the disk if it has to write anything.
        """
        if self._ending:
            return  # a transport that pauses or fails inside a flush ends up here; the loop below goes on
        self._ending = True
        try:
            catalog = self.catalog
            while (
                self.scheduled or self.written or self._when_safe or self.confirming or self.unflushed
                or catalog.changed
            ):  # fmt: skip
                try:
                    if self.scheduled:
                        self._deliver()
                    if self.written:
                        self.write()
                except OSError as error:
                    self.store_failed(error)
                ticket, self._ticket = self._ticket, 0
                if ticket and publisher is not None and ticket > self.commit.synced:
                    publisher.charge(ticket, size)
                publisher = None
                if self._when_safe:
                    callbacks, self._when_safe = self._when_safe, []
                    self._safe.append((ticket, callbacks))
                    self._call_safe()
                if self.confirming:
                    confirming, self.confirming = self.confirming, []
                    self._awaiting += [confirms for confirms in confirming if confirms.end_batch(ticket)]
                if catalog.changed:
                    self.save()
                if self.unflushed:
                    connections, self.unflushed = self.unflushed, []
                    for connection in connections:
                        connection.flush()
        finally:
            self._ending = False
        if self.timers.moved:
            self.timers.moved = False
            self.rearm()

    def save(self) -> None:
        """Commit what was declared, deleted or set, before anybody is told: it blocks for one sync if there is any.

        A disk that refuses has failed the whole store: what could not be kept was never acknowledged.
        """
        if self.catalog.changed:
            try:
                if self.failed is not None:
                    self.catalog.rollback()
                    return
                self.catalog.commit()
                done, self.after_commit = self.after_commit, []
                for callback in done:
                    callback()
            except OSError as error:
                self.store_failed(error)

    def settle(self) -> None:
        """End a batch that no connection began: what was changed is on disk then. OSError when the store failed."""
        self.end_batch()
        if self.failed is not None:
            raise self.failed

    def _in_batch(self, callback: Callable[[], None]) -> None:
        callback()
        self.end_batch()

    def _sweep(self) -> None:
        """Look for deliveries that nobody acknowledged in time; how often follows from the shortest timeout."""
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
        """Other limits, from now on; connections that are open keep what was agreed with them."""
        self.limits = limits
        self.consumer_timeout = _milliseconds(limits.consumer_timeout)
        self.watch_consumers(self.consumer_timeout)

    def watch_consumers(self, timeout: int) -> None:
        """There is a queue with this consumer timeout, in milliseconds: look often enough."""
        soon = self.timers.now() + max(1, timeout // 4)
        if self._next_sweep.deadline > soon:
            self._next_sweep.cancel()
            self._next_sweep = self.timers.at(soon, self._sweep)

    def run_timers(self) -> None:
        """The clock has reached `timers.next_deadline`: do what is due."""
        try:
            self.timers.run()
        except OSError as error:  # a message that was held back may be one for a stream
            self.store_failed(error)
        self.end_batch()

    def write(self) -> None:
        """Write what the batch has left for the disk so far. OSError when the disk refuses.

        Nothing once the store has failed, not even what closing the connections has given back.
        """
        written, self.written = self.written, []
        if self.failed is not None:
            return
        for each in written:
            if not each.deleted:
                ticket = each.flush()
                self._ticket = max(self._ticket, ticket)
                if ticket > self.commit.synced:
                    self._unsynced[each] = ticket
                each.advance()

    def has_written(self, what: Written) -> None:
        """It has something to write at the end of the batch."""
        self.written.append(what)

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back when everything that this batch writes is on the disk: never, once the store has failed."""
        if self.failed is None:
            self._when_safe.append(callback)

    def _call_safe(self) -> None:
        while self._safe and self._safe[0][0] <= self.commit.synced:
            for callback in self._safe.popleft()[1]:
                callback()

    def _deliver(self) -> None:
        scheduled = self.scheduled
        while scheduled:
            queue = scheduled.pop()
            queue.scheduled = False
            if not queue.deleted:
                queue.deliver()
                for decorator in queue.decorators:
                    decorator.consumer_state_changed()

    def _synced(self) -> None:
        """A group commit is done: let readers see it, and confirm what waited for it."""
        synced = self.commit.synced
        for each, ticket in tuple(self._unsynced.items()):
            if ticket <= synced:
                del self._unsynced[each]
            if not each.deleted:
                each.advance()
        self._call_safe()
        self._awaiting = [confirms for confirms in self._awaiting if confirms.confirm()]
        for connection in tuple(self.held):
            connection.grant()
        self.end_batch()
        self._look_whether_drained()

    def raise_alarm(self, resource: str) -> None:
        """Publications wait from now on, because the broker is low on it ("memory", "disk")."""
        if resource not in self.alarms:
            self.alarms.add(resource)
            self.events.alarm("set", resource)
            self.end_batch()

    def clear_alarm(self, resource: str) -> None:
        if resource in self.alarms:
            self.alarms.remove(resource)
            self.events.alarm("cleared", resource)
        if not self.alarms:
            for connection in tuple(self.connections):
                connection.unblock()
        self.end_batch()

    def store_failed(self, error: OSError) -> None:
        """The disk refused. Nothing is confirmed any more, and everybody is told."""
        if self.failed is None:
            self.failed = error
            log.critical("the store failed, the broker stops: %s", error)
            self._awaiting.clear()
            self._safe.clear()
            self._when_safe.clear()
            self.written.clear()
            self.confirming.clear()
            self._look_whether_drained()
            for connection in tuple(self.connections):
                connection.retract()
                connection.close(InternalError(f"the broker's store failed: {error.strerror}"))
            self.end_batch()

    def drain(self, drained: Callable[[], None]) -> None:
        """Take nothing more from clients; `drained` is called when the confirms of all that they published are sent."""
        self.draining, self._drained = True, drained
        for connection in tuple(self.connections):
            connection.drain()
        self._look_whether_drained()

    def _look_whether_drained(self) -> None:
        if self.draining and not self._awaiting and not self._safe:
            self._drained()

    def stop(self) -> None:
        """Say goodbye to the connections, sync and close the store."""
        for connection in tuple(self.connections):
            connection.close(ConnectionForced("broker forced connection closure with reason 'shutdown'"))
        self.end_batch()
        for vhost in self.vhosts.values():
            kept: tuple[Queue | Delays, ...] = (*vhost.queues.values(), *vhost.delays.values())
            for each in kept:
                if self.failed is None:
                    each.close()
        self.catalog.close()
        self.rearm = _nothing  # what still comes from other threads sets no timers
        self.logins.verifier.stop()
        self.commit.stop()
