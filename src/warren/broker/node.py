"""The broker without its sockets: vhosts, users, connections, the store, and the end of a batch.

A batch is what one connection sent in one read. While it is worked off, work gathers here: queues that have something
to deliver, streams that have something to write, publishers that have something to confirm, connections that have
something to send. `end_batch` does it all once, in that order, so that its cost is per batch and not per message.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from warren.broker.auth import Users
from warren.broker.confirms import Confirms
from warren.broker.connection import Connection, Transport
from warren.broker.limits import check_vhost_limits
from warren.broker.parameters import Component, Parameters, no_vhost
from warren.broker.queue import Queue
from warren.broker.store.commit import GroupCommit
from warren.broker.store.streams import StreamStore
from warren.broker.stream import StreamQueue
from warren.broker.timers import Timers
from warren.broker.vhost import VirtualHost, described
from warren.errors import ConnectionForced, InternalError
from warren.routing import definitions
from warren.routing.settings import queue_settings

__all__ = ["Node"]

CONSUMER_TIMEOUT_MS: Final = 1_800_000  # RabbitMQ's default, half an hour
SWEEP_MS: Final = 60_000  # between two looks for overdue acknowledgements, at most

log = logging.getLogger("warren.broker")


def _nothing() -> None:
    pass


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Node:
    """One broker.

    data        folder of the store; it is made when missing
    call_soon   runs a callable in this thread, from any thread
    sync        False: publisher confirms do not wait for the disk
    clock       milliseconds that never go back
    components  what acts on parameters, by the name of their component
    """

    def __init__(
        self,
        data: Path,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        sync: bool = True,
        clock: Callable[[], int] = monotonic_ms,
        components: Mapping[str, Component] | None = None,
    ) -> None:
        self.name = f"warren@{socket.gethostname()}"
        self.users = Users()
        self.connections: set[Connection] = set()
        self.timers = Timers(clock)
        self.consumer_timeout = CONSUMER_TIMEOUT_MS
        self._next_sweep = self.timers.at(self.timers.now() + SWEEP_MS, self._sweep)
        self.vhosts: dict[str, VirtualHost] = {}
        self.parameters = Parameters(self.vhosts, components)
        self.add_vhost(definitions.VirtualHost("/", description="Default virtual host"))
        self.lobby = VirtualHost(self, "")  # where a connection is before it says which virtual host it wants
        self.alarms: set[str] = set()
        self.failed: OSError | None = None
        # What the current batch leaves to do.
        self.scheduled: list[Queue] = []
        self.written: list[StreamQueue] = []
        self.confirming: list[Confirms] = []
        self.unflushed: list[Connection] = []
        self._awaiting: list[Confirms] = []
        self._ending = False
        self.rearm: Callable[[], None] = _nothing  # told after each batch: the next deadline may have changed
        self.commit = GroupCommit(call_soon, self._synced, self.store_failed, sync=sync)
        self.streams = StreamStore(data / "streams", self.commit)
        for stored in self.streams.recover():
            if stored.log.cut:
                log.warning(
                    "stream '%s' in vhost '%s': cut %d bytes of a torn record at its end",
                    stored.name, stored.vhost, stored.log.cut,
                )  # fmt: skip
            if stored.vhost not in self.vhosts:
                self.add_vhost(definitions.VirtualHost(stored.vhost))  # whoever defines it again finds its streams
            vhost = self.vhosts[stored.vhost]
            where = f"queue '{stored.name}' in vhost '{stored.vhost}'"
            settings = queue_settings(stored.arguments, where)
            vhost.add_queue(StreamQueue(vhost, stored.name, dict(stored.arguments), settings, stored.log))

    def add_vhost(self, definition: definitions.VirtualHost) -> VirtualHost:
        """The virtual host, made, or given what the definition says of it if it is there.

        Description, tags and default queue type are also taken from the definition's metadata, where RabbitMQ 3.10
        writes them; limits, when it has any, become the parameter that they are. InvalidArgument for what cannot be.
        """
        definition = described(definition)
        check_vhost_limits(definition.limits or {})
        vhost = self.vhosts.get(definition.name)
        if vhost is None:
            vhost = self.vhosts[definition.name] = VirtualHost(self, definition.name)
        vhost.definition = definition
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
        try:
            vhost.clear()
        except OSError as error:
            self.store_failed(error)
        self.users.forget_vhost(name)
        self.parameters.forget_vhost(name)
        self.end_batch()

    def accept(self, transport: Transport) -> Connection:
        connection = Connection(self, transport)
        self.connections.add(connection)
        return connection

    def end_batch(self) -> None:
        """Write streams, deliver, confirm, and hand output to the transports."""
        if self._ending:
            return  # a transport that pauses or fails inside a flush ends up here; the loop below goes on
        self._ending = True
        try:
            while self.scheduled or self.written or self.confirming or self.unflushed:
                ticket = 0
                try:
                    ticket = self._write_streams()
                    self._deliver()
                except OSError as error:
                    self.store_failed(error)
                confirming, self.confirming = self.confirming, []
                self._awaiting += [confirms for confirms in confirming if confirms.end_batch(ticket)]
                connections, self.unflushed = self.unflushed, []
                for connection in connections:
                    connection.flush()
        finally:
            self._ending = False
        self.rearm()

    def _sweep(self) -> None:
        """Look for deliveries that nobody acknowledged in time; how often follows from the shortest timeout."""
        queues = [queue for vhost in self.vhosts.values() for queue in vhost.queues.values()]
        timeouts = [queue.settings.consumer_timeout or self.consumer_timeout for queue in queues]
        least = min(timeouts, default=self.consumer_timeout)
        now = self.timers.now()
        for connection in tuple(self.connections):
            connection.give_back_overdue(now, self.consumer_timeout, least)
        self._next_sweep = self.timers.at(now + min(SWEEP_MS, max(1, least // 4)), self._sweep)

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

    def _write_streams(self) -> int:
        ticket = 0
        written, self.written = self.written, []
        for stream in written:
            if not stream.deleted:
                ticket = max(ticket, stream.flush())
                stream.advance()
        return ticket

    def _deliver(self) -> None:
        scheduled = self.scheduled
        while scheduled:
            queue = scheduled.pop()
            queue.scheduled = False
            if not queue.deleted:
                queue.deliver()

    def _synced(self) -> None:
        """A group commit is done: let readers see it, and confirm what waited for it."""
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if isinstance(queue, StreamQueue):
                    queue.advance()
        self._awaiting = [confirms for confirms in self._awaiting if confirms.confirm()]
        self.end_batch()

    def raise_alarm(self, resource: str) -> None:
        """Publishers are blocked from their next message on, because the broker is low on it ("memory", "disk")."""
        self.alarms.add(resource)

    def clear_alarm(self, resource: str) -> None:
        self.alarms.discard(resource)
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
            self.confirming.clear()
            for connection in tuple(self.connections):
                connection.close(InternalError(f"the broker's store failed: {error.strerror}"))
            self.end_batch()

    def stop(self) -> None:
        """Say goodbye to the connections, sync and close the store."""
        for connection in tuple(self.connections):
            connection.close(ConnectionForced("broker forced connection closure with reason 'shutdown'"))
        self.end_batch()
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if isinstance(queue, StreamQueue) and self.failed is None:
                    queue.log.close()
        self.commit.stop()
