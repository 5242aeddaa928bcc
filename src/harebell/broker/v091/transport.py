"""The socket of a connection, as the connection uses it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Transport"]


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
