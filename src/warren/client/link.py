"""The blocking face's socket: a non-blocking one, read and written by whoever waits, with a deadline.

`flush` writes what the socket takes now; `step` writes and reads once, waiting for either. Reading never stops while
writing waits, so a broker that answers before it reads on can not be deadlocked.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from typing import Final

from warren import errors
from warren.client.core import ConnectionCore
from warren.client.url import ConnectionParameters

__all__ = ["Link", "SyncConnectionCore"]

READ_SIZE: Final = 262_144  # bytes a read: a batch for the engine, still a cheap buffer
_WOULD_BLOCK: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SyncConnectionCore(ConnectionCore):
    """The core, with output going to a Link as soon as there is some."""

    link: Link | None = None
    held = 0  # while not 0, output is gathered: publish_many flushes by itself

    def flush(self) -> None:
        if self.link is not None and not self.held:
            self.link.flush()


class Link:
    """One connected socket of one core."""

    def __init__(self, core: ConnectionCore, deadline: float) -> None:
        self._core = core
        self._socket = _connect(core.parameters, deadline)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._interest = selectors.EVENT_READ
        self._unsent = memoryview(b"")
        self._send_error: OSError | None = None
        self._last_sent = self._last_received = time.monotonic()
        self.closed = False

    @property
    def unsent(self) -> int:
        """Bytes that the socket did not take yet."""
        return len(self._unsent)

    def flush(self) -> None:
        """Write what the socket takes without waiting."""
        if self.closed or self._send_error is not None:
            self._core.engine.outgoing.clear()
            return
        while True:
            if not self._unsent:
                data = self._core.engine.data_to_send()
                if not data:
                    return
                self._unsent = memoryview(data)
            try:
                sent = self._socket.send(self._unsent)
            except _WOULD_BLOCK:
                return
            except OSError as error:
                # What the broker said before it hung up may still be readable, and tells more than this error.
                self._send_error = error
                self._unsent = memoryview(b"")
                self._core.engine.outgoing.clear()
                return
            self._unsent = self._unsent[sent:]
            self._last_sent = time.monotonic()

    def step(self, deadline: float) -> bool:
        """Write and read what can be; wait for one of them. False when the deadline has passed without either.

        A lost connection is put into the core, not raised.
        """
        self._beat()
        self.flush()
        if self._read():
            return True
        unsent = len(self._unsent)
        waited_from = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= deadline:
                return False
            self._listen(selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0))
            ready = self._selector.select(min(deadline, self._next_beat(now, waited_from)) - now)
            if ready:
                if ready[0][1] & selectors.EVENT_WRITE:
                    self.flush()
                if self._read() or len(self._unsent) != unsent:
                    return True
            elif not self._beat(waited_from):
                return True

    def poll(self) -> bool:
        """Read what has arrived, without waiting. False when nothing has."""
        self._beat()
        self.flush()
        return self._read()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._selector.close()
            self._socket.close()

    def _listen(self, interest: int) -> None:
        if interest != self._interest:
            self._selector.modify(self._socket, interest)
            self._interest = interest

    def _read(self) -> bool:
        """One read. True when something came, the end of the connection included."""
        if self.closed:
            return True
        try:
            data = self._socket.recv(READ_SIZE)
        except _WOULD_BLOCK:
            if self._send_error is not None:
                self._lost(f"the connection broke: {self._send_error}", self._send_error)
                return True
            return False
        except OSError as error:
            self._lost(f"the connection broke: {error}", error)
            return True
        if not data:
            self._lost("the broker closed the connection without a word", None)
            return True
        self._last_received = time.monotonic()
        self._core.receive(data)
        return True

    def _lost(self, why: str, cause: OSError | None) -> None:
        heartbeat = self._core.handshake.heartbeat
        silent = time.monotonic() - self._last_sent
        if heartbeat and silent > heartbeat:
            why += (
                f"; nothing was sent for {silent:.0f} s, and a heartbeat was due every {heartbeat} s: between long "
                "pieces of work call connection.serve(), or ask for a longer heartbeat in the URL"
            )
        self._core.lost(why, cause)
        self.close()

    # -- heartbeats (specification 4.2.7) ----------------------------------------------------------------------------

    def _beat(self, waited_from: float | None = None) -> bool:
        """Send a heartbeat when it is due. False when the broker has been silent for two of them, and we listened."""
        heartbeat = self._core.handshake.heartbeat
        if not heartbeat or not self._core.open:
            return True
        now = time.monotonic()
        if now - self._last_sent >= heartbeat / 2:
            self._core.engine.send_heartbeat()
            self.flush()
            self._last_sent = now  # a socket that takes nothing has data of ours for the broker: it is not waiting
        if waited_from is not None and now - max(self._last_received, waited_from) >= 2 * heartbeat:
            self._core.lost(f"nothing came from the broker for {2 * heartbeat} s, two heartbeats")
            self.close()
            return False
        return True

    def _next_beat(self, now: float, waited_from: float) -> float:
        heartbeat = self._core.handshake.heartbeat
        if not heartbeat:
            return now + 3600.0
        return min(self._last_sent + heartbeat / 2, max(self._last_received, waited_from) + 2 * heartbeat)


def _connect(parameters: ConnectionParameters, deadline: float) -> socket.socket:
    """A connected, non-blocking socket, with TLS on it when asked for. ConnectionLost or DeadlineExceeded."""
    context = parameters.ssl_context()
    try:
        sock = socket.create_connection(
            (parameters.host, parameters.port), timeout=max(deadline - time.monotonic(), 0.001)
        )
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock.settimeout(max(deadline - time.monotonic(), 0.001))
                sock = context.wrap_socket(sock, server_hostname=parameters.server_name or parameters.host)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
    except TimeoutError as error:
        raise errors.DeadlineExceeded(
            f"{parameters.peer}: no connection within {parameters.timeout:g} s"
        ) from error
    except OSError as error:  # a refused TLS certificate too
        raise errors.ConnectionLost(f"{parameters.peer} cannot be reached: {error}") from error
    return sock
