"""How a connection of AMQP 0-10 comes back: one task dials after a loss, and attaches the sessions again.

What is lost with a transport, and what goes on, is each session's (`core`).
"""

from __future__ import annotations

import asyncio
import logging
import math

from harebell import errors
from harebell.client import events as e
from harebell.client.core.slots import closed, copy_of
from harebell.client.recovery.policy import Backoff, Pauses
from harebell.client.sessions.core.home import Kept
from harebell.client.sessions.core.numbered import NumberedCore
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.core.transport import SessionTransport
from harebell.client.sessions.statistics import Tally, of_ended
from harebell.client.transport.deadlines import Deadlines
from harebell.client.transport.dialling import Dialer
from harebell.client.transport.forks import watch

__all__ = ["SessionRecovery"]

logger = logging.getLogger("harebell.client")


class SessionRecovery:
    """One connection, over every transport that carries it; the `Home` of its sessions.

    timeout        seconds of a call that does not say otherwise
    transport      the present one, or the last; `transports` is how many there were
    reviving       the task that dials, while there is no connection
    reason         why the connection is closed for good; then `over` is done
    may_reconnect  cleared by a test that wants an outage
    """

    transport: SessionTransport

    def __init__(self, dialer: Dialer[SessionTransport], backoff: Backoff | None, give_up_after: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)
        self.timeout = dialer.hosts[0].timeout
        self.reviving: asyncio.Task[None] | None = None
        self.reason: errors.HarebellError | None = None
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.transports = 0
        self.may_reconnect = asyncio.Event()
        self.may_reconnect.set()
        self._dialer = dialer
        self._backoff = backoff
        self._pauses = None if backoff is None else Pauses(backoff)
        self._give_up_after = give_up_after
        self._cores: dict[str, Kept] = {}
        self._later: dict[Kept, asyncio.TimerHandle] = {}
        self._readers = e.Readers(self.loop)
        self._ended = Tally()  # of sessions that have ended
        self._returning: set[Kept] = set()  # on the present transport, and not usable yet
        self.inherited = False  # this process is a child of the one that made the connection
        watch(self)
        self._skipped: list[e.Skipped] = []

    @property
    def peers(self) -> str:
        """The hosts, for error texts."""
        return self._dialer.peers

    # -- events and statistics ---------------------------------------------------------------------------------------

    def events(self) -> e.Events:
        reader = self._readers.new()
        if self.reason is not None:
            reader.put(e.Closed(self.reason))
        return reader

    def _emit(self, event: e.Event) -> None:
        self._readers.put(event)

    @property
    def sessions(self) -> int:
        """How many have not ended."""
        return len(self._cores)

    def tally(self) -> Tally:
        """What all sessions have done, those that have ended too."""
        total = Tally(self._ended)
        for core in self._cores.values():
            total.update(core.tally())
        return total

    # -- dialling ----------------------------------------------------------------------------------------------------

    async def first_dial(self) -> None:
        """Dial for the first time: once, to each host."""
        self._carry(await self._dialer.dial(self.timeout, self._dialling))

    def _dialling(self, peer: str) -> None:
        self._emit(e.Connecting(peer))

    def _carry(self, transport: SessionTransport) -> None:
        """Go on with an open transport."""
        self.transport = transport
        self.transports += 1
        transport.on_end = self._lost
        if self._pauses is not None:
            self._pauses.succeeded(self.loop.time())
        self._emit(e.Open(transport.parameters.peer))
        self._returning = {core for core in self._cores.values() if core.attached_once}
        self._skipped = []
        for core in tuple(self._cores.values()):
            self._attach(core)
        if self.transports > 1 and not self._returning:
            self._emit(e.Recovered())

    def returned(self, core: Kept, error: errors.HarebellError | None = None) -> None:
        """A session is usable again, or will not be: `error` says why."""
        if core not in self._returning:
            return
        self._returning.discard(core)
        if error is not None:
            self._skipped.append(e.Skipped(f"session '{core.name}'", error))
        if not self._returning:
            self._emit(e.Recovered(self._skipped))

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
        attempt = 0
        end = math.inf if self._give_up_after is None else self.loop.time() + self._give_up_after
        while True:
            attempt += 1
            delay = pauses.next(self.loop.time())
            if self.loop.time() + delay > end:
                gave_up = errors.RecoveryGaveUp(f"no connection to {self.peers} for {self._give_up_after:g} s: {error}")
                gave_up.__cause__ = error
                self._end(gave_up)
                return
            self._emit(e.Reconnecting(attempt, delay, error))
            await asyncio.sleep(delay)
            await self.may_reconnect.wait()
            try:
                async with asyncio.timeout_at(None if end == math.inf else end):
                    transport = await self._dialer.dial(self.timeout, self._dialling)
            except errors.HarebellError as failed:
                error = failed
                continue
            except TimeoutError:  # the error before says why
                continue
            self.reviving = None
            self._carry(transport)
            return

    def _revived(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake in the recovery itself. Without this, every call would wait for its deadline.
            logger.critical("recovery failed", exc_info=error)
            self._end(errors.ConnectionLost(f"recovery failed: {error!r}"))

    def forked(self, error: errors.LocalProtocolError) -> None:
        """In a child of the process that made the connection: every call raises this, and nothing else happens."""
        self.inherited = True
        self.reason = self.reason or error
        for core in self._cores.values():
            core.reason = core.reason or error

    # -- sessions ----------------------------------------------------------------------------------------------------

    def new_session(self, name: str, timeout: int, *, force: bool) -> SessionCore:
        """A session that is being attached. ChannelClosed; InvalidArgument where the name is in use."""
        self._check(name)
        core = SessionCore(self, name, timeout, force=force)
        self._add(core)
        return core

    def new_numbered(self, name: str, timeout: int, *, force: bool) -> NumberedCore:
        """A session that only publishes, under the program's numbers; as `new_session`."""
        self._check(name)
        core = NumberedCore(self, name, timeout, force=force)
        self._add(core)
        return core

    def _check(self, name: str) -> None:
        if self.reason is not None:
            raise closed("the connection", self.reason)
        if name in self._cores:
            raise errors.InvalidArgument(f"this connection has a session '{name}' already")

    def _add(self, core: Kept) -> None:
        self._cores[core.name] = core
        if self.reviving is None:
            self._attach(core)

    def _attach(self, core: Kept) -> None:
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

    def attach_later(self, core: Kept) -> None:
        pauses = Pauses(self._backoff or Backoff())
        self._later[core] = self.loop.call_later(pauses.next(self.loop.time()), self._attach, core)

    def _cancel_later(self, core: Kept) -> None:
        timer = self._later.pop(core, None)
        if timer is not None:
            timer.cancel()

    def forget(self, core: Kept, reason: errors.HarebellError, *, ours: bool) -> None:
        self._cancel_later(core)
        if self._cores.get(core.name) is core:
            del self._cores[core.name]
            self._ended.update(of_ended(core.tally()))
        self.returned(core, None if ours else reason)
        if not ours and self.reason is None:
            self._emit(e.SessionEnded(core.name, reason))

    async def end_elsewhere(self, name: str, timeout: float) -> None:
        """End the session of that name at the broker, on a connection of its own: this one's is not told."""
        other = SessionRecovery(self._dialer, None, None)
        await other.first_dial()
        try:
            core = other.new_session(name, 0, force=True)
            await core.opened(core.deadline(timeout))
            await core.detach(core.deadline(timeout), keep=False)
        finally:
            transport = other.say_goodbye()
            await asyncio.shield(transport.gone)

    # -- the end -----------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> SessionTransport:
        """Close the connection, without waiting for the answer; the transport is gone when it has come."""
        self.transport.close()
        self._end(errors.ChannelClosed("the connection was closed by this client"), ours=True)
        return self.transport

    def hang_up(self) -> None:
        """Say goodbye, and close the transport as soon as that is written."""
        self.say_goodbye().closed()

    def _end(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        if self.reviving is not None and self.reviving is not asyncio.current_task():
            self.reviving.cancel()
        for core in tuple(self._cores.values()):
            core.end(copy_of(reason), ours=ours)
        self.deadlines.close()
        self._emit(e.Closed(reason))
        if not self.over.done():
            self.over.set_result(None)
