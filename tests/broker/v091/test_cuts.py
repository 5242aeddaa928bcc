"""What a client gets does not depend on how its bytes were cut into reads, nor on how the broker cut its work.

A script is sent with a pause after each method, which is what all others are compared with: in one write, byte by byte,
and to a broker that cuts all work into the smallest slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import example, given, strategies as st

from harebell.protocol.v091 import Content, Properties, encode_content, methods as m
from harebell.protocol.v091.codec import encode_method
from tests.broker.kit import Client, NodeKit, cut_finely

Step: TypeAlias = "m.Method | bytes"
"""A method; bytes: the body of a message for queue "q"."""

QUEUE = "q"
BODIES = [bytes([letter]) for letter in b"abcdefgh"]

steps: st.SearchStrategy[Step] = st.one_of(
    st.sampled_from(BODIES),
    st.sampled_from(BODIES),
    st.builds(m.BasicConsume, st.just(QUEUE), consumer_tag=st.sampled_from("xyz"), no_ack=st.booleans()),
    st.builds(m.BasicCancel, st.sampled_from("xyz")),
    st.builds(m.BasicGet, st.just(QUEUE), no_ack=st.booleans()),
    st.builds(m.BasicQos, prefetch_count=st.integers(0, 3), global_=st.booleans()),
    st.just(m.BasicAck(0, multiple=True)),
    st.builds(m.BasicNack, st.just(0), multiple=st.just(True), requeue=st.booleans()),
    st.builds(m.BasicRecover, requeue=st.just(True)),
    st.just(m.QueuePurge(QUEUE)),
    st.just(m.QueueDeclare(QUEUE, passive=True)),
    st.just(m.QueueDelete(QUEUE)),
    st.just(m.QueueDeclare(QUEUE)),
    st.just(m.TxSelect()),
    st.just(m.TxCommit()),
    st.just(m.TxRollback()),
)


def encoded(step: Step) -> bytes:
    if isinstance(step, bytes):
        return encode_method(1, m.BasicPublish("", QUEUE)) + encode_content(1, Properties(), step, 4096)
    return encode_method(1, step)


def valid(script: Iterable[Step]) -> list[Step]:
    """The steps without those that close the channel: what a client may send without waiting for answers."""
    consumers: set[str] = set()
    there, transactional, kept = True, False, list[Step]()
    for step in script:
        match step:
            case m.BasicConsume(consumer_tag=tag):
                fits = there and tag not in consumers
                consumers |= {tag} if fits else set()
            case m.BasicCancel(consumer_tag=tag):
                consumers.discard(tag)
                fits = True
            case m.QueueDelete():
                consumers.clear()
                there, fits = False, True
            case m.QueueDeclare(passive=False):
                there = fits = True
            case m.TxSelect():
                transactional = fits = True
            case m.TxCommit() | m.TxRollback():
                fits = transactional
            case m.BasicGet() | m.QueuePurge() | m.QueueDeclare():
                fits = there
            case _:
                fits = True
        if fits:
            kept.append(step)
        if fits and isinstance(step, m.TxCommit):
            break  # RabbitMQ and Harebell refuse what is sent before commit-ok
    return kept


class Outcome:
    """What a client got: the answers in order, each consumer's deliveries in order, and what is left in the queue."""

    def __init__(self, client: Client) -> None:
        events = [event for _, event in client.events]
        self.answers = [_told(event) for event in events if not _is_delivery(event)]
        self.deliveries: dict[str, list[tuple[bytes, bool]]] = {}
        for event in events:
            if isinstance(event, Content):
                method = event.decode_method()
                if isinstance(method, m.BasicDeliver):
                    told = (event.body, method.redelivered)
                    self.deliveries.setdefault(method.consumer_tag, []).append(told)
        client.events.clear()
        client.connection.lost()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{self.answers} {self.deliveries}"


def _is_delivery(event: object) -> bool:
    return isinstance(event, Content) and isinstance(event.decode_method(), m.BasicDeliver)


def _told(event: object) -> object:
    return (event.decode_method(), event.body) if isinstance(event, Content) else event


def play(kit: NodeKit, script: Sequence[Step], writes: Iterable[bytes], *, fine: bool = False) -> tuple[object, ...]:
    """Send the writes on a new connection. Returns what the client got, and what is left in the queue."""
    client, other = kit.client(), kit.client()
    client.call(m.QueueDeclare(QUEUE), m.QueueDeclareOk)
    for step in script:  # the client's engine has to know what was asked
        if isinstance(step, m.Method):
            client.engine.send_method(1, step)
    client.engine.data_to_send()
    with pytest.MonkeyPatch.context() as patch:
        if fine:
            cut_finely(patch)
            kit.stopwatch.step = 1.0
        for data in writes:
            client.connection.receive_data(data)
            if not fine:
                settle(kit, client)
        settle(kit, client)
        outcome = Outcome(client)
        settle(kit, client)
    kit.stopwatch.step = 0.0
    left = list[bytes]()
    if QUEUE in kit.node.vhosts["/"].queues:
        while (content := other.get(QUEUE)) is not None:
            left.append(content.body)
    other.send(1, m.QueueDelete(QUEUE))
    other.connection.lost()
    return outcome, left


def settle(kit: NodeKit, client: Client) -> None:
    """Let everything happen that was begun."""
    kit.node.batch.slices.finish()
    kit.run_syncs()
    client.receive()


CONSUMER = m.BasicConsume(QUEUE, consumer_tag="x", no_ack=True)
ACK_ALL = m.BasicAck(0, multiple=True)


@example(drawn=[CONSUMER, b"a", m.QueuePurge(QUEUE)])
@example(drawn=[CONSUMER, b"a", m.QueueDelete(QUEUE)])
@example(drawn=[CONSUMER, b"a", m.BasicGet(QUEUE, no_ack=True)])
@example(drawn=[CONSUMER, b"a", m.BasicCancel("x")])
@example(drawn=[CONSUMER, b"a", m.QueueDeclare(QUEUE, passive=True)])
@example(
    [m.BasicQos(0, 1), m.BasicConsume(QUEUE, consumer_tag="x"), b"a", b"b", m.BasicAck(0, True), m.BasicGet(QUEUE)]
)
@given(drawn=st.lists(steps, max_size=25))
def test_a_script_has_one_outcome(kit: NodeKit, drawn: list[Step]) -> None:
    script = valid(drawn)
    pieces = [encoded(step) for step in script]
    expected = play(kit, script, pieces)
    whole = b"".join(pieces)
    assert play(kit, script, [whole]) == expected, "in one write"
    assert play(kit, script, [whole[at : at + 1] for at in range(len(whole))]) == expected, "byte by byte"
    assert play(kit, script, [whole], fine=True) == expected, "in slices"
