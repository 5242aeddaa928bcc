"""Frames: cut to a size, joined again, moved to another channel."""

from __future__ import annotations

from hypothesis import given, strategies as st

from harebell.protocol.v010.frames import (
    channel_of,
    command_frames,
    control_frames,
    largest,
    payload_of,
    rechannelled,
)
from tests.protocol.v010.samples import frame


def test_one_frame() -> None:
    assert control_frames(3, b"abcd", 65_535) == b"\x0f\0\0\x10\0\0\0\3\0\0\0\0abcd"
    assert command_frames(258, b"abcd", 65_535) == b"\x0f\1\0\x10\0\1\1\2\0\0\0\0abcd"
    assert command_frames(1, b"", 65_535, content=True) == frame(0x0B, 1)


def test_several_frames() -> None:
    assert command_frames(1, b"abcde", 14) == frame(0x0E, 1, b"ab") + frame(0x0C, 1, b"cd") + frame(0x0D, 1, b"e")
    assert command_frames(1, b"abcd", 14, content=True) == frame(0x0A, 1, b"ab") + frame(0x09, 1, b"cd")


@given(st.binary(max_size=50), st.integers(13, 70), st.integers(0, 65_535))
def test_joined_and_moved(payload: bytes, size: int, channel: int) -> None:
    frames = control_frames(1, payload, size)
    assert payload_of(frames) == payload
    assert largest(frames) <= size
    assert rechannelled(frames, channel) == control_frames(channel, payload, size)
    assert channel_of(rechannelled(frames, channel)) == channel
    assert payload_of(b"x" + frames + b"y", 1, 1 + len(frames)) == payload
    assert payload_of(b"") == b""
