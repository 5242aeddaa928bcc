"""The socket of a connection, as the connection uses it, and the connection, as its socket uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harebell.broker.clients import Connection

__all__ = ["Client", "Transport"]


class Transport(Protocol):
    """The socket of a connection."""

    peer: str  # "127.0.0.1:50212", for log lines
    local: str  # the broker's end: "127.0.0.1:5672"
    peer_host: str
    tls: tuple[str, str] | None  # protocol and cipher, by OpenSSL's names
    certificate_user: str | None  # the name in the client's TLS certificate, where one was verified

    @property
    def unsent(self) -> int:
        """The number of written bytes that the socket has not taken."""

    def write(self, data: bytes | memoryview) -> None: ...
    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces in order; long ones are not copied, where that costs less."""

    def close(self, after: float = 0.0) -> None:
        """End the connection when the written output is sent, `after` seconds from now."""

    def finish(self, within: float) -> None:
        """End the output when what is written is sent, and read on until the client closes, `within` seconds at most.

        Closing a socket with unread input would discard the output (RFC 1122, 4.2.2.13), and reset the client's
        threads that still send.
        """

    def set_heartbeat(self, seconds: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Client(Connection, Protocol):
    """The connection of a socket. `writable` is False while the socket takes no more output."""

    writable: bool
    heartbeat_frame: bytes

    @property
    def paused(self) -> bool:
        """Whether the socket is not read: then the client's silence is no sign of a dead one."""

    def receive_data(self, data: bytes) -> None: ...
    def resume(self) -> None:
        """The socket takes output again."""

    def lost(self) -> None:
        """The socket is gone."""
