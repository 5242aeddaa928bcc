"""The broker without its sockets: vhosts, users, connections, the store, and the end of a batch.

A batch is what one connection sent in one read. While it is worked off, work gathers here: queues that have something
to deliver, streams that have something to write, publishers that have something to confirm, connections that have
something to send. `end_batch` does it all once, in that order, so that its cost is per batch and not per message.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from warren.broker.auth import Users
from warren.broker.connection import Connection, Transport
from warren.broker.publisher import Publisher
from warren.broker.queue import Queue
from warren.broker.store.commit import GroupCommit
from warren.broker.store.streams import StreamStore
from warren.broker.stream import StreamQueue
from warren.broker.vhost import VirtualHost
from warren.errors import ConnectionForced, InternalError

__all__ = ["Node"]

log = logging.getLogger("warren.broker")


class Node:
    """One broker.

    data        folder of the store; it is made when missing
    call_soon   runs a callable in this thread, from any thread
    sync        False: publisher confirms do not wait for the disk
    """

    def __init__(self, data: Path, call_soon: Callable[[Callable[[], None]], object], *, sync: bool = True) -> None:
        self.name = f"warren@{socket.gethostname()}"
        self.users = Users()
        self.connections: set[Connection] = set()
        self.vhosts = {"/": VirtualHost(self, "/")}
        self.failed: OSError | None = None
        # What the current batch leaves to do.
        self.scheduled: list[Queue] = []
        self.written: list[StreamQueue] = []
        self.publishing: list[Publisher] = []
        self.unflushed: list[Connection] = []
        self._awaiting: list[Publisher] = []
        self._ending = False
        self.commit = GroupCommit(call_soon, self._synced, self.store_failed, sync=sync)
        self.streams = StreamStore(data / "streams", self.commit)
        for stored in self.streams.recover():
            if stored.log.cut:
                log.warning(
                    "stream '%s' in vhost '%s': cut %d bytes of a torn record at its end",
                    stored.name, stored.vhost, stored.log.cut,
                )  # fmt: skip
            vhost = self.vhosts.setdefault(stored.vhost, VirtualHost(self, stored.vhost))
            vhost.add_queue(StreamQueue(vhost, stored.name, dict(stored.arguments), stored.log))

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
            while self.scheduled or self.written or self.publishing or self.unflushed:
                ticket = 0
                try:
                    ticket = self._write_streams()
                    self._deliver()
                except OSError as error:
                    self.store_failed(error)
                publishers, self.publishing = self.publishing, []
                self._awaiting += [publisher for publisher in publishers if publisher.end_batch(ticket)]
                connections, self.unflushed = self.unflushed, []
                for connection in connections:
                    connection.flush()
        finally:
            self._ending = False

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
        self._awaiting = [publisher for publisher in self._awaiting if publisher.confirm()]
        self.end_batch()

    def store_failed(self, error: OSError) -> None:
        """The disk refused. Nothing is confirmed any more, and everybody is told."""
        if self.failed is None:
            self.failed = error
            log.critical("the store failed, the broker stops: %s", error)
            self._awaiting.clear()
            self.publishing.clear()
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
