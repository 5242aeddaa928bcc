"""How a connection of AMQP 0-10 comes back: one task dials after a loss, and attaches the sessions again.

What is lost with a transport, and what goes on, is each session's (`core`).
"""

from __future__ import annotations

import asyncio
import logging

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.recovery.policy import Backoff, Pauses
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.core.transport import SessionTransport
from harebell.client.transport.deadlines import Deadlines
from harebell.client.transport.dialling import Dialer

__all__ = ["SessionRecovery"]

logger = logging.getLogger("harebell.client")


class SessionRecovery:
    """One connection, over every transport that carries it; the `Home` of its sessions.

    timeout    seconds of a call that does not say otherwise
    transport  the present one, or the last
    reviving   the task that dials, while there is no connection
    reason     why the connection is closed for good; then `over` is done
    """

    transport: SessionTransport

    def __init__(self, dialer: Dialer[SessionTransport], backoff: Backoff | None, give_up_after: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)
        self.timeout = dialer.hosts[0].timeout
        self.reviving: asyncio.Task[None] | None = None
        self.reason: errors.HarebellError | None = None
        self.over: asyncio.Future[None] = self.loop.create_future()
        self._dialer = dialer
        self._backoff = backoff
        self._pauses = None if backoff is None else Pauses(backoff)
        self._give_up_after = give_up_after
        self._cores: dict[str, SessionCore] = {}
        self._later: dict[SessionCore, asyncio.TimerHandle] = {}

    @property
    def peers(self) -> str:
        """The hosts, for error texts."""
        return self._dialer.peers

    # -- dialling ----------------------------------------------------------------------------------------------------

    async def first_dial(self) -> None:
        """Dial for the first time: once, to each host."""
        self._carry(await self._dialer.dial(self.timeout, _dialling))

    def _carry(self, transport: SessionTransport) -> None:
        """Go on with an open transport."""
        self.transport = transport
        transport.on_end = self._lost
        if self._pauses is not None:
            self._pauses.succeeded(self.loop.time())
        for core in tuple(self._cores.values()):
            self._attach(core)

    def _lost(self, reason: errors.HarebellError) -> None:
        if self.reason is not None:
            return
        if self._pauses is None:
            self._end(reason)
            return
        if self.reviving is None:
            told = "; ".join([str(reason), *getattr(reason, "__notes__", ())])  # one of them names the peer
            logger.warning("connection lost: %s", told)
            self.reviving = self.loop.create_task(self._revive(self._pauses, reason))
            self.reviving.add_done_callback(self._revived)

    async def _revive(self, pauses: Pauses, error: BaseException) -> None:
        """Dial again and again until that was successful."""
        began = self.loop.time()
        while True:
            delay = pauses.next(self.loop.time())
            if self._give_up_after is not None and self.loop.time() + delay - began > self._give_up_after:
                gave_up = errors.RecoveryGaveUp(f"no connection to {self.peers} for {self._give_up_after:g} s: {error}")
                gave_up.__cause__ = error
                self._end(gave_up)
                return
            await asyncio.sleep(delay)
            try:
                transport = await self._dialer.dial(self.timeout, _dialling)
            except errors.HarebellError as failed:
                error = failed
                continue
            except Exception as failed:  # the program's credentials
                logger.warning("the credentials for %s cannot be had: %r", self.peers, failed)
                error = failed
                continue
            self.reviving = None
            self._carry(transport)
            return

    def _revived(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake in the recovery itself. Without this, every call would wait for its deadline.
            logger.critical("recovery failed", exc_info=error)
            self._end(errors.ConnectionLost(f"recovery failed: {error!r}"))

    # -- sessions ----------------------------------------------------------------------------------------------------

    def new_session(self, name: str, timeout: int, *, force: bool) -> SessionCore:
        """A session that is being attached. ChannelClosed; InvalidArgument where the name is in use."""
        if self.reason is not None:
            raise errors.ChannelClosed(f"the connection is closed: {self.reason}") from self.reason
        if name in self._cores:
            raise errors.InvalidArgument(f"this connection has a session '{name}' already")
        core = self._cores[name] = SessionCore(self, name, timeout, force=force)
        if self.reviving is None:
            self._attach(core)
        return core

    def _attach(self, core: SessionCore) -> None:
        """Attach a session to a free channel of the present transport."""
        self._cancel_later(core)
        transport = self.transport
        if transport.reason is not None or core.reason is not None:
            return
        for channel in range(transport.engine.channel_max):
            if channel not in transport.channels and channel not in transport.engine.attachments:
                core.attach(transport, channel)
                return
        core.end(errors.ResourceError(f"the connection has {transport.engine.channel_max} sessions, and takes no more"))

    def attach_later(self, core: SessionCore) -> None:
        pauses = Pauses(self._backoff or Backoff())
        self._later[core] = self.loop.call_later(pauses.next(self.loop.time()), self._attach, core)

    def _cancel_later(self, core: SessionCore) -> None:
        timer = self._later.pop(core, None)
        if timer is not None:
            timer.cancel()

    def forget(self, core: SessionCore) -> None:
        self._cancel_later(core)
        if self._cores.get(core.name) is core:
            del self._cores[core.name]

    # -- the end -----------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> SessionTransport:
        """Close the connection, without waiting for the answer; the transport is gone when it has come."""
        self.transport.close()
        self._end(errors.ChannelClosed("the connection was closed by this client"))
        return self.transport

    def _end(self, reason: errors.HarebellError) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        if self.reviving is not None and self.reviving is not asyncio.current_task():
            self.reviving.cancel()
        for core in tuple(self._cores.values()):
            core.end(copy_of(reason))
        self.deadlines.close()
        if not self.over.done():
            self.over.set_result(None)


def _dialling(peer: str) -> None:
    """Nobody is told which host is dialled."""
