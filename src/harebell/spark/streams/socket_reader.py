"""A connection of its own for reading one stream queue fast: a blocking socket, whose bytes become blocks.

Rules:

- The client's core (`harebell.client.core.connection`, without I/O) opens the connection, asks, and hears of every end;
  only what is delivered in the common form goes past it, into `blocks.scan`. All else is given to it frame by frame,
  and what it makes a Delivery of comes in the same order. So errors are the client's, for whatever a broker may send.
- One thread, no other one behind it: heartbeats leave while `receive` waits and at each call of it. A caller that
  pauses longer than two heartbeats may find the connection closed, and reads on over another one (`range_reader`). A
  broker that is silent is found out by the timeout of `receive`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.connection import ConnectionCore
from harebell.client.core.consumer import ConsumerCore
from harebell.client.core.slots import Slot, copy_of
from harebell.client.servers import product_of
from harebell.client.url import ConnectionParameters, parameters_of
from harebell.defaults import GOODBYE_SECONDS
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import FRAME_OVERHEAD, FRAME_PREFIX
from harebell.protocol.v091.content import HEADER_FIXED
from harebell.protocol.v091.hot import DELIVER
from harebell.spark.options.address import Address
from harebell.spark.streams.blocks import CHANNEL, Block, Irregular, marker, scan

if TYPE_CHECKING:
    from harebell.client.messages import Delivery
    from harebell.protocol.v091 import Table

__all__ = ["SocketReader"]

log = logging.getLogger("harebell.spark")

READ_SIZE: Final = 1 << 18  # bytes a read
MOST: Final = 4 << 20  # bytes to look through at a time; half of the window when that is less
GRACE: Final = 0.002  # seconds in which more may come before what there is, and is less, is looked through
_CLOSE_OK: Final = b"\x01\0\0\0\0\0\x04\0\x0a\0\x33\xce"
_METHOD: Final = m.FRAME_METHOD


class SocketReader:
    """An open connection; a context manager. `consume`, then `receive` and `ack` in turn, by one thread.

    Raises what `harebell.client.connect` raises: ConnectionLost, AccessRefused, NotAllowed, DeadlineExceeded.
    """

    def __init__(self, url: str | Sequence[str] | Address, timeout: float) -> None:
        self._timeout = timeout
        self._slow: list[Delivery] = []  # what the core made of the frames that it was given
        self._pending: list[bytes] = []
        self._size = 0  # bytes in `_pending`
        self._need = 1  # bytes without which there is no use in looking
        self._window, self._enough = 1, 1  # messages under way at most; bytes to look through at a time
        self._broken: tuple[str, BaseException | None] | None = None  # the transport has ended: why
        self._assembling = False  # the core has a part of a message
        self._ended: errors.HarebellError | None = None
        self._mark = b""
        self._core, self._socket = _dial(url, timeout)
        self._last_sent = time.monotonic()
        try:
            slot = Slot(m.ChannelOpen())
            self._channel = self._core.new_channel(slot, ChannelCore)
            self._ask(slot)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def product(self) -> str | None:
        """The broker's product name: "RabbitMQ", "Harebell"."""
        return product_of(self._core.handshake.server_properties)

    def consume(self, queue: str, prefetch: int, arguments: Table | None = None) -> None:
        """Subscribe, with at most `prefetch` unacknowledged messages. NotFound, AccessRefused, PreconditionFailed."""
        self._window = prefetch
        qos = Slot(m.BasicQos(prefetch_count=prefetch))
        self._channel.request(qos)
        self._ask(qos)
        tag = f"harebell-{secrets.token_hex(6)}"  # random, so that no message contains it
        self._mark = marker(tag)
        consumer = ConsumerCore(tag, queue, False, self._slow.append, self._over, list)
        slot = Slot(m.BasicConsume(queue, tag, arguments=arguments or {}))
        self._channel.consume(slot, consumer)
        self._ask(slot)

    def receive(self, timeout: float) -> list[Block | list[Delivery]]:
        """The messages that have arrived, in order: blocks, and lists of irregular deliveries. [] after `timeout`.

        Raises why the connection, the channel or the subscription ended: ConnectionLost, ChannelClosed's causes,
        ConsumerCancelled.
        """
        deadline = time.monotonic() + timeout
        while True:
            got = self._take()
            if got:
                return got
            self._check()
            if not self._fill(deadline):
                return []

    def ack(self, delivery_tag: int) -> None:
        """Acknowledges every delivery up to and with this one."""
        self._channel.settlement.ack_uncounted(delivery_tag)
        self._send()

    def close(self) -> None:
        """Ends the connection; one that is gone already is no error."""
        try:
            with contextlib.suppress(OSError, errors.HarebellError):
                self._core.close(Slot(m.ConnectionClose()))
                self._send()
                # What is on its way is read, or the closing socket would answer it by a reset: an error in their log.
                last, deadline = b"", time.monotonic() + GOODBYE_SECONDS
                while not last.endswith(_CLOSE_OK) and time.monotonic() < deadline:
                    self._socket.settimeout(GOODBYE_SECONDS)
                    data = self._socket.recv(READ_SIZE)
                    if not data:
                        break
                    last = (last + data)[-len(_CLOSE_OK) :]
        finally:
            self._socket.close()

    def _fill(self, deadline: float) -> bool:
        """Read until there is enough to look through, or nothing more for a moment. False when the time is up."""
        while True:
            now = time.monotonic()
            self._beat(now)
            if self._broken is not None:
                self._core.lost(*self._broken)
                self._check()
            if self._size >= max(self._need, self._enough):
                return True
            wait = GRACE if self._size >= self._need else min(deadline - now, self._beat_seconds())
            if wait <= 0:
                return False
            data = self._read(wait)
            if data is not None:
                self._pending.append(data)
                self._size += len(data)
            elif self._size >= self._need:
                return True

    def _read(self, seconds: float) -> bytes | None:
        """The bytes received; None when none came in that time, or the connection is `_broken`."""
        try:
            self._socket.settimeout(seconds)
            data = self._socket.recv(READ_SIZE)
        except TimeoutError:
            return None
        except OSError as error:
            self._broken = f"the connection broke: {error}", error
            return None
        if not data:
            self._broken = "the broker closed the connection without a word", None
            return None
        return data

    def _take(self) -> list[Block | list[Delivery]]:
        """The complete messages in the bytes that were read."""
        got: list[Block | list[Delivery]] = []
        if self._size < self._need:
            return got
        data, at, need = b"".join(self._pending), 0, FRAME_OVERHEAD
        while len(data) - at >= FRAME_OVERHEAD and self._core.reason is None:
            if not self._assembling and data.startswith(self._mark, at + 7):
                block, used = scan(data[at:] if at else data, self._mark)
                if block is not None:
                    got += self._checked(block)
                    at += used
                    self._enough = min(MOST, self._window * used // len(block) // 2)
                    continue
            size = self._next_frame(data, at)
            if size > len(data) - at:
                need = size
                break
            self._feed_core(data[at : at + size], got)
            at += size
        self._pending = [data[at:]] if at < len(data) else []
        self._size, self._need = len(data) - at, need
        return got

    def _checked(self, block: Block) -> list[Block | list[Delivery]]:
        try:
            block.numbers  # noqa: B018  every message of a stream has one
        except Irregular:
            self._core.receive(block.data[: block.used])
            slow, self._slow[:] = self._slow[:], []
            return [slow]
        return [block]

    def _next_frame(self, data: bytes, at: int) -> int:
        """How many bytes to wait for, or to give to the core: a frame, or a message that is to come in one piece."""
        kind, _, length = FRAME_PREFIX.unpack_from(data, at)
        size = int(length) + FRAME_OVERHEAD
        if size > self._core.engine.frame_max:
            return FRAME_OVERHEAD  # for the core to refuse
        if kind != _METHOD or self._assembling or data[at + 7 : at + 11] != DELIVER:
            return size
        header = at + size
        if header + 7 + HEADER_FIXED.size > len(data):
            return header + 7 + HEADER_FIXED.size - at
        body = HEADER_FIXED.unpack_from(data, header + 7)[2]
        frames = header + FRAME_OVERHEAD + int.from_bytes(data[header + 3 : header + 7], "big") - at
        whole = frames + (FRAME_OVERHEAD + body if body else 0)
        if body > self._core.engine.frame_max - FRAME_OVERHEAD or at + whole <= len(data):
            return size  # in several frames, or whole and yet not of the common form: frame by frame
        return int(whole)

    def _feed_core(self, frame: bytes, got: list[Block | list[Delivery]]) -> None:
        if frame[:1] == b"\x01":
            self._assembling = frame[7:11] == DELIVER
        self._core.receive(frame)
        if self._slow:
            self._assembling = False
            if got and isinstance(got[-1], list):
                got[-1] += self._slow
            else:
                got.append(self._slow[:])
            self._slow.clear()
        self._send()

    def _ask(self, slot: Slot) -> None:
        """Send the pending request and wait for its answer. Raises the refusal."""
        self._send()
        deadline = time.monotonic() + self._timeout
        ready: list[Block | list[Delivery]] = []
        while not slot.done:
            self._check()
            seconds = deadline - time.monotonic()
            data = self._read(seconds) if seconds > 0 else None
            if self._broken is not None:
                self._core.lost(*self._broken)
                self._check()
            if data is None:
                raise errors.DeadlineExceeded(
                    f"{slot.request.NAME}: no answer from {self._core.parameters.peer} within {self._timeout:g} s"
                )
            self._pending.append(data)
            data = b"".join(self._pending)
            at = 0
            # Frame by frame, because the first deliveries may come right behind the answer.
            while not slot.done and len(data) - at >= FRAME_OVERHEAD:
                size = FRAME_OVERHEAD + FRAME_PREFIX.unpack_from(data, at)[2]
                if at + size > len(data):
                    break
                self._feed_core(data[at : at + size], ready)
                at += size
            self._pending = [data[at:]] if at < len(data) else []
            self._size, self._need = len(data) - at, 1
        if slot.error is not None:
            raise slot.error

    def _check(self) -> None:
        """Raises the reason when the connection or subscription has ended."""
        for reason in (self._core.reason, self._channel.reason, self._ended):
            if reason is not None:
                raise copy_of(reason)

    def _over(self, reason: errors.HarebellError | None) -> None:
        self._ended = reason or errors.ConsumerCancelled("the consumer was cancelled")

    def _send(self) -> None:
        data = self._core.engine.data_to_send()
        if not data:
            return
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(data)
        except TimeoutError as error:
            self._core.lost(f"the broker took nothing for {self._timeout:g} s", error)
            self._check()
        except OSError as error:
            # Bytes that came before the end may say why it ended: later reads find them, and the end.
            log.debug("sending: %s", error)
        self._last_sent = time.monotonic()

    def _beat_seconds(self) -> float:
        return self._core.handshake.heartbeat / 2 or 3600.0

    def _beat(self, now: float) -> None:
        if now - self._last_sent >= self._beat_seconds():
            self._core.engine.send_heartbeat()
            self._send()


def _dial(url: str | Sequence[str] | Address, timeout: float) -> tuple[ConnectionCore, socket.socket]:
    """An open connection to the first host that takes us. The last host's error when none does."""
    if isinstance(url, Address):
        hosts: list[str | ConnectionParameters] = [*url.parameters(timeout)]
    else:
        hosts = [url] if isinstance(url, str) else list(url)
    for host in hosts[:-1]:
        try:
            return _open(parameters_of(host, timeout=timeout))
        except errors.InvalidArgument:
            raise
        except errors.HarebellError:
            continue
    return _open(parameters_of(hosts[-1], timeout=timeout))


def _open(parameters: ConnectionParameters) -> tuple[ConnectionCore, socket.socket]:
    core = ConnectionCore(parameters)
    deadline = time.monotonic() + parameters.timeout
    context = parameters.ssl_context()
    opened: socket.socket | None = None
    try:
        opened = socket.create_connection((parameters.host, parameters.port), timeout=parameters.timeout)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            opened = context.wrap_socket(opened, server_hostname=parameters.server_name or parameters.host)
        core.start()
        while True:
            opened.settimeout(max(deadline - time.monotonic(), 0.001))
            opened.sendall(core.engine.data_to_send())
            if core.reason is not None:
                raise copy_of(core.reason) from core.reason.__cause__
            if core.open:
                return core, opened
            data = opened.recv(READ_SIZE)
            if data:
                core.receive(data)
            else:
                core.lost("the broker closed the connection without a word")
    except BaseException as error:
        if opened is not None:
            opened.close()
        if isinstance(error, TimeoutError) and not isinstance(error, errors.HarebellError):
            raise errors.DeadlineExceeded(
                f"{parameters.peer}: no connection within {parameters.timeout:g} s, {core.handshake.stage}"
            ) from error
        if isinstance(error, OSError) and not isinstance(error, errors.HarebellError):
            if isinstance(error, ssl.SSLCertVerificationError):
                # Trying again would not make it better known.
                raise errors.InvalidArgument(
                    f"{parameters.peer}: {error}; option 'cacertFile' names the authority to trust"
                ) from error
            raise errors.ConnectionLost(f"{parameters.peer} cannot be reached: {error}") from error
        raise


assert CHANNEL == 1  # the first channel of a connection is the only one here
