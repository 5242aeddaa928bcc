"""A client of raw frames, and a broker in a thread: for tests that must be able to say anything, in any order.

`Wire` knows no rules. It sends what it is given (methods, contents, bytes), and hands out what comes as (channel,
method, content or None). It answers nothing by itself.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from harebell.broker import Broker
from harebell.broker.rules.parameters import Component
from harebell.config import Limits
from harebell.protocol.v091 import Content, Properties, Table, encode_content, methods as m
from harebell.protocol.v091.codec import (
    FRAME_PREFIX,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    decode_method,
    encode_method,
    encode_properties,
)

T = TypeVar("T")
PATIENCE = 60.0  # seconds until something that must come counts as missing

CAPABILITIES: Table = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}


class Received:
    """One method that came, with its content where it carries one."""

    __slots__ = ("channel", "content", "method")

    def __init__(self, channel: int, method: m.Method, content: Content | None) -> None:
        self.channel, self.method, self.content = channel, method, content

    @property
    def body(self) -> bytes:
        assert self.content is not None
        return self.content.body

    @property
    def headers(self) -> Table:
        assert self.content is not None
        return self.content.decode_properties().headers or {}

    def __repr__(self) -> str:
        return f"{self.channel}: {self.method!r} {self.content!r}"


class Silence(AssertionError):
    """What was waited for did not come."""


def content_frames(channel: int, method: m.Method, properties: Properties | None, body: bytes, frame_max: int) -> bytes:
    raw = encode_properties(properties or Properties())
    return encode_method(channel, method) + encode_content(channel, raw, body, frame_max)


class Wire:
    """A socket to an AMQP server. `frame_max` and `heartbeat` go into tune-ok."""

    def __init__(self, port: int, *, frame_max: int = 131_072, heartbeat: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame_max, self.heartbeat = frame_max, heartbeat
        self.received: list[Received] = []
        self.heartbeats = 0
        self.ended = False
        self._data = b""
        self._partial: dict[int, tuple[m.Method, list[bytes], int]] = {}

    # -- life ----------------------------------------------------------------------------------------------------

    def log_in(
        self, *, user: str = "guest", password: str = "guest", vhost: str = "/", properties: Table | None = None
    ) -> Self:
        """From the protocol header to open-ok; the socket is closed when that fails."""
        try:
            self._log_in(user, password, vhost, {"capabilities": CAPABILITIES} if properties is None else properties)
        except BaseException:
            self.close()
            raise
        return self

    def _log_in(self, user: str, password: str, vhost: str, client: Table) -> None:
        self.raw(PROTOCOL_HEADER)
        self.expect(m.ConnectionStart)
        self.send(0, m.ConnectionStartOk(client, "PLAIN", f"\0{user}\0{password}".encode(), "en_US"))
        tune = self.expect(m.ConnectionTune).method
        assert isinstance(tune, m.ConnectionTune)
        self.send(0, m.ConnectionTuneOk(tune.channel_max, self.frame_max, self.heartbeat))
        self.send(0, m.ConnectionOpen(vhost))
        self.expect(m.ConnectionOpenOk)

    def channel(self, number: int = 1) -> None:
        self.call(number, m.ChannelOpen(), m.ChannelOpenOk)

    def close(self) -> None:
        self.socket.close()
        self.ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- out -----------------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.sendall(data)
        except OSError:
            self.ended = True

    def send(self, channel: int, method: m.Method) -> None:
        self.raw(encode_method(channel, method))

    def publish(
        self,
        exchange: str = "",
        routing_key: str = "",
        body: bytes = b"",
        properties: Properties | None = None,
        *,
        channel: int = 1,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        method = m.BasicPublish(exchange, routing_key, mandatory=mandatory, immediate=immediate)
        self.raw(content_frames(channel, method, properties, body, self.frame_max))

    # -- in ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0) -> bool:
        """Read what is there, at most once; whether anything came."""
        if self.ended or not select.select([self.socket], [], [], timeout)[0]:
            return False
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return True
        self._data += data
        self._split()
        return True

    def wait(self, condition: Callable[[], bool], what: str = "") -> None:
        """Read until the condition holds. Silence when it does not come to pass."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.ended or time.monotonic() > deadline:
                raise Silence(f"{what}: ended={self.ended}, received {self.received[-5:]}")
            self.poll(0.05)

    def expect(self, kind: type[m.Method], channel: int | None = None) -> Received:
        """The next thing of that kind; what came before it is left in `received`."""
        found: list[Received] = []

        def come() -> bool:
            for each in self.received:
                if type(each.method) is kind and channel in (None, each.channel):
                    found.append(each)
                    return True
            return False

        self.wait(come, f"no {kind.NAME}")
        self.received.remove(found[0])
        return found[0]

    def take(self, kind: type[m.Method], count: int) -> list[Received]:
        return [self.expect(kind) for _ in range(count)]

    def call(self, channel: int, method: m.Method, answer: type[m.Method]) -> m.Method:
        self.send(channel, method)
        return self.expect(answer, channel).method

    def barrier(self, channel: int = 1) -> None:
        """Return when the broker has worked off all that was sent on the channel."""
        self.call(channel, m.ChannelFlow(active=True), m.ChannelFlowOk)

    def wait_end(self) -> None:
        """Until the server has closed the socket."""
        deadline = time.monotonic() + PATIENCE
        while not self.ended:
            if time.monotonic() > deadline:
                raise Silence("the socket stays open")
            self.poll(0.05)

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes in that time, not even the end."""
        return not self.poll(seconds) and not self.received and not self.ended

    def _split(self) -> None:
        data, at = self._data, 0
        while len(data) - at >= 8:
            if data[at : at + 4] == b"AMQP":  # a refused protocol header
                at += 8
                continue
            kind, channel, size = FRAME_PREFIX.unpack_from(data, at)
            if len(data) - at < size + 8:
                break
            frame = data[at : at + size + 8]
            assert frame[-1] == 206, frame
            self._frame(kind, channel, frame)
            at += size + 8
        self._data = data[at:]

    def _frame(self, kind: int, channel: int, frame: bytes) -> None:
        if frame == HEARTBEAT_FRAME:
            self.heartbeats += 1
            return
        if kind == m.FRAME_METHOD:
            method = decode_method(frame[7:-1], channel)
            if type(method) not in m.CARRIES_CONTENT:
                self.received.append(Received(channel, method, None))
                return
            self._partial[channel] = (method, [], -1)
            return
        assert len(frame) <= (self.frame_max or len(frame)), f"a frame of {len(frame)} bytes"
        method, frames, missing = self._partial[channel]
        frames.append(frame)
        missing = int.from_bytes(frame[11:19], "big") if missing < 0 else missing - (len(frame) - 8)
        self._partial[channel] = (method, frames, missing)
        if missing == 0:
            del self._partial[channel]
            joined = b"".join(frames)
            content = Content(channel, method.encode(), joined, int.from_bytes(joined[11:19], "big"))
            self.received.append(Received(channel, method, content))


class BrokerThread:
    """A Broker with an event loop of its own in a thread; `run` calls a function there and gives its result."""

    def __init__(
        self, data: Path | None = None, *, sync: bool = True, events: bool = False,
        components: Mapping[str, Component] | None = None,
        make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop, **limits: Any,
    ) -> None:  # fmt: skip
        self._data, self._sync, self._events, self._limits = data, sync, events, Limits(**limits)
        self._components = components
        self._loop = make_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self.problems: list[dict[str, object]] = []

    def __enter__(self) -> Self:
        self._loop.set_exception_handler(lambda _, context: self.problems.append(context))
        self._thread.start()
        self.broker = Broker(
            data=self._data,
            sync=self._sync,
            events=self._events,
            limits=self._limits,
            components=self._components,
        )
        try:
            asyncio.run_coroutine_threadsafe(self.broker.start(), self._loop).result(PATIENCE)
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self.broker.stop(), self._loop).result(PATIENCE)
        finally:
            self._end_loop()
        assert not self.problems, self.problems

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def port(self) -> int:
        assert self.broker.port is not None
        return self.broker.port

    def run(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE)
