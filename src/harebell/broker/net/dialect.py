"""Which dialect a client speaks: its first eight bytes say so, on one port for both."""

from __future__ import annotations

from typing import Final

from harebell.protocol.v010.frames import PROTOCOL_HEADER

__all__ = ["FirstBytes"]

SIZE: Final = len(PROTOCOL_HEADER)


class FirstBytes:
    """The first bytes of a client, until they show its dialect.

    Whatever is not the header of AMQP 0-10 is for 0-9-1, which answers 0-8, 0-9 and headers that nobody knows too.
    """

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> tuple[bytes, bool] | None:
        """All bytes so far, and whether they are of AMQP 0-10; None while that is open."""
        self._data += data
        if PROTOCOL_HEADER.startswith(self._data) and len(self._data) < SIZE:
            return None
        return self._data, self._data.startswith(PROTOCOL_HEADER)
