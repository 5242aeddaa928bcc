"""The node: one broker without its sockets, dialects and operators.

It has the virtual hosts, the users, the connections (by the protocols of `clients`), the timers, the batch and the
store, and handles what concerns all of them: alarms, consumer timeouts, the start of a stop. `operations.startup` makes
one.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from harebell.broker.auth import Logins, Users
from harebell.broker.batch import Batch
from harebell.broker.clients import Connection, Session
from harebell.broker.counts import Churn, Lasting
from harebell.broker.exchanges.delayed import Delays
from harebell.broker.observers import Listener
from harebell.broker.plugins import Plugins
from harebell.broker.queues.alerts import alerts_of
from harebell.broker.queues.base import DecoratorFactory, Queue
from harebell.broker.queues.deduplication import Duplicates
from harebell.broker.queues.drops import Drops
from harebell.broker.queues.length_limit import LengthLimit
from harebell.broker.rules.limits import check_vhost_limits
from harebell.broker.rules.parameters import Component, Parameters, no_vhost
from harebell.broker.slices import Work
from harebell.broker.store.catalog.catalog import Catalog
from harebell.broker.store.catalog.check import CATALOG
from harebell.broker.store.data_folder import LastStop
from harebell.broker.store.files import Files
from harebell.broker.store.inventory import Inventory
from harebell.broker.store.open_files import OpenFiles
from harebell.broker.store.private import FOLDER
from harebell.broker.store.store import Store
from harebell.broker.timers import Timers
from harebell.broker.transactions.branches import Branches
from harebell.broker.transactions.commits import Commits
from harebell.broker.vhost import VirtualHost, described
from harebell.config import Limits
from harebell.errors import AmqpError, ConnectionForced, InternalError, InvalidArgument, ResourceDeleted
from harebell.routing import definitions
from harebell.routing.exchanges.exchange_types import ExchangeFactory
from harebell.routing.steps import Steps, complete
from harebell.routing.wire_limits import check_name

__all__ = ["CATALOG", "Node"]

FAILED_STOP_SECONDS: Final = 2.0  # for a sync that hangs, when the store has failed anyway
POSITION_MS: Final = 50  # between two writes of the positions of sessions, at least
SWEEP_MS: Final = 60_000  # between two checks for overdue acknowledgements, at most ...
LEAST_SWEEP_MS: Final = 100  # ... and at least, however short a consumer timeout is
SWEPT_IN_MS: Final = 5  # channels that are looked at for each millisecond until the next check: 1 % of the time or so

DEFAULT_LIMITS: Final = Limits()

log = logging.getLogger("harebell.broker")


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _ignore(error: OSError) -> None:
    pass


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
    plugins     the exchange types and services that a program adds
    files       the operating system, for the messages of queues, streams and delayed exchanges
    open_files  the number of these files that may be open at a time; None: by the process's limit
    stopwatch   seconds, to cut long work into slices
    """

    def __init__(
        self,
        data: Path,
        call_soon: Callable[[Callable[[], None]], object],
        events: Listener,
        *,
        temporary: bool = False,
        last_stop: LastStop = LastStop.KILLED,
        before_changes: Callable[[], object] = lambda: None,
        sync: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], int] = monotonic_ms,
        components: Mapping[str, Component] | None = None,
        plugins: Plugins | None = None,
        files: Files = os,
        open_files: int | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = f"harebell@{socket.gethostname()}"
        self.plugins = Plugins() if plugins is None else plugins
        self.exchange_types: Mapping[str, ExchangeFactory] = self.plugins.exchange_types
        self.connections: set[Connection] = set()
        self.sessions: set[Session] = set()  # of AMQP 0-10, with and without a connection
        self.churn = Churn()
        self.lasting = Lasting()
        self.events = events
        self.decorators: list[DecoratorFactory] = [Duplicates.of, LengthLimit.of, Drops.of, alerts_of(events)]
        self._pids = count(1)
        self.timers = Timers(clock)
        self.last_stop = last_stop
        data.mkdir(FOLDER, parents=True, exist_ok=True)
        self.catalog = (
            Catalog.in_memory()
            if temporary
            else Catalog.open(
                data / CATALOG, sync=sync, suspect=last_stop is LastStop.POWER_CUT, before_changes=before_changes
            )
        )
        seal = self.catalog.seal
        self.id = secrets.token_hex(8) if seal is None else f"{seal.identity:016x}"  # no other broker has it
        self.users = Users()
        self.logins = Logins(self.users, self.timers, lambda answer: call_soon(lambda: self._in_batch(answer)))
        self.limits = limits
        self.consumer_timeout = _milliseconds(limits.consumer_timeout)
        self._least_timeout = self._found_timeout = self.consumer_timeout
        self._swept = 0  # channels in the last check for overdue acknowledgements
        self._next_rest = self.timers.now()
        self._next_sweep = self.timers.at(self.timers.now() + SWEEP_MS, self._sweep)
        self._giving_back = False
        self.vhosts: dict[str, VirtualHost] = {}
        self._leaving: set[str] = set()  # virtual hosts that are being deleted
        self.parameters = Parameters(self.vhosts, self.catalog, self.events, components)
        self.alarms: set[str] = set()
        self._unclosed: Exception | None = None  # the first error of a stop
        self.draining = False
        self.when_failed: Callable[[OSError], None] = _ignore  # called once, when the store has failed
        self.inventory = None if temporary or files is not os else Inventory(data)
        self._files = OpenFiles(files, open_files, self.inventory)
        self.batch = Batch(
            call_soon, self.catalog, self.timers, self._close_all, sync=sync, files=self._files, stopwatch=stopwatch
        )
        self.store = Store(
            data,
            self.batch.commit,
            self.timers.now,
            self.batch.has_written,
            last_stop=last_stop,
            files=self._files,
        )
        positions = self.store.positions
        positions.waits = lambda: self.catalog.changed
        prepared = self.store.prepared
        positions.later = prepared.later = lambda call: self.timers.at(self.timers.now() + POSITION_MS, call)
        self.branches = Branches(self.vhosts, self.batch, self.timers, prepared, positions)
        self.commits = Commits(self.batch, prepared, positions)
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
        check_name(definition.name, "vhost name")
        if definition.name in self._leaving:
            raise InvalidArgument(f"vhost '{definition.name}' is being deleted: create it again when that is done")
        definition = described(definition)
        check_vhost_limits(definition.limits or {})
        new = definition.name not in self.vhosts
        vhost = self.new_vhost(definition.name) if new else self.vhosts[definition.name]
        before, vhost.definition = vhost.definition, definition
        self.catalog.put_vhost(definition)
        if new:
            self.events.vhost_created(vhost)
        elif _said(definition) != _said(before):
            self.events.act(definition.name, "vhost", definition.name, "changed", told=_said(definition))
        if definition.limits:
            self.parameters.set_limits(definition.name, definition.limits)
        return vhost

    def delete_vhost(self, name: str) -> None:
        """As `deleting_vhost`, at once."""
        complete(self.deleting_vhost(name))
        self.batch.end()

    def deleting_vhost(self, name: str) -> Steps[None]:
        """Delete a virtual host with everything in it; its connections are closed with 320.

        It cannot be used from the first step on. A broker that is killed before the last one has the rest of it again.
        NotFound for an unknown one.
        """
        vhost = self.vhosts.pop(name, None)
        if vhost is None:
            raise no_vhost(name)
        vhost.deleted = True
        self._leaving.add(name)
        try:
            yield from self._emptying(vhost)
        finally:
            self._leaving.remove(name)

    def _emptying(self, vhost: VirtualHost) -> Work:
        name = vhost.name
        for connection in tuple(self.connections):
            if connection.vhost is vhost:
                connection.close(ConnectionForced(f"vhost '{name}' is deleted"))
                yield
        yield from self.expelling(ResourceDeleted(f"vhost '{name}' is deleted"), vhost=name)
        self.users.forget_vhost(name)
        self.branches.forget_vhost(name)
        yield from vhost.clearing()
        self.catalog.remove_vhost(name)
        self.events.vhost_deleted(name)
        self.parameters.forget_vhost(name)
        vhost.policies.forget()

    def expelling(self, error: AmqpError, *, vhost: str | None = None, user: str | None = None) -> Work:
        """End the sessions of AMQP 0-10 of this virtual host, or user, with and without a connection.

        The clients of the former get the error.
        """
        for known in tuple(self.store.positions.known.values()):
            if vhost in (None, known.vhost) and user in (None, known.user):
                self.store.positions.forget(known)
        for session in tuple(self.sessions):
            if vhost in (None, session.vhost.name) and user in (None, session.user):
                yield from session.expel(error)
                yield

    def add_connection(self, connection: Connection) -> None:
        """Add the connection of a new client."""
        self.connections.add(connection)
        self.churn.connection_created += 1

    def replace_connection(self, old: Connection, new: Connection) -> None:
        """Let a connection be another one: its client turned out to speak the other dialect."""
        self.connections.remove(old)
        self.connections.add(new)

    def forget_connection(self, connection: Connection) -> None:
        """Remove a connection whose transport is gone."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.churn.connection_closed += 1
            connection.vhost.recv_oct += connection.recv_oct
            connection.vhost.send_oct += connection.send_oct
            self.lasting.disconnected(connection)
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
        try:
            callback()
        finally:
            self.batch.end()

    def _sweep(self) -> None:
        """Return deliveries that were not acknowledged in time; the interval depends on the shortest timeout.

        Only channels are looked at, which have the deliveries; all queues once a minute.
        """
        now = self.timers.now()
        if now >= self._next_rest:
            self._next_rest = now + SWEEP_MS
            self.batch.slices.run(self._rest())
        if not self._giving_back:
            self._giving_back = True
            self.batch.slices.run(self._give_back_overdue(now, self._least_timeout))
        self._next_sweep = self.timers.at(now + self._interval(), self._sweep)

    def _interval(self) -> int:
        return min(SWEEP_MS, max(LEAST_SWEEP_MS, self._least_timeout // 4, self._swept // SWEPT_IN_MS))

    def _rest(self) -> Work:
        """Let all queues rest, and find the shortest consumer timeout that is left."""
        self._found_timeout = self.consumer_timeout
        for queue in [queue for vhost in self.vhosts.values() for queue in vhost.queues.values()]:
            queue.rest()
            self._found_timeout = min(self._found_timeout, queue.settings.consumer_timeout or self._found_timeout)
            yield
        self._least_timeout = self._found_timeout

    def _give_back_overdue(self, now: int, least: int) -> Work:
        swept = 0
        try:
            for connection in tuple(self.connections):
                for _ in connection.give_back_overdue(now, self.consumer_timeout, least):
                    swept += 1
                    yield
        finally:
            self._giving_back = False
            self._swept = swept

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits; open connections keep the values that they have negotiated."""
        self.limits = limits
        self.consumer_timeout = _milliseconds(limits.consumer_timeout)
        self.watch_consumers(self.consumer_timeout)

    def watch_consumers(self, timeout: int) -> None:
        """Check often enough for a queue with this consumer timeout, in milliseconds."""
        self._least_timeout = min(self._least_timeout, timeout)
        self._found_timeout = min(self._found_timeout, timeout)
        soon = self.timers.now() + self._interval()
        if self._next_sweep.deadline > soon:
            self._next_sweep.cancel()
            self._next_sweep = self.timers.at(soon, self._sweep)

    def run_timers(self) -> None:
        """Run the timers that are due: the clock has reached `timers.next_deadline`.

        The batch ends whatever one of them raises; the others are due at once then.
        """
        try:
            self.timers.run()
        except OSError as error:  # a delayed message may be one for a stream
            self.batch.fail(error)
        finally:
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
        self.when_failed(error)

    def drain(self, drained: Callable[[], None]) -> None:
        """Stop reading clients' input; `drained` is called when the confirms of all their publications are sent."""
        self.draining = True
        for connection in tuple(self.connections):
            connection.drain()
        self.batch.slices.finish()  # input that was read already is processed
        self.batch.when_drained(drained)

    def abandon(self) -> None:
        """Undo a failed start: the catalog is not changed."""
        self._close_each(self._abandoning())

    def _abandoning(self) -> Iterator[Callable[[], object]]:
        yield self.catalog.rollback
        yield self.catalog.close
        yield self.logins.verifier.stop
        yield self.batch.commit.stop
        yield self._files.release
        if self.inventory is not None:
            yield self.inventory.close

    def stop(self) -> None:
        """Close the connections, then sync and close the store; after a failure of the store, only close it.

        Everything is closed, though a part of it cannot be: then the first error is raised.
        """
        self._close_each(self._stopping())

    def _stopping(self) -> Iterator[Callable[[], object]]:
        """What `stop` calls, one after the other."""
        for connection in tuple(self.connections):
            reason = ConnectionForced("broker forced connection closure with reason 'shutdown'")
            yield partial(connection.close, reason)
        yield self.batch.slices.finish
        yield self.batch.end
        for vhost in self.vhosts.values():
            kept: tuple[Queue | Delays, ...] = (*vhost.queues.values(), *vhost.delays.values())
            for each in kept:
                if self.batch.failed is None:
                    yield each.close
        if self.batch.failed is None:
            yield self.store.positions.close
            yield self.store.prepared.close
        yield self._close_catalog
        self.batch.rearm = lambda: None  # calls from other threads set no timers any more
        yield self.logins.verifier.stop
        yield self._close_files
        if self.inventory is not None:
            yield self.inventory.close if self.batch.failed is not None or self._unclosed else self.inventory.end

    def _close_each(self, closes: Iterator[Callable[[], object]]) -> None:
        """Call all of them, whatever one of them raises; then raise the first error."""
        for close in closes:
            try:
                close()
            except Exception as error:
                if self._unclosed is not None:
                    log.exception("the broker stops, and this cannot be closed either")
                self._unclosed = self._unclosed or error
        if self._unclosed is not None:
            raise self._unclosed

    def _close_catalog(self) -> None:
        failed = self.batch.failed is not None
        try:
            try:
                if failed:
                    self.catalog.rollback()
                else:
                    self.keep_copy()
            finally:
                self.catalog.close()
        except OSError:
            if not failed:
                raise

    def _close_files(self) -> None:
        if self.batch.commit.stop(None if self.batch.failed is None else FAILED_STOP_SECONDS):
            self._files.release()

    def keep_copy(self) -> None:
        """Have a copy of the catalog beside it, which is known to be good. A failure is only logged."""
        try:
            self.catalog.keep_copy()
        except OSError as error:
            log.warning("the copy of the catalog could not be written: %s", error)


def _said(definition: definitions.VirtualHost) -> dict[str, object]:
    """What an operator says of a virtual host."""
    return {
        "description": definition.description or "",
        "tags": list(definition.tags or ()),
        "default_queue_type": definition.default_queue_type or "",
    }
