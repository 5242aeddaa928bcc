"""The part of a connection that its channels and their parts use: its client, its batch, and the logged-in user."""

from __future__ import annotations

from typing import Protocol

from harebell.broker.audit import Origin
from harebell.broker.auth import Access
from harebell.broker.batch import Batch
from harebell.broker.clients import Channel, Connection
from harebell.broker.node import Node
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError
from harebell.protocol.v091 import Engine, methods as m

__all__ = ["Link"]


class Link(Connection, Protocol):
    """A connection for its channels. `writable` is False while the socket takes no more output."""

    node: Node
    vhost: VirtualHost
    access: Access
    batch: Batch
    engine: Engine
    writable: bool
    exclusive_queues: list[Queue]

    @property
    def origin(self) -> Origin:
        """Who asks, for the audit log."""

    def work(self, number: int, method: m.Method, work: Work) -> None:
        """Process a long method of a channel in slices; the connection's input waits until that is done.

        The work may raise AmqpError, as a method's handler.
        """

    def spend(self, count: int) -> None:
        """Count publications to `count` queues: after a slice of them, the connection's further input waits."""

    def send(self, number: int, method: m.Method, frames: bytes = b"") -> None:
        """Send a method on a channel, with the frames of a content where the method carries one."""

    def listens(self, number: int) -> bool:
        """Whether the client accepts more than a close-ok on that channel."""

    def has_output(self, size: int) -> None:
        """Note about `size` bytes of output in the engine."""

    def capability(self, name: str) -> bool:
        """Whether the client announced this capability."""

    def refuse_channel(self, channel: Channel, error: AmqpError) -> None:
        """Close a channel because of an error that no method caused, if it is still one of the connection's."""

    def remember_target(self) -> None:
        """Count one more cached target."""

    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Grant deliveries of that channel a lease. Returns their tags."""
