"""A shovel: runs sessions one after the other, until all messages are moved.

Rules:

- Whatever ends a session (a lost connection on either side, a closed channel, a deleted queue), the shovel connects
  both sides again, after 0.1 s at first, then twice as long each time, at most the reconnect delay; it starts at 0.1 s
  again once a session has moved a message, or has lasted. Half of the wait is random, so that many shovels do not
  connect at once.
- A patient shovel retries after every error, because operators may repair the cause. One that is not patient ends
  where a retry would not help: at a refusal, and at a broker that was never reached.
- Only `run` connects again: a session knows one pair of connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from socket import socket
from typing import Final, Literal

from harebell.bridge.options import ShovelOptions, is_local
from harebell.bridge.progress import Progress
from harebell.bridge.rewriting import Rewriter
from harebell.bridge.session import Session, at
from harebell.client.connection import Connection, connect
from harebell.client.recovery.policy import Backoff
from harebell.client.url import parse_url
from harebell.errors import (
    ChannelClosed,
    ConnectionForced,
    ConnectionLost,
    ConsumerCancelled,
    DeadlineExceeded,
    HarebellError,
    InternalError,
    ShovelEnded,
)
from harebell.protocol.v091 import Table

__all__ = ["Shovel", "State"]

log = logging.getLogger("harebell.bridge")

FIRST_DELAY: Final = 0.1  # seconds, at most

State = Literal["starting", "running", "terminated"]

# A broker that stops or starts; every other error is its answer.
PASSING: Final = (
    ChannelClosed,
    ConnectionForced,
    ConnectionLost,
    ConsumerCancelled,
    DeadlineExceeded,
    InternalError,
)


class Shovel:
    """Moves messages from one broker to another.

    options      from where to where, and how
    name         what the log calls it
    patient      retry after every error; False: raise errors that a retry would not cure
    until_empty  end when the source queue is empty, or when nothing more comes from a stream
    about        the first entries of x-shovelled, with forward headers
    open_local   opens a socket to the broker that URIs without a host mean

    state       "starting", "running", or "terminated": ended, or waiting for the next attempt
    expected    how many messages there were to move at the start; None until that is known
    forwarded   how many the destination has confirmed; after a lost connection some of them are counted twice, because
                they were delivered twice
    lost        refused by the destination with ack-mode on-publish or no-ack; always 0 with on-confirm
    redials     how many sessions were lost
    attempts    how many attempts failed in a row, which sets the next wait
    last_error  why the last session ended or could not begin; None without an error
    """

    def __init__(
        self,
        options: ShovelOptions,
        name: str = "shovel",
        *,
        patient: bool = True,
        until_empty: bool = False,
        about: Table | None = None,
        open_local: Callable[[], Awaitable[socket]] | None = None,
    ) -> None:
        self.options = options
        self.name = name
        self.about: Table = about or {}
        self._patient = patient
        self._open_local = open_local
        self.state: State = "starting"
        limit = options.source.delete_after if isinstance(options.source.delete_after, int) else None
        self._progress = Progress(limit, until_empty=until_empty)
        self.redials = 0
        self.last_error: str | None = None
        self._session: Session | None = None
        self._has_run = False
        self.attempts = 0
        self._began = (0, 0.0)  # messages and time, at the start of the session

    @property
    def stopping(self) -> asyncio.Event:
        """The event that `stop` sets."""
        return self._progress.stopping

    @property
    def expected(self) -> int | None:
        return self._progress.expected

    @property
    def forwarded(self) -> int:
        return self._progress.forwarded

    @property
    def left(self) -> int | None:
        """How many messages are still to be moved; None: no end is set."""
        return self._progress.left(self._lost_now)

    @property
    def next_offset(self) -> int | None:
        """The stream offset to continue at; None at its beginning."""
        return self._progress.next_offset

    @property
    def lost(self) -> int:
        return self._progress.lost + self._lost_now

    @property
    def _lost_now(self) -> int:
        return 0 if self._session is None else self._session.window.lost

    @property
    def pending(self) -> int:
        """The number of messages on their way now."""
        return 0 if self._session is None else self._session.window.pending

    @property
    def refusal(self) -> str | None:
        """Why the destination does not take a message now; None when it takes all."""
        return None if self._session is None else self._session.window.refusal

    def stop(self) -> None:
        """Make `run` receive no more messages, wait for the confirms of those on their way, and return."""
        self.stopping.set()

    async def run(self) -> None:
        """Move messages until all are moved, or until `stop`. Raises ShovelEnded when the shovel gives up."""
        try:
            while not self.stopping.is_set():
                self.state = "starting"
                try:
                    await self._once()
                    return
                except HarebellError as error:
                    self.state = "terminated"
                    self.last_error = _told(error)
                    if self.stopping.is_set():
                        log.warning("%s: stopped while it was cut off: %s", self.name, self.last_error)
                        return
                    if not self._tries_again(error):
                        raise ShovelEnded(self.last_error) from error
                    self.redials += 1
                await self._pause()
        finally:
            self.state = "terminated"

    async def _once(self) -> None:
        async with AsyncExitStack() as stack:
            source, source_uri = await self._dial(stack, "source", self.options.source.uris)
            destination, destination_uri = await self._dial(stack, "destination", self.options.destination.uris)
            rewriter = Rewriter(self.options, source_uri, destination_uri, self.about)
            session = Session(
                self.options,
                self._progress,
                source,
                destination,
                rewriter,
                name=self.name,
                running=self._running,
                ended=self._ended,
            )
            await session.run()

    def _running(self, session: Session) -> None:
        self._session = session
        self._has_run = True
        self._began = (self.forwarded, asyncio.get_running_loop().time())
        self.state = "running"
        log.info("%s: running", self.name)

    def _ended(self) -> None:
        self._progress.lost += self._lost_now
        self._session = None
        forwarded, since = self._began
        if self.forwarded > forwarded or asyncio.get_running_loop().time() - since > self.options.reconnect_delay:
            self.attempts = 0

    async def _dial(self, stack: AsyncExitStack, end: str, uris: tuple[str, ...]) -> tuple[Connection, str]:
        """A connection to the first URI that answers, and that URI."""
        for number, uri in enumerate(uris, 1):
            try:
                with at(end, parse_url(uri).peer):
                    sock = await self._open_local() if is_local(uri) and self._open_local is not None else None
                    connection = await connect(uri, sock=sock, recovery=None)
            except HarebellError as error:
                if number == len(uris):
                    raise
                log.info("%s: %s; trying the next URI", self.name, _told(error))
                continue
            stack.push_async_exit(connection)
            return connection, uri
        raise ShovelEnded(f"no URI for the {end}")

    def _tries_again(self, error: HarebellError) -> bool:
        if not self.options.reconnect_delay:
            return False
        return self._patient or (self._has_run and isinstance(error, PASSING))

    async def _pause(self) -> None:
        longest = self.options.reconnect_delay
        self.attempts += 1
        delay = Backoff(min(FIRST_DELAY, longest), longest).delay(self.attempts)
        log.warning("%s: %s; next attempt in %.1f s", self.name, self.last_error, delay)
        try:
            await asyncio.wait_for(self.stopping.wait(), delay)
        except TimeoutError:
            pass


def _told(error: HarebellError) -> str:
    """The error's text with the end at which it happened."""
    return ": ".join([*getattr(error, "__notes__", ()), str(error)])
