"""The frames of many transfers are those that are made one by one."""

from __future__ import annotations

import pytest

from harebell.protocol.v010 import commands as c, encode_content
from harebell.protocol.v010.bulk import encode_transfers
from harebell.protocol.v010.codec import encode_command
from harebell.protocol.v010.frames import command_frames

COMMAND = encode_command(c.MessageTransfer("x", 0, 0))
OTHER = encode_command(c.MessageTransfer("y", 0, 0, sync=True))
HEADERS = [b"", b"h", b"head", b"h" * 120, b"head"]
BODIES = [b"b", b"", b"body", b"b" * 300, b"body"]


def alone(channel: int, command: bytes, header: bytes, body: bytes, most: int) -> bytes:
    content = encode_content(channel, header, body, most)
    return command_frames(channel, command, most, bool(content)) + content


@pytest.mark.parametrize("most", [64, 4096])
@pytest.mark.parametrize("channel", [0, 7])
def test_one_command_for_all(channel: int, most: int) -> None:
    headers, bodies = [header for header in HEADERS for _ in BODIES], BODIES * len(HEADERS)
    found = encode_transfers(channel, COMMAND, headers, bodies, most)
    assert found == [alone(channel, COMMAND, *each, most) for each in zip(headers, bodies, strict=True)]


def test_a_command_for_each() -> None:
    commands = [COMMAND, OTHER, COMMAND, OTHER, OTHER]
    found = encode_transfers(3, commands, HEADERS, BODIES, 4096)
    assert found == [alone(3, *each, 4096) for each in zip(commands, HEADERS, BODIES, strict=True)]
