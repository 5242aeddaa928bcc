"""Reads bodies of requests: no more than an endpoint takes, no longer than a client may need, few long ones at a time.

A length that is announced is refused before anything of the body is read; one that is not announced (chunks), as soon
as it is exceeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from harebell.admin.answers import Refused

__all__ = ["Bodies", "Left", "Receive"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

SECONDS: Final = 30.0  # for a body of any size, and ...
RATE: Final = 64 << 10  # ... one more for so many bytes
CLOSE: Final = {"connection": "close"}
MOST_BYTES: Final = 256 << 20  # of all bodies that are read at a time


class Left(Exception):
    """The client has left in the middle of its body."""


class Bodies:
    """The bodies that are read now."""

    def __init__(self) -> None:
        self._bytes = 0

    async def read(self, headers: Mapping[str, str], receive: Receive, most: int) -> bytes:
        """The body, of at most so many bytes. Raises Refused, and Left."""
        announced = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            length = most
        else:
            length = int(announced) if announced.isascii() and announced.isdecimal() else 0
        if length > most:
            raise _too_long(most)
        if self._bytes + length > MOST_BYTES:
            raise Refused(503, "overloaded", "Too many long requests are read: try again later")
        self._bytes += length
        try:
            async with asyncio.timeout(SECONDS + length / RATE):
                return await self._read(receive, most)
        except TimeoutError:
            raise Refused(408, "timeout", "The body did not arrive in time", headers=CLOSE) from None
        finally:
            self._bytes -= length

    async def _read(self, receive: Receive, most: int) -> bytes:
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Left
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > most:
                raise _too_long(most)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


def _too_long(most: int) -> Refused:
    return Refused(413, "payload_too_large", f"The body is longer than {most} bytes", headers=CLOSE)
