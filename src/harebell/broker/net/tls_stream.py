"""TLS on one socket: bytes of the socket on one side, those of AMQP or HTTP on the other.

It is here because asyncio's and uvloop's TLS drop the alert of a failed handshake: they close the socket before what
OpenSSL wrote last is sent, so that a client sees only the end of the connection. Here

- a failed handshake, or a damaged record, sends its alert and ends the output. The socket is read on until the client
  closes, LINGER seconds at most: closed with unread input, it would send a reset, which overtakes the alert;
- bytes that are no TLS at all are answered with an alert too: OpenSSL writes none (RFC 8446, section 5);
- a close sends close_notify behind all output, and reads on until the client closes;
- output is encrypted as fast as the socket takes it, a piece at a time, whatever was written at once.

The stream knows nothing of AMQP and HTTP, nor of what it serves but the calls of `Secured`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from typing import Any, Final, Protocol, cast

__all__ = ["Secured", "TlsStream"]

log = logging.getLogger("harebell.broker.connection")

PIECE: Final = 256 * 1024  # bytes encrypted at once: well under a millisecond
LINGER: Final = 10.0  # seconds for a client to take the last output and to close
READ: Final = 16 * 1024  # bytes asked of OpenSSL, which returns a record at a time: 16 KiB at most
UNEXPECTED_MESSAGE: Final = b"\x15\x03\x03\x00\x02\x02\x0a"  # a fatal alert, as a record of TLS 1.2


class Secured(Protocol):
    """What a stream serves: `accepted` comes first, and `made` when the handshake is complete."""

    peer: str

    def accepted(self, transport: asyncio.Transport | TlsStream) -> bool:
        """Whether this connection may stay."""

    def made(self, transport: asyncio.Transport | TlsStream) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class TlsStream(asyncio.Protocol):
    """A protocol to the socket, and the transport of what it serves."""

    _raw: asyncio.Transport
    _tls: ssl.SSLObject

    def __init__(self, context: ssl.SSLContext, serves: Secured) -> None:
        self._context, self._serves = context, serves
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._backlog: deque[memoryview] = deque()  # written, and not encrypted yet
        self._waiting = 0  # bytes in the backlog
        self._secured = self._failed = self._closing = self._ended = False
        self._full = False  # whether the socket takes no more at present
        self._input_over = False
        self._linger: asyncio.TimerHandle | None = None  # once the output has ended

    # -- the socket's protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)  # uvloop's class is no subclass of it
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        if not self._serves.accepted(self):
            self._raw.abort()

    def data_received(self, data: bytes) -> None:
        if self._failed or self._ended:
            return
        self._incoming.write(data)
        try:
            if not self._secured:
                self._tls.do_handshake()
                self._secured = True
                self._send()
                self._serves.made(self)
            self._decrypt()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._fail(error)

    def eof_received(self) -> bool:
        self._input_over = True
        return bool(self._backlog)

    def pause_writing(self) -> None:
        self._full = True
        if self._secured and self._linger is None:
            self._serves.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        if self._linger is not None:
            self._shut()
            return
        self._encrypt()
        if self._secured and not self._full:
            self._serves.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._backlog.clear()
        self._waiting = 0
        self._serves.connection_lost(exc)

    # -- the transport of what is served -------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        if not data or self._failed or self._closing:
            return
        self._backlog.append(memoryview(data))
        self._waiting += len(data)
        if not self._full:
            self._encrypt()

    def get_write_buffer_size(self) -> int:
        return self._waiting + self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int) -> None:
        self._raw.set_write_buffer_limits(high=high)

    def get_extra_info(self, name: str) -> Any:
        if name == "cipher":
            return self._tls.cipher()
        if name == "sslcontext":
            return self._context
        return self._tls.getpeercert() if name == "peercert" else self._raw.get_extra_info(name)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let the socket have another protocol than this one."""
        self._raw.set_protocol(protocol)

    def is_closing(self) -> bool:
        return self._failed or self._closing or self._raw.is_closing()

    def can_write_eof(self) -> bool:
        """No: `close` ends the output, and reads what comes before the client's end."""
        return False

    def write_eof(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def close(self) -> None:
        """End the output behind what was written; the socket closes when the client has closed."""
        if self._closing or self._failed:
            return
        self._closing = True
        if not self._backlog:
            self._say_goodbye()

    def abort(self) -> None:
        self._raw.abort()

    # -- records -------------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        pieces = []
        ended = False
        error: ssl.SSLError | None = None
        try:
            while True:
                piece = self._tls.read(READ)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as failed:
            error = failed
        self._send()  # what OpenSSL answers by itself: new keys, tickets
        if pieces and not self._closing:
            self._serves.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if error is not None:
            self._fail(error)
        elif ended:
            self._input_over = True
            self.close()

    def _encrypt(self) -> None:
        """Encrypt the backlog, until the socket takes no more."""
        while self._backlog and not self._full:
            piece = self._backlog[0]
            try:
                count = self._tls.write(piece[:PIECE])
            except ssl.SSLError as error:
                self._fail(error)
                return
            self._waiting -= count
            if count == len(piece):
                self._backlog.popleft()
            else:
                self._backlog[0] = piece[count:]
            self._send()
        if self._closing and not self._backlog and not self._ended:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        self._ended = True
        if not self._secured:
            self._raw.abort()
            return
        with contextlib.suppress(ssl.SSLError):  # it wants the client's close_notify, which nobody waits for
            self._tls.unwrap()
        self._end_output()

    def _fail(self, error: ssl.SSLError) -> None:
        if self._failed:
            return
        self._failed = True
        self._backlog.clear()
        self._waiting = 0
        what = "ended by a damaged record" if self._secured else "handshake failed"
        why = error.reason or str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"{why}: the client's certificate is not accepted: {error.verify_message}"
        log.warning("%s: TLS %s: %s", self._serves.peer, what, why)
        if not self._outgoing.pending and not self._secured:
            self._outgoing.write(UNEXPECTED_MESSAGE)
        self._end_output()

    def _send(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _end_output(self) -> None:
        """Send the last records and the end of the output; with the input at its end, close."""
        raw = self._raw
        if raw.is_closing():
            return
        self._linger = asyncio.get_running_loop().call_later(LINGER, raw.abort)
        raw.set_write_buffer_limits(high=0)  # pause_writing now says that something waits, resume_writing that it left
        self._send()
        if self._input_over:
            raw.close()
            return
        raw.resume_reading()  # the client's end must be read, whoever paused it
        if not self._full:
            self._shut()

    def _shut(self) -> None:
        try:
            self._raw.write_eof()
        except OSError:
            self._raw.close()  # the client is gone already
