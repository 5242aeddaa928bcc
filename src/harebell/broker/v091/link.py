"""A connection as its channels and their parts know it: its client, its batch, and the user that is logged in."""

from __future__ import annotations

from typing import Protocol

from harebell.broker.auth import Access
from harebell.broker.batch import Batch
from harebell.broker.clients import Connection
from harebell.broker.node import Node
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.queues.base import Queue
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError
from harebell.protocol.v091 import Engine, methods as m

__all__ = ["Link"]


class Link(Connection, Protocol):
    """`writable` is False while the socket takes no more output."""

    node: Node
    vhost: VirtualHost
    access: Access
    batch: Batch
    engine: Engine
    writable: bool
    exclusive_queues: list[Queue]

    def send(self, number: int, method: m.Method, frames: bytes = b"") -> None:
        """Send a method on a channel, with the frames of a content where the method carries one."""

    def listens(self, number: int) -> bool:
        """Whether the client takes anything on that channel but a close-ok."""

    def has_output(self, size: int) -> None:
        """The engine holds output of about `size` bytes more."""

    def capability(self, name: str) -> bool:
        """Whether the client said that it understands an extension."""

    def refuse_channel(self, number: int, error: AmqpError) -> None:
        """Close a channel for something that no method of the client's asked for."""

    def remember_target(self) -> None:
        """A publisher remembers one more target."""

    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Give deliveries of that channel more time; their tags."""
