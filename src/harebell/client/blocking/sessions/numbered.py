"""A session that publishes under its program's numbers (`client.sessions.core.numbered`), for a thread.

It is the client's own: what stands on it is Spark's sink. Every call runs on the I/O thread, for many messages each.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from harebell import errors
from harebell.client.blocking.sessions.connection import Connection
from harebell.client.sessions.calls import Rejection
from harebell.client.sessions.core.numbered import NumberedCore, Run
from harebell.client.sessions.core.settlements import ranges_of
from harebell.client.sessions.messages import transfer_command

__all__ = ["Numbered"]

T = TypeVar("T")

Range = tuple[int, int]  # first and last


class Numbered:
    """The session of that name.

    timeout  seconds that the broker is to keep it without a connection
    force    take it from whoever has it; else SessionDetached
    seconds  to wait for any answer, in each call: of a broker that does nothing
    blocked  to wait until messages are taken or complete, which a broker with an alarm does not do; None: `seconds`.
             How long the connection may be lost is up to the connection
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        timeout: int,
        seconds: float,
        blocked: float | None = None,
        force: bool = True,
    ) -> None:
        self._io = io = connection.io
        self._connection = connection  # kept open
        self._seconds = seconds
        self._blocked = seconds if blocked is None else blocked

        async def opened() -> NumberedCore:
            core = connection.inner.recovery.new_numbered(name, timeout, force=force)
            try:
                await core.opened(seconds)
            except BaseException:
                core.hang_up(keep=True)
                raise
            return core

        self._core = io.run_or_undo(lambda core: core.hang_up(keep=True), opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave it; the broker keeps it."""
        self.hang_up()

    @property
    def resumed(self) -> bool:
        """Whether the broker had the session when it was opened."""
        return self._core.resumed

    @property
    def granted(self) -> int:
        """Seconds that the broker keeps it without a connection."""
        return self._core.granted or 0

    @property
    def next(self) -> int:
        """One more than the highest number that is known of."""
        return self._core.next

    @property
    def pending(self) -> int:
        """How many messages are sent and not complete."""
        return self._core.pending

    @property
    def rejections(self) -> Mapping[int, Rejection]:
        """Those of the broker that were not acted on, by number."""
        with self._io.turn:
            return dict(self._core.rejections)

    def is_complete(self, number: int) -> bool:
        """Whether the message of that number is in its queues, or rejected, or will never be there."""
        with self._io.turn:
            return number in self._core.executed

    def missing(self, low: int, high: int) -> list[Range]:
        """The numbers from `low` to `high` that are not complete, as far as is known."""
        with self._io.turn:
            return self._core.executed.missing(low, high)

    def put(self, first: int, exchange: str | Sequence[str], headers: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Send messages under `first` and the numbers after it, as soon as that is possible.

        headers  of each, with its routing key and its properties (`protocol.conversion.header_columns`)

        Raises what has ended the session, SessionStateLost, DeadlineExceeded, and LocalProtocolError for a number that
        is not the next one and was never sent.
        """
        if isinstance(exchange, str):
            commands: bytes | list[bytes] = transfer_command(exchange)
        else:
            commands = [transfer_command(each) for each in exchange]
        self._patiently(self._core.put, Run(first, commands, headers, bodies))

    def gap(self, numbers: Iterable[int]) -> None:
        """Say that these numbers will not be used any more, or that their messages are known to be there."""
        for ranges in ranges_of(numbers):
            self._patiently(self._core.gap, ranges)

    def settled(self, most: int) -> None:
        """Wait until at most so many messages are incomplete. Raises as `put`."""
        self._patiently(self._core.settled, most)

    def wait(self, number: int) -> None:
        """Wait until that number is complete. Raises as `put`."""
        self._patiently(self._core.done, number)

    def _patiently(self, call: Callable[[T, float], Coroutine[Any, Any, None]], what: T) -> None:
        while True:
            try:
                return self._io.run(call, what, self._blocked)
            except errors.DeadlineExceeded:
                if self._core.connected:
                    raise

    def acted_on(self, numbers: Sequence[int]) -> None:
        """Let the broker forget these rejections: what they lead to is done."""
        with self._io.turn:
            self._io.loop.call_soon(_acted_on, self._core, list(numbers))

    def close(self, *, keep: bool) -> None:
        """Leave the session, and end it unless it is to be kept. One that has ended is no error."""
        self._io.run(self._core.detach, self._seconds, keep=keep)

    def hang_up(self) -> None:
        """Leave the session, which is kept, without waiting for the answer."""
        if self._io.usable:
            with self._io.turn:
                self._io.loop.call_soon(_hang_up, self._core)


def _acted_on(core: NumberedCore, numbers: list[int]) -> None:
    for number in numbers:
        core.acted_on(number)


def _hang_up(core: NumberedCore) -> None:
    core.hang_up(keep=True)
