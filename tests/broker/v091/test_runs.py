"""A broker that reads many alike events at once answers and keeps what it does when it reads them one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from hypothesis import given, strategies as st

from harebell.broker.operations.firehose import set_tracing
from harebell.protocol.v091 import ChannelState, Content, Properties, methods as m
from tests.broker.kit import NodeKit

QUEUES: dict[str, dict[str, Any]] = {
    "memory": {}, "disk": {}, "priorities": {"x-max-priority": 5}, "one": {"x-max-length": 1},
    "full": {"x-max-length": 2, "x-overflow": "reject-publish"}, "now": {"x-message-ttl": 0},
    "dying": {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "disk"},
    "stream": {"x-queue-type": "stream"},
}  # fmt: skip
DURABLE = frozenset(QUEUES) - {"memory", "now"}
ADDRESSES = (
    *(("", queue) for queue in QUEUES), ("amq.fanout", ""), ("amq.direct", "both"), ("amq.headers", ""),
    ("", "nowhere"), ("none", "q"),
    ("amq.system", "amq.stats"),
)  # fmt: skip
PROPERTIES = (
    Properties(), Properties(delivery_mode=2), Properties(expiration="0"), Properties(expiration="9"),
    Properties(headers={"a": 1}), Properties(headers={"CC": ["memory"]}), Properties(user_id="other"),
    Properties(priority=3, message_id="1"), Properties(reply_to="amq.rabbitmq.reply-to"),
)  # fmt: skip

publishing = st.tuples(
    st.just("publish"),
    st.sampled_from((1, 1, 2)),
    st.sampled_from(ADDRESSES),
    st.sampled_from(PROPERTIES),
    st.booleans(),
    st.lists(st.sampled_from((b"", b"1", b"2", b"333")), min_size=1, max_size=4),
)
settling = st.tuples(st.just("ack"), st.lists(st.sampled_from((0, 0, 0, 1, 2, -1)), min_size=1, max_size=4))
steps = st.lists(
    publishing
    | publishing
    | settling
    | st.tuples(st.just("consume"), st.sampled_from(sorted(QUEUES)))
    | st.tuples(st.just("get"), st.sampled_from(sorted(set(QUEUES) - {"stream"})))
    | st.sampled_from((("trace",), ("commit",), ("busy",), ("time",))),
    max_size=12,
)


class World:
    """One broker with all kinds of queues, and a client with two channels: on the second one a transaction."""

    def __init__(self, data: Path, *, grouping: bool, confirming: bool) -> None:
        self.kit = NodeKit(data, sync=False)  # so that what is synced when does not depend on a thread
        self.client = self.kit.client()
        self.client.connection.engine.grouping = grouping
        for name, arguments in QUEUES.items():
            self.client.call(m.QueueDeclare(name, durable=name in DURABLE, arguments=arguments), m.QueueDeclareOk)
        self.client.call(m.QueueBind("disk", "amq.rabbitmq.trace", "#"), m.QueueBindOk)
        for name in ("memory", "dying", "disk"):
            self.client.call(m.QueueBind(name, "amq.fanout"), m.QueueBindOk)
        for name in ("full", "one", "memory"):
            self.client.call(m.QueueBind(name, "amq.direct", "both"), m.QueueBindOk)
        headers = m.QueueBind("memory", "amq.headers", "", arguments={"a": 1})
        self.client.call(headers, m.QueueBindOk)
        self.confirming = confirming
        self.tags = list[int]()
        self.consumers = 0
        self.prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kit.stop()

    def prepare(self) -> None:
        """Have both channels open."""
        for number in (1, 2):
            state = self.client.engine.channels.get(number)
            if state is ChannelState.CLOSED_BY_SERVER:
                self.client.send(number, m.ChannelCloseOk())
            if state is not ChannelState.OPEN:
                self.client.open(number)
                self.tags = [] if number == 1 else self.tags
                self.client.call(m.BasicQos(0, 3), m.BasicQosOk, number)
                if number == 2:
                    self.client.call(m.TxSelect(), m.TxSelectOk, number)
                elif self.confirming:
                    self.client.call(m.ConfirmSelect(), m.ConfirmSelectOk, number)

    def do(self, kind: str, rest: Sequence[Any]) -> None:
        client = self.client
        match kind:
            case "publish":
                number, (exchange, key), properties, mandatory, bodies = rest
                for body in bodies:
                    method = m.BasicPublish(exchange, key, mandatory)
                    client.engine.send_content(number, method, properties, body)
            case "ack":
                for place in rest[0]:
                    tag = 1000 if place < 0 or place >= len(self.tags) else self.tags.pop(place)
                    client.engine.send_method(1, m.BasicAck(tag))
            case "consume":
                self.consumers += 1
                client.engine.send_method(1, m.BasicConsume(rest[0], f"c{self.consumers}"))
            case "get":
                client.engine.send_method(1, m.BasicGet(rest[0]))
            case "commit":
                client.engine.send_method(2, m.TxCommit())
            case "busy":
                self.kit.stopwatch.step = 1.0 - self.kit.stopwatch.step
            case "trace":
                set_tracing(self.kit.node, "/", self.kit.node.vhosts["/"].trace is None)
            case "time":
                self.kit.pass_time(5)
        client.pump()
        self.kit.node.batch.slices.finish()
        client.receive()

    def take(self) -> list[object]:
        """What the client got since the last look."""
        events, self.client.events = self.client.events, []
        for number, event in events:
            method = event.decode_method() if isinstance(event, Content) else event
            if number == 1 and isinstance(method, (m.BasicDeliver, m.BasicGetOk)):
                self.tags.append(method.delivery_tag)
        return [
            (number, event.decode_method(), event.properties, event.body)
            if isinstance(event, Content)
            else (number, event)
            for number, event in events
        ]


@given(steps, st.booleans(), st.booleans())
def test_the_same_is_said_and_kept(script: list[tuple[Any, ...]], confirming: bool, traced: bool) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        World(Path(folder, "grouped"), grouping=True, confirming=confirming) as grouped,
        World(Path(folder, "each"), grouping=False, confirming=confirming) as each,
    ):
        if traced:
            script.insert(0, ("trace",))
        for kind, *rest in script:
            answers = []
            for world in (grouped, each):
                world.do(kind, rest)
                answers.append(world.take())
            assert answers[0] == answers[1]
            for world in (grouped, each):
                world.prepare()
        assert contents(grouped) == contents(each)


def contents(world: World) -> dict[str, object]:
    """What each queue counts."""
    return {
        name: ({key: getattr(queue.counts, key) for key in queue.counts.__slots__}, queue.message_count)
        for name, queue in world.kit.node.vhosts["/"].queues.items()
    }
