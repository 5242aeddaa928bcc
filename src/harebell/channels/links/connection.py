"""A layer's way to the broker: one link after another, and which queues are known to be declared. In the I/O thread.

The first use of a layer opens a link; when that is lost, the next one is opened, as long as the layer is not closed.
On each link the parts of the layer make first what they need (`on_link`), then calls go on. A call that a lost link has
cut is made again on the next one, within its time (`over_links`).

An error in the settings (a wrong password, virtual host or certificate) is told to waiting calls at once, and the next
call tries again. A link that cannot be opened again for `timeout` seconds because of such an error is told to waiting
readers, too (`on_failure`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import ssl
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from harebell import errors
from harebell.channels.links import embedded
from harebell.channels.links.batch import Part
from harebell.channels.links.io_thread import IOThread
from harebell.channels.links.link import Link, declare_queue
from harebell.channels.links.registry import QUEUE, Registry
from harebell.channels.names import Names, non_local, owner_of
from harebell.channels.settings import Settings, explained
from harebell.client.messages import QueueInfo
from harebell.client.recovery.policy import Backoff, Pauses
from harebell.protocol.v091 import methods as m

__all__ = ["FINAL", "LOST", "LayerConnection"]

logger = logging.getLogger("harebell.channels")

_T = TypeVar("_T")

BACKOFF: Final = Backoff(0.1, 5.0)
REMEMBERED: Final = 20_000  # message ids stored to recognise duplicates
DECLARED: Final = 10_000  # queues known to be declared; one more, and the oldest is declared again when it is used

# Errors of the settings: trying again does not help.
FINAL: Final = (
    errors.InvalidArgument,
    errors.AccessRefused,
    errors.NotAllowed,
    errors.RemoteProtocolError,  # at the other end is no AMQP broker
    ImportError,
)
# What a call meets when its link is lost.
LOST: Final = (errors.ConnectionLost, errors.ChannelClosed, errors.ConnectionError, errors.DeadlineExceeded)
# The end of the transport during the handshake of TLS, which a broker that restarts causes.
PASSING: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


class LayerConnection:
    """A layer's links, one after the other.

    client_id  identifies this layer in this process: the part of its channels' names before the "!"
    link       the open link; None while there is none
    links      how many were opened: the number of the last one
    on_harebell  whether the broker of the last link is Harebell
    """

    def __init__(self, settings: Settings, thread: IOThread) -> None:
        self.settings = settings
        self.names = Names(settings.prefix)
        self.registry = Registry(settings, self.names)
        self.thread = thread
        self.client_id = uuid.uuid4().hex[:12]
        self.closed = False
        self.link: Link | None = None
        self.links = 0
        self.on_harebell = False
        self.on_link: list[Callable[[Link], Awaitable[None]]] = []
        self.on_failure: list[Callable[[Exception], None]] = []
        self.unavailable: Exception | None = None  # why there is no link
        self._serving: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._declared: OrderedDict[str, float] = OrderedDict()  # by queue: the time of declaration
        self._declaring: dict[str, asyncio.Task[QueueInfo]] = {}
        self._seen: OrderedDict[tuple[object, str], None] = OrderedDict()

    # -- links -------------------------------------------------------------------------------------------------------

    async def ready(self, seconds: float | None = None) -> Link:
        """The open link, once there is one.

        seconds  to wait at most; the layer's timeout if None

        DeadlineExceeded, caused by what prevents a link; ChannelClosed after close; an error of the settings.
        """
        if self.link is not None:
            return self.link
        self._check_open()
        self.begin()
        limit = self.settings.timeout if seconds is None else seconds
        waiting: asyncio.Future[None] = self.thread.loop.create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(limit):
                await waiting
        except TimeoutError:
            raise self.late() from self.unavailable
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return await self.ready(limit) if self.link is None else self.link

    def begin(self) -> None:
        """Have a link opened, unless that is under way."""
        if self._serving is None and not self.closed:
            self._serving = self.thread.loop.create_task(self._serve())
            self._serving.add_done_callback(self._ended)

    def _check_open(self) -> None:
        if self.closed:
            raise errors.ChannelClosed("the channel layer is closed")

    def late(self) -> errors.DeadlineExceeded:
        """The error of a call for which there was no link in time; the caller adds the cause."""
        why = f": {self.unavailable}" if self.unavailable is not None else ""
        seconds = self.settings.timeout
        hosts = ", ".join(map(shown, self.settings.urls))
        return errors.DeadlineExceeded(f"no broker at {hosts} within {seconds:g} s{why}")

    def _tell(self, error: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(_again(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._serving is task:
            self._serving = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the channel layer's connection failed", exc_info=error)
            self._tell(error)

    async def _serve(self) -> None:
        """Open links, one after the other, until the layer is closed or the settings are wrong."""
        pauses, failing_since, had_one = Pauses(BACKOFF), 0.0, False
        while not self.closed:
            try:
                link = await self._open()
            except Exception as error:
                now = time.monotonic()
                self._complain(error)
                if is_final(error):
                    if had_one:
                        self._tell(error)
                    failing_since = failing_since or now
                    if not had_one or now - failing_since >= self.settings.timeout:
                        self._serving = None  # before anybody is told: the next call tries again
                        self._tell(error)
                        for callback in self.on_failure:
                            callback(error)
                        return
                else:
                    failing_since = 0.0
                await asyncio.sleep(pauses.next(now))
                continue
            if self.closed:
                await link.close()
                return
            pauses.succeeded(time.monotonic())
            self.link, self.unavailable, failing_since, had_one = link, None, 0.0, True
            self.links += 1
            self.on_harebell = link.on_harebell
            logger.info("the channel layer is connected to %s", shown(link.client.parameters.peer))
            link.on_lost = self._lost
            if link.is_open:
                self._tell(None)
                await link.lost
            else:
                self._lost()

    def _lost(self) -> None:
        link, self.link = self.link, None
        self._declared.clear()  # it may be another broker, or one that has lost its disk
        self.registry.forget()
        if link is not None:
            self.unavailable = link.client.closed_reason
            if not self.closed:
                logger.warning("the channel layer has lost its broker: %s", self.unavailable)

    def _complain(self, error: Exception) -> None:
        if not isinstance(error, errors.HarebellError | ImportError):
            logger.exception("the channel layer cannot be connected")
        elif str(error) != str(self.unavailable):  # the same error is logged once
            logger.warning("the channel layer has no broker: %s", error)
        self.unavailable = error

    async def _open(self) -> Link:
        """A link to the first broker that accepts one, with all that the parts of the layer need."""
        failed: list[Exception] = []
        for url in self.settings.urls:
            try:
                address = await embedded.url() if url.startswith("embedded:") else url
                link = await Link.open(address, self.settings, self.names)
            except Exception as error:
                failed.append(error)
                continue
            try:
                for make in self.on_link:
                    await make(link)
            except BaseException:
                await link.close()
                raise
            return link
        # A broker that refuses says more than another one that cannot be reached.
        raise next(filter(is_final, failed), failed[-1])

    async def over_links(self, work: Callable[[Link], Awaitable[_T]]) -> _T:
        """The result of the work on the present link; made again on the next link when this one is lost meanwhile.

        DeadlineExceeded, caused by the loss, after the layer's timeout.
        """
        began = time.monotonic()
        while True:
            left = self.settings.timeout - (time.monotonic() - began)
            if left <= 0:
                raise self.late() from self.unavailable
            link = await self.ready(left)
            try:
                return await work(link)
            except LOST:
                self._check_open()
                if link.is_open:
                    raise

    async def close(self) -> None:
        """Close the connection; calls that wait for it fail."""
        if self.closed:
            return
        self.closed = True
        self._tell(errors.ChannelClosed("the channel layer was closed"))
        link, self.link = self.link, None
        if link is not None:
            await link.close()
        elif self._serving is not None:
            self._serving.cancel()

    # -- queues ------------------------------------------------------------------------------------------------------

    def is_declared(self, channel: str) -> bool:
        """Whether the channel's queue was declared recently: the broker deletes one that is unused for two expiries."""
        at = self._declared.get(non_local(channel))
        return at is not None and time.monotonic() - at < self.settings.expiry / 2

    def declared(self, channel: str) -> None:
        """Note that the channel's queue was declared just now."""
        name = non_local(channel)
        self._declared[name] = time.monotonic()
        self._declared.move_to_end(name)
        if len(self._declared) > DECLARED:
            self._declared.popitem(last=False)

    def undeclared(self, channel: str) -> None:
        """Note that the broker does not have the channel's queue."""
        self._declared.pop(non_local(channel), None)

    def queue_declaration(self, link: Link, channel: str) -> list[Part]:
        """The requests that declare the channel's queue; the first one does."""
        name = non_local(channel)
        arguments = self.settings.queue_arguments(self.names, name, link.on_harebell)
        noted = [] if owner_of(channel) is not None else self.registry.note(QUEUE, name)
        return [declare_queue(self.names.queue(name), arguments), *noted]

    async def declare(self, channel: str) -> QueueInfo:
        """Declare the channel's queue. InvalidArgument when another process has declared it with other settings."""
        name = non_local(channel)
        task = self._declaring.get(name)
        if task is None:
            task = self._declaring[name] = self.thread.share(self._declare(name, channel))
            task.add_done_callback(lambda _: self._declaring.pop(name))
        return await asyncio.shield(task)

    async def _declare(self, name: str, channel: str) -> QueueInfo:
        async def ask(link: Link) -> QueueInfo:
            answer, *_ = await link.ask(self.queue_declaration(link, channel))
            ok = cast(m.QueueDeclareOk, answer)
            return QueueInfo(ok.queue, ok.message_count, ok.consumer_count)

        try:
            info = await self.over_links(ask)
        except errors.PreconditionFailed as error:
            raise explained(error) from error
        self.declared(name)
        return info

    async def pending(self, channel: str) -> int:
        """The number of messages in the channel's queue."""
        return (await self.declare(channel)).message_count

    @property
    def known_queues(self) -> list[str]:
        """The channels whose queues this layer has declared lately, by their non-local names."""
        return list(self._declared)

    # -- duplicates --------------------------------------------------------------------------------------------------

    def is_new(self, sent: object, place: str) -> bool:
        """Whether the message is new at that place, not a duplicate redelivered after a lost connection.

        sent   the message's id; a message without one is always new
        place  a message to a group arrives at several places, and once at each
        """
        seen, key = self._seen, (sent, place)
        if sent is None:
            return True
        if key in seen:
            return False
        seen[key] = None
        if len(seen) > REMEMBERED:
            seen.popitem(last=False)
        return True

    def was_seen(self, sent: object, place: str) -> bool:
        return sent is not None and (sent, place) in self._seen


def is_final(error: BaseException) -> bool:
    """Whether it is an error of the settings, which trying again does not cure."""
    cause = error.__cause__
    return isinstance(error, FINAL) or (isinstance(cause, ssl.SSLError) and not isinstance(cause, PASSING))


def _again(error: BaseException) -> BaseException:
    """The error for one of several callers: one object raised in many places would mix up their tracebacks."""
    if not isinstance(error, errors.HarebellError):
        return error
    other: Any = copy.copy(error)
    other.__cause__ = error.__cause__
    return cast(BaseException, other)


def shown(url: str) -> str:
    """The URL without the password."""
    scheme, found, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else url
