"""Commands on their way: what is kept of one to send it again, and what waits for its completion.

An outcome is a value, never an exception in a future: asyncio complains of those that nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.protocol.v010 import Command, Struct
from harebell.protocol.v010.codec import encode_command
from harebell.protocol.v010.domains import RejectCode

__all__ = ["Acquisition", "Batch", "Call", "Rejection", "Sent", "Waiting"]

OVERHEAD = 64  # bytes that a command costs beside its own


class Sent:
    """A command as it is kept to be sent again: its payload, and the header and the body of a transfer.

    Raises LocalProtocolError when a field does not fit the wire.
    """

    __slots__ = ("body", "header", "payload")

    def __init__(self, command: Command | bytes, header: bytes = b"", body: bytes = b"") -> None:
        self.payload = command if isinstance(command, bytes) else encode_command(command)
        self.header = header
        self.body = body

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.payload) + len(self.header) + len(self.body)


class Rejection:
    """A transfer that the broker did not take: message.reject's code and text."""

    __slots__ = ("code", "text")

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text

    def error(self, number: int, exchange: str, routing_key: str) -> errors.HarebellError:
        """Unroutable, or Nacked with the number of the transfer."""
        where = f"exchange {exchange!r}, routing key {routing_key!r}"
        if self.code in (RejectCode.UNROUTABLE, RejectCode.IMMEDIATE):
            return errors.Unroutable(f"{where}: {self.text}")
        return errors.Nacked(f"{where}: {self.text}", (number,))


class Waiting(Protocol):
    """What waits for the completion of commands."""

    def completed(self, number: int) -> None: ...
    def resulted(self, result: Struct) -> None: ...
    def rejected(self, number: int, rejection: Rejection) -> None: ...
    def failed(self, error: errors.HarebellError) -> None:
        """The session has ended, or its state is lost."""


class Call:
    """One command; `number` once it was sent."""

    __slots__ = ("future", "number", "rejection", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[errors.HarebellError | None] = loop.create_future()
        self.number: int | None = None
        self.result: Struct | None = None
        self.rejection: Rejection | None = None

    def completed(self, number: int) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def resulted(self, result: Struct) -> None:
        self.result = result

    def rejected(self, number: int, rejection: Rejection) -> None:
        self.rejection = rejection

    def failed(self, error: errors.HarebellError) -> None:
        if not self.future.done():
            self.future.set_result(copy_of(error))


class Acquisition(Call):
    """message.acquire; `give_back` gets the result when nobody waits for it any more."""

    __slots__ = ("_complete", "_give_back", "_given_up")

    def __init__(self, loop: asyncio.AbstractEventLoop, give_back: Callable[[Struct | None], None]) -> None:
        super().__init__(loop)
        self._give_back = give_back
        self._complete = self._given_up = False

    def completed(self, number: int) -> None:
        self._complete = True
        if self._given_up:
            self._give_back(self.result)
        super().completed(number)

    def give_up(self) -> None:
        """Give back what is acquired, or will be."""
        self._given_up = True
        if self._complete:
            self._give_back(self.result)


class Batch:
    """Many transfers: those that are incomplete, by number, and those that the broker rejected, by position.

    incomplete  (position, exchange, routing key); positions count from 0
    error       what has ended the session
    """

    __slots__ = ("_changed", "_loop", "_rejections", "error", "failures", "incomplete")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed: asyncio.Future[object] | None = None
        self._rejections: dict[int, Rejection] = {}
        self.incomplete: dict[int, tuple[int, str, str]] = {}
        self.failures: dict[int, errors.HarebellError] = {}
        self.error: errors.HarebellError | None = None

    def completed(self, number: int) -> None:
        position, exchange, routing_key = self.incomplete.pop(number)
        rejection = self._rejections.pop(number, None)
        if rejection is not None:
            self.failures[position] = rejection.error(number, exchange, routing_key)
        self._wake()

    def resulted(self, result: Struct) -> None:
        """Nothing: a transfer has no result."""

    def rejected(self, number: int, rejection: Rejection) -> None:
        self._rejections[number] = rejection

    def failed(self, error: errors.HarebellError) -> None:
        if self.error is None:
            self.error = copy_of(error)
        self._wake()

    def change(self) -> asyncio.Future[object]:
        """Done at the next change."""
        self._changed = self._loop.create_future()
        return self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
