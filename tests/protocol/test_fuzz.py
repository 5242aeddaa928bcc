"""Both dialects' engines on the same bytes: whatever comes, nothing but RemoteProtocolError comes out."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.protocol import v010, v091
from tests.fixtures.profiles import scaled
from tests.protocol.v010 import test_hostile as hostile_010
from tests.protocol.v091 import test_hostile as hostile_091

FRAMES = hostile_010.frames | hostile_091.frames


@pytest.mark.parametrize("role", v010.Role, ids=lambda role: role.name)
@settings(max_examples=scaled(60))
@given(
    parts=st.lists(FRAMES, max_size=10),
    greeting=st.sampled_from([b"", b"AMQP\1\1\0\x0a", b"AMQP\0\0\x09\1", b"AMQP"]),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
)
def test_any_bytes(role: v010.Role, parts: list[bytes], greeting: bytes, changes: list[tuple[int, int]]) -> None:
    stream = bytearray(greeting + b"".join(parts))
    for at, octet in changes:
        if stream:
            stream[at % len(stream)] = octet
    data = bytes(stream)
    engines: list[v010.Engine | v091.Engine] = [
        v010.Engine(role),
        v091.Engine(role),
        hostile_010.engine_in(v010.ConnectionState.OPEN, role),
        hostile_091.engine_in(v091.ConnectionState.OPEN, role),
    ]
    for engine in engines:
        for start in range(0, len(data), 97):
            with contextlib.suppress(errors.RemoteProtocolError):
                engine.receive_data(data[start : start + 97])
        assert all(repr(event) for event in engine.events())


def test_each_dialect_answers_the_other_one_with_its_own_header() -> None:
    for engine, other, own in (
        (v010.Engine(v010.Role.SERVER), b"AMQP\0\0\x09\1", b"AMQP\1\1\0\x0a"),
        (v091.Engine(v091.Role.SERVER), b"AMQP\1\1\0\x0a", b"AMQP\0\0\x09\1"),
    ):
        with pytest.raises(errors.RemoteProtocolError):
            engine.receive_data(other)
        assert engine.data_to_send() == own
