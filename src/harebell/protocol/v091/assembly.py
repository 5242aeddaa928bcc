"""A message whose frames come in several buffers: its header and its body, gathered until the body is complete.

The engine makes at most one Assembly per channel, when a method that carries content comes without all of its content.
The Assembly checks the header and the length of the body; the engine checks the states of channel and connection.
"""

from __future__ import annotations

from harebell import errors
from harebell.protocol.v091.codec import FRAME_OVERHEAD
from harebell.protocol.v091.content import BASIC_CLASS, HEADER_FIXED, Content, encode_content

__all__ = ["Assembly"]


class Assembly:
    """The frames of one message so far.

    method     payload of the method frame that began it
    body_size  length of the body in bytes, from the header
    missing    bytes of the body that have not come yet; -1 before the header
    oversized  the body is longer than the limit: its frames are counted and not stored

    A body in more than `_most_frames` pieces is gathered in `_joined` instead of `frames`: each frame there costs some
    60 bytes of memory whatever its size, and consumers get such a body in frames of full size.
    """

    __slots__ = ("_joined", "_max_payload", "_most_frames", "body_size", "frames", "method", "missing", "oversized")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.frames: list[bytes] = []
        self.body_size = 0
        self.missing = -1
        self.oversized = False
        self._max_payload = 0
        self._most_frames = 0
        self._joined: bytearray | None = None

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
        else:
            self.frames.append(frame)
            if len(self.frames) > self._most_frames:
                self._joined = bytearray().join([piece[7:-1] for piece in self.frames[1:]])
                del self.frames[1:]

    def content(self, channel: int) -> Content:
        """The whole message, when nothing is missing."""
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
