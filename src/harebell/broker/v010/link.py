"""The part of a connection that its sessions use."""

from __future__ import annotations

from typing import Protocol

from harebell.broker.auth import Access
from harebell.broker.batch import Batch
from harebell.broker.clients import Connection
from harebell.broker.node import Node
from harebell.broker.slices import Work
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError, RemoteProtocolError
from harebell.protocol.v010 import Command, Content, Control, Engine, OversizedContent
from harebell.protocol.v010.transfers import Transfers

__all__ = ["Happening", "Link"]

Happening = Control | Command | Content | Transfers | OversizedContent | RemoteProtocolError
"""What a client sent, or an error of its that ends one session."""


class Link(Connection, Protocol):
    """A connection for its sessions. `writable` is False while the socket takes no more output."""

    node: Node
    vhost: VirtualHost
    access: Access
    batch: Batch
    engine: Engine
    writable: bool

    def work(self, number: int, event: Happening, work: Work) -> None:
        """Process a long command of a session in slices; the connection's input waits until that is done."""

    def spend(self, count: int) -> None:
        """Count publications to `count` queues: after a slice of them, the connection's further input waits."""

    def has_output(self, size: int) -> None:
        """Note about `size` bytes of output in the engine."""

    def reports(self, number: int) -> None:
        """Note that the session on this channel may have completions to report with the batch."""

    def leave(self, number: int, *, ended: bool = False) -> None:
        """Note that the channel has no session any more; `ended`: the session is over."""

    def expel(self, number: int, name: bytes) -> None:
        """Tell the client that another connection has taken its session."""

    def close(self, error: AmqpError) -> None: ...
