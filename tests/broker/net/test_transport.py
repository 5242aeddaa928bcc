"""A socket's output, with each kind of event loop: long messages are written in pieces, which arrive whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from harebell.protocol.v091 import methods as m
from tests.broker.test_net import connected, output_held
from tests.wire import BrokerThread

SIZES = (10, 20_000, 65_536, 100_000, 131_072 - 8, 131_072, 300_000, 10, 10, (2 << 20) + 5)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_long_messages_reach_a_slow_reader_whole(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """What the socket does not take is bounded, and what it takes in parts goes on where it stopped."""
    bodies = [bytes([33 + number % 90]) * size for number, size in enumerate(12 * SIZES)]
    with BrokerThread(make_loop=make_loop) as broker, connected(broker) as slow, connected(broker) as other:
        other.call(1, m.QueueDeclare("q"), m.QueueDeclareOk)
        slow.send(1, m.BasicConsume("q", "c", no_ack=True))
        slow.expect(m.BasicConsumeOk)
        for body in bodies:
            other.publish("", "q", body)
        declared = other.call(1, m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
        assert isinstance(declared, m.QueueDeclareOk)
        assert declared.message_count > len(bodies) // 4  # they wait in the queue
        assert 0 < output_held(broker) < 6 << 20
        received = slow.take(m.BasicDeliver, len(bodies))
        assert [each.body for each in received] == bodies
        assert output_held(broker) == 0
