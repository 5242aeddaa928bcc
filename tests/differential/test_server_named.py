"""What may be done by name to a queue that the server named: each broker has names of its own, so this is no script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from harebell.protocol.v091 import methods as m
from harebell.testing.rabbitmq import RabbitMQ
from tests.wire import Wire

Declare = Callable[..., m.QueueDeclare]

KINDS: dict[str, Declare] = {
    "exclusive": partial(m.QueueDeclare, exclusive=True),
    "plain": m.QueueDeclare,
    "auto-delete": partial(m.QueueDeclare, auto_delete=True),
}


def said(wire: Wire, method: m.Method) -> m.Method:
    """The answer; after a close the channel is open again."""
    wire.send(1, method)
    wire.wait(lambda: bool(wire.received))
    answer = wire.received.pop().method
    assert answer is not None
    if isinstance(answer, m.ChannelClose):
        wire.send(1, m.ChannelCloseOk())
        wire.channel(1)
    return answer


def by_name(name: str, declare: Declare) -> Iterator[m.Method]:
    yield declare(name)
    yield m.QueueDeclare(name, passive=True)
    yield declare(name, durable=True)
    yield declare(name, arguments={"x-expires": 0})
    yield declare(f"\r\n{name}")
    yield m.QueueBind(name, "amq.direct", "k")
    yield m.BasicGet(name)
    yield m.QueuePurge(name)


def conversation(port: int, declare: Declare) -> list[str]:
    owner, other = (Wire(port).log_in() for _ in range(2))
    try:
        for wire in (owner, other):
            wire.channel(1)
        declared = said(owner, declare(""))
        assert isinstance(declared, m.QueueDeclareOk)
        answers = [said(wire, method) for wire in (owner, other) for method in by_name(declared.queue, declare)]
        answers.append(said(other, m.QueueDelete(declared.queue)))
        answers.append(said(owner, m.QueueDelete(declared.queue)))
        return [str(answer).replace(declared.queue, "*") for answer in answers]
    finally:
        for wire in (owner, other):
            wire.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_named_queue_by_its_name(harebell_port: int, rabbitmq: RabbitMQ, kind: str) -> None:
    ours, theirs = (conversation(port, KINDS[kind]) for port in (harebell_port, rabbitmq.port))
    assert ours == theirs
    assert "reply_code=403" in ours[0]
    assert ours[1].startswith("QueueDeclareOk")
