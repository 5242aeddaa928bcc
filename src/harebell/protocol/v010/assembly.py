"""A control or a command whose frames come in several buffers or in several frames, gathered until it is complete.

There is at most one Assembly for each track of each channel. It checks that the flags of its frames follow each other,
and that what they carry stays within the limits; the engine checks the states of connection and session.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from harebell import errors
from harebell.protocol.v010.content import Content, encode_content
from harebell.protocol.v010.frames import (
    BODY,
    COMMAND,
    FIRST_FRAME,
    FIRST_SEGMENT,
    FRAME_HEADER,
    HEADER,
    LARGEST_FRAME,
    LAST_FRAME,
    LAST_SEGMENT,
    payload_of,
)

__all__ = ["Assembly"]

MAX_CONTROL: Final = 1 << 18  # bytes of a control: four sets of command ids of the largest size
MAX_COMMAND: Final = 1 << 20  # bytes of a command without its content: names and maps
MAX_HEADER: Final = 1 << 20  # bytes of a header segment; its longest part is the application's headers
MOST_OVERHEAD: Final = 1 << 16  # bytes of frame headers that may exceed the bytes that they carry


class Assembly:
    """The frames of one control or command so far.

    command    payload of the control or command segment
    content    True when a header or a body follows or followed
    limit      0; or the limit that header or body exceed: they are not stored
    dropped    nothing is stored, because the command is not for a session
    given_up   its sender may have given it up: another command may begin before its end
    body_size  bytes of the body so far

    The frames of header and body are stored as they come, in one buffer that `finished` does not copy. Where they carry
    little, as empty frames do, only what they carry is stored, and put into frames again at the end.
    """

    __slots__ = (
        "_body", "_carried", "_command", "_frames", "_header", "_header_size", "_kind", "_max_message_size", "_place",
        "_track", "body_size", "content", "dropped", "given_up", "limit",
    )  # fmt: skip

    def __init__(self, track: int, max_message_size: int, dropped: bool = False) -> None:
        self.dropped = dropped
        self.given_up = False
        self._track = track
        self._max_message_size = max_message_size
        self._kind = -1  # of the present segment
        self._place = 0  # its flags; 0 between segments, because a first segment has FIRST_SEGMENT
        self._command = bytearray()
        self._frames = BytesIO()
        self._carried = 0
        self._header_size = 0
        self._header: bytearray | None = None
        self._body = bytearray()
        self.content = False
        self.limit = 0
        self.body_size = 0

    @property
    def command(self) -> bytes:
        return bytes(self._command)

    def add(self, flags: int, kind: int, frame: bytes) -> bool:
        """Add a frame; True when it was the last. Raises RemoteProtocolError (501) for one that cannot follow."""
        place = flags & (FIRST_SEGMENT | LAST_SEGMENT)
        if flags & FIRST_FRAME:
            if self._place:
                raise self._wrong(flags, kind, "begins a segment inside of another")
            if self._kind < 0:
                if kind != self._track or not place & FIRST_SEGMENT:
                    raise self._wrong(flags, kind, "does not begin a control or a command")
            elif not self._kind < kind <= BODY or place & FIRST_SEGMENT:
                raise self._wrong(flags, kind, f"cannot follow a segment of type {self._kind}")
            self._kind = kind
            self._place = place | FIRST_FRAME
        elif kind != self._kind or place | FIRST_FRAME != self._place:
            raise self._wrong(flags, kind, "does not continue its segment")
        if self.dropped:
            pass
        elif kind <= COMMAND:
            self._command += frame[FRAME_HEADER:]
            if len(self._command) > (MAX_COMMAND if kind else MAX_CONTROL):
                what = f"a command of more than {MAX_COMMAND}" if kind else f"a control of more than {MAX_CONTROL}"
                raise errors.RemoteProtocolError(errors.FrameError, f"{what} bytes")
        else:
            self._add_content(kind, frame)
        if not flags & LAST_FRAME:
            return False
        self._place = 0
        if not place & LAST_SEGMENT:
            self.content = True
        return place & LAST_SEGMENT != 0

    def _add_content(self, kind: int, frame: bytes) -> None:
        size = len(frame) - FRAME_HEADER
        if kind == BODY:
            self.body_size += size
            if self.body_size > self._max_message_size:
                self.limit = self._max_message_size
        else:
            self._header_size += size
            if self._header_size > MAX_HEADER:
                self.limit = MAX_HEADER
        if self.limit:
            self._forget_content()
        elif self._header is not None:
            (self._header if kind == HEADER else self._body).extend(frame[FRAME_HEADER:])
        else:
            self._carried += size
            self._frames.write(frame)
            if self._frames.tell() > 2 * self._carried + MOST_OVERHEAD:
                carried = payload_of(self._frames.getvalue())
                self._header, self._body = (
                    bytearray(carried[: self._header_size]),
                    bytearray(carried[self._header_size :]),
                )
                self._frames = BytesIO()

    def drop(self) -> None:
        """Store nothing of this command any more."""
        self.dropped = True
        self._command = bytearray()
        self._forget_content()

    def _forget_content(self) -> None:
        self._frames, self._header, self._body = BytesIO(), None, bytearray()

    def finished(self, channel: int, command: bytes) -> Content:
        """The whole message, when its last frame has come."""
        frames = self._frames.getvalue()
        if self._header is not None:
            frames = encode_content(channel, bytes(self._header), bytes(self._body), LARGEST_FRAME)
        return Content(channel, command, frames, self.body_size)

    def partial(self, channel: int) -> Content | None:
        """The message with what has come of its body; None before the body has begun, or when nothing is stored."""
        if self._kind != BODY or self.dropped or self.limit:
            return None
        carried = payload_of(self._frames.getvalue())
        header = carried[: self._header_size] if self._header is None else bytes(self._header)
        body = carried[self._header_size :] if self._header is None else bytes(self._body)
        frames = encode_content(channel, header, body, LARGEST_FRAME)
        return Content(channel, self.command, frames, self.body_size)

    def _wrong(self, flags: int, kind: int, said: str) -> errors.RemoteProtocolError:
        said = f"a frame of type {kind} and flags {flags:#04x} {said}"
        return errors.RemoteProtocolError(errors.FrameError, said)
