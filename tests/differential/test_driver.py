"""The driver of the scripts: two brokers that say the same are seen to, however slow one of them is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from tests.differential.driver import DIFFERENT_SECONDS, SETTLE_SECONDS, Peer, Raw, Send, Step, run
from tests.wire import BrokerThread

STALL_SECONDS = 10 * SETTLE_SECONDS
DECLARE = m.QueueDeclare("q")


@pytest.fixture
def brokers() -> Iterator[tuple[BrokerThread, BrokerThread]]:
    with BrokerThread() as one, BrokerThread() as other:
        yield one, other


def stall(broker: BrokerThread) -> threading.Thread:
    """The broker does nothing for some time, from now on."""
    stands = threading.Event()

    def stand() -> None:
        stands.set()
        time.sleep(STALL_SECONDS)

    thread = threading.Thread(target=broker.run, args=(stand,))
    thread.start()
    assert stands.wait(60)
    return thread


@pytest.mark.parametrize("stalled", [0, 1])
@pytest.mark.parametrize("last", [Raw("a", encode_method(1, DECLARE)), Send("a", 1, DECLARE)], ids=["raw", "sent"])
def test_a_slow_broker_is_waited_for(brokers: tuple[BrokerThread, BrokerThread], stalled: int, last: Step) -> None:
    peers = Peer(brokers[0].port), Peer(brokers[1].port)
    run([Send("a", 1, DECLARE)], *peers)
    standing = stall(brokers[stalled])
    run([last], *peers)
    standing.join()
    for peer in peers:
        assert len(peer.trace["a1"]) == 2
        peer.close()


def test_other_answers_are_not_waited_for_long(brokers: tuple[BrokerThread, BrokerThread]) -> None:
    peers = Peer(brokers[0].port), Peer(brokers[1].port)
    peers[0].do(Send("a", 1, m.QueueDeclare("q", auto_delete=True)))
    run([Send("a", 1, DECLARE)], *peers, agree=DIFFERENT_SECONDS)
    assert peers[0].trace != peers[1].trace
    for peer in peers:
        peer.close()
