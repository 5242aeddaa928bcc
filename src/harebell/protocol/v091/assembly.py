"""A message whose frames come in several buffers: its header and its body, gathered until the body is complete.

The engine makes at most one Assembly per channel, when a method that carries content comes without all of its content.
The Assembly checks the header and the length of the body; the engine checks the states of channel and connection.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from harebell import errors
from harebell.defaults import FRAME_MAX
from harebell.protocol.v091.codec import END, FRAME_OVERHEAD, FRAME_PREFIX
from harebell.protocol.v091.content import BASIC_CLASS, HEADER_FIXED, Content, encode_content
from harebell.protocol.v091.methods import FRAME_BODY, FRAME_HEADER

__all__ = ["LARGE", "Assembly"]

LARGE: Final = 1 << 20  # bytes of a body above which it is gathered in one buffer
FULL: Final = FRAME_MAX - FRAME_OVERHEAD  # bytes of a body in a frame that is stored
COMMON: Final = 1  # the channel that most peers use: frames on it need no rewriting there


class Assembly:
    """The frames of one message so far.

    method     payload of the method frame that began it
    body_size  length of the body in bytes, from the header
    missing    bytes of the body that have not come yet; -1 before the header
    oversized  the body is longer than the limit: its frames are counted and not stored

    A body in more than `_most_frames` pieces is gathered in `_joined` instead of `frames`: each frame there costs some
    60 bytes of memory whatever its size, and consumers get such a body in frames of full size.

    A body above LARGE is copied to `_whole` as it comes, in frames of full size, so that its last frame costs no more
    than any other: a join of 128 MiB takes a hundred milliseconds, and twice the memory. `_begun` is the start of its
    next frame. The frames of such a message are on channel COMMON, whatever channel they came on.
    """

    __slots__ = (
        "_begun", "_joined", "_max_payload", "_most_frames", "_whole", "body_size", "frames", "method", "missing",
        "oversized",
    )  # fmt: skip

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.frames: list[bytes] = []
        self.body_size = 0
        self.missing = -1
        self.oversized = False
        self._max_payload = 0
        self._most_frames = 0
        self._begun = bytearray()
        self._joined: bytearray | None = None
        self._whole: BytesIO | None = None

    def add_header(self, frame: bytes, max_payload: int, max_message_size: int) -> None:
        """Add the header frame, which has at least the fixed fields. Raises RemoteProtocolError (505)."""
        class_id, weight, body_size = HEADER_FIXED.unpack_from(frame, 7)
        if self.missing >= 0:
            raise self.unexpected()
        if class_id != BASIC_CLASS:
            raise self.unexpected(f"got one for class {class_id} instead")
        if weight:
            raise self.unexpected()
        self.body_size = self.missing = body_size
        self.oversized = body_size > max_message_size
        self.frames.append(frame)
        self._max_payload = max_payload
        self._most_frames = 2 * (body_size // max_payload + 2)
        if body_size > LARGE and not self.oversized:
            self._whole = BytesIO()
            self._whole.write(FRAME_PREFIX.pack(FRAME_HEADER, COMMON, len(frame) - FRAME_OVERHEAD))
            self._whole.write(memoryview(frame)[7:])

    def add_body(self, frame: bytes) -> None:
        """Add a body frame. Raises RemoteProtocolError: 505 before the header, 501 for more bytes than announced."""
        if self.missing < 0:
            raise self.unexpected()
        size = len(frame) - FRAME_OVERHEAD
        if size > self.missing:
            detail = f"content body exceeds the {self.body_size} bytes of its header"
            raise errors.RemoteProtocolError(errors.FrameError, detail, BASIC_CLASS, self.method[3])
        self.missing -= size
        if not size or self.oversized:
            return
        if self._joined is not None:
            self._joined += frame[7:-1]
        elif self._whole is not None:
            self._gather(self._whole, memoryview(frame)[7:-1])
        else:
            self.frames.append(frame)
            if len(self.frames) > self._most_frames:
                self._joined = bytearray().join([piece[7:-1] for piece in self.frames[1:]])
                del self.frames[1:]

    def _gather(self, whole: BytesIO, body: memoryview) -> None:
        """Add a part of a large body: full frames go to `whole`, the rest is the next one's start."""
        full = min(self._max_payload, FULL)
        if self._begun:
            room = full - len(self._begun)
            self._begun += body[:room]
            body = body[room:]
            if len(self._begun) == full:
                _write_frame(whole, self._begun)
                self._begun.clear()
        while len(body) >= full:
            _write_frame(whole, body[:full])
            body = body[full:]
        if body:
            self._begun += body
        if not self.missing and self._begun:
            _write_frame(whole, self._begun)

    def content(self, channel: int) -> Content:
        """The whole message, when nothing is missing."""
        if self._whole is not None:
            return Content(COMMON, self.method, self._whole.getvalue(), self.body_size)  # `getvalue` does not copy
        content = Content(channel, self.method, b"".join(self.frames), self.body_size)
        if self._joined is not None:
            frame_max = self._max_payload + FRAME_OVERHEAD
            content.frames = encode_content(channel, content.raw_properties, bytes(self._joined), frame_max)
        return content

    def unexpected(self, got: str = "") -> errors.RemoteProtocolError:
        """The error (505) for a frame in place of the expected header or body frame."""
        if self.missing < 0:
            detail = f"expected content header for class 60, {got or 'got non content header frame instead'}"
        else:
            detail = "expected content body, got non content body frame instead"
        return errors.RemoteProtocolError(errors.UnexpectedFrame, detail, BASIC_CLASS, self.method[3])


def _write_frame(whole: BytesIO, body: bytearray | memoryview) -> None:
    whole.write(FRAME_PREFIX.pack(FRAME_BODY, COMMON, len(body)))
    whole.write(body)
    whole.write(END)
