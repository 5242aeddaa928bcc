"""The parts of clients that the node, limits, events and statistics use, whatever their dialect.

A dialect's connection, channel (or session) and subscription have at least these members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from harebell.broker.counts import ChannelCounts
from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.errors import AmqpError
from harebell.protocol.v091 import Table
from harebell.routing.steps import Steps

__all__ = ["Channel", "Connection", "Session", "Subscription", "Tenancy"]


class Tenancy(Protocol):
    """The virtual host that a connection is in, with the bytes of its closed connections."""

    name: str
    recv_oct: int
    send_oct: int


class Connection(Protocol):
    """One client's connection.

    pid, name           its names: the broker's own, and that made of its two ends
    peer, local         the ends, as "address:port"
    user, mechanism     the user and the mechanism of its login; "" before that
    heartbeat           seconds; connected_at: milliseconds since 1970
    recv_..., send_...  bytes, reads and writes
    """

    pid: str
    user: str
    mechanism: str
    heartbeat: int
    connected_at: int
    client_properties: Table
    recv_oct: int
    recv_cnt: int
    send_oct: int
    send_cnt: int

    @property
    def name(self) -> str: ...
    @property
    def peer(self) -> str: ...
    @property
    def local(self) -> str: ...
    @property
    def tls(self) -> tuple[str, str] | None:
        """The protocol and the cipher, by OpenSSL's names; None without TLS."""

    @property
    def protocol(self) -> str:
        """The dialect, with the name in RabbitMQ's events: "{0,9,1}"."""

    @property
    def frame_max(self) -> int: ...
    @property
    def channel_max(self) -> int: ...
    @property
    def unsent(self) -> int:
        """The bytes of output that its socket has not taken yet."""

    @property
    def state(self) -> str:
        """The state as RabbitMQ names it: starting, running, blocked, flow, closing, closed."""

    @property
    def is_open(self) -> bool:
        """Whether the client is logged in, in a virtual host, and not closing."""

    @property
    def vhost(self) -> Tenancy: ...
    @property
    def channels(self) -> Mapping[int, Channel]: ...

    def close(self, error: AmqpError) -> None:
        """Close the connection with a reply code."""

    def retract(self) -> None:
        """Drop output that is not sent yet: the broker could not store what it confirms."""

    def unblock(self) -> None:
        """Process deferred publications: the last alarm is over."""

    def drain(self) -> None:
        """Stop reading: the broker is about to stop."""

    def give_back_overdue(self, now: int, default: int, least: int) -> Work:
        """Return deliveries that were not acknowledged within their queue's consumer timeout to their queues, in steps.

        `default` is the timeout of queues without one of their own, `least` the smallest one; milliseconds.
        """


class Channel(Protocol):
    """One channel or session of a connection. `counts` are up to date after `flush_counts`."""

    pid: str
    number: int
    counts: ChannelCounts

    @property
    def connection(self) -> Connection: ...
    @property
    def consumers(self) -> Mapping[str, Subscription]:
        """The channel's consumers, by tag."""

    @property
    def confirming(self) -> bool:
        """Whether its publications are confirmed."""

    @property
    def transactional(self) -> bool: ...
    @property
    def unconfirmed(self) -> int:
        """The number of publications that are neither confirmed nor refused yet."""

    @property
    def uncommitted(self) -> int:
        """The number of publications in the current transaction."""

    @property
    def unacked_count(self) -> int:
        """The number of deliveries that are not acknowledged."""

    @property
    def oldest_unacked(self) -> int | None:
        """The number of the oldest delivery that is not acknowledged; None: there is none."""

    @property
    def last_delivery(self) -> int:
        """The number of its last delivery. Later ones have higher numbers."""

    @property
    def prefetch_count(self) -> int:
        """The prefetch of its later consumers; 0: none."""

    @property
    def global_prefetch_count(self) -> int:
        """The prefetch of all its consumers together; 0: none."""

    @property
    def uncommitted_acks(self) -> int:
        """The number of acknowledgements in the current transaction."""

    def counting_unacked(self) -> Steps[Mapping[Queue, int]]:
        """The number of unacknowledged deliveries of each queue, in steps if they must be visited one by one."""

    def unacked_shares(self) -> Iterator[Sequence[tuple[int, object]]]:
        """The unacknowledged deliveries in shares: the number of each, and its consumer; None: basic.get.

        What is acknowledged between two shares may be left out.
        """

    def flush_counts(self) -> None:
        """Bring `counts`, and those of queues and exchanges, up to date."""


class Session(Channel, Protocol):
    """One session of AMQP 0-10.

    session_name  its name, of any bytes; user: whose it is
    attached      whether it has a connection now
    timeout       seconds that it outlives a connection; ends_at: when it ends without one, by the node's timers
    """

    session_name: bytes
    user: str
    attached: bool
    timeout: int
    ends_at: int | None

    @property
    def vhost(self) -> Tenancy: ...
    @property
    def kept_bytes(self) -> int:
        """About the bytes of memory that it holds."""

    def expel(self, error: AmqpError) -> Work:
        """End it in somebody else's name; a client that is attached gets the error."""


class Subscription(Protocol):
    """One consumer of a channel."""

    tag: str
    exclusive: bool
    no_ack: bool
    prefetch: int
    arguments: Table

    @property
    def channel(self) -> Channel: ...
    @property
    def queue(self) -> Queue: ...
