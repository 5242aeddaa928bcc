"""The figures of all queues together are the sums of those of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harebell.admin.metrics.queues import STEP, QueueFigures, adding
from harebell.admin.resources.objects import Operator
from harebell.broker import Broker
from harebell.broker.queues.base import Queue
from harebell.protocol.v091 import Properties, methods as m
from harebell.routing.steps import complete
from tests.admin.kit import ApiThread
from tests.wire import Wire

GUEST = Operator("guest")


def figures_of(queue: Queue, unacked: int, *, sized: bool = True) -> dict[str, int]:
    found = QueueFigures()
    found.add(queue, unacked, sized=sized)
    return values(found)


def values(figures: QueueFigures) -> dict[str, int]:
    return {name: getattr(figures, name) for name in QueueFigures.__slots__}


async def test_all_together(tmp_path: Path) -> None:
    async with Broker(port=0, data=tmp_path) as broker:
        for number in range(3 * STEP):
            broker.node.vhosts["/"].declare_queue(
                GUEST, f"q{number}", durable=number % 2 == 0, exclusive=False, auto_delete=False, arguments={}
            )
        queues = list(broker.node.vhosts["/"].queues.values())
        unacked = Counter({queues[0]: 3, queues[1]: 4})
        each = [figures_of(queue, unacked[queue]) for queue in queues]
        work = adding(queues, unacked)
        assert sum(1 for _ in work) == 3
        assert values(complete(adding(queues, unacked))) == {name: sum(one[name] for one in each) for name in each[0]}
        assert each[0]["persistent"] == 3
        assert each[1]["persistent"] == 0
        assert figures_of(queues[0], 3, sized=False) == dict.fromkeys(each[0], 0) | {"unacked": 3}


def test_the_pages_agree(own: ApiThread) -> None:
    """The sums of /metrics are those of the samples of /metrics/per-object, and of the tables of /metrics/detailed."""
    with Wire(own.port).log_in() as wire:
        wire.channel()
        for number in range(3):
            wire.call(1, m.QueueDeclare(f"q{number}", durable=number > 0), m.QueueDeclareOk)
            wire.publish("", f"q{number}", b"x" * 10, Properties(delivery_mode=2))
        wire.call(1, m.QueueDeclare("q0"), m.QueueDeclareOk)
        api = own.api()
        sums, each = (lines(api("GET", path).body) for path in ("/metrics", "/metrics/per-object"))
        tables = "family=queue_coarse_metrics&family=queue_consumer_count&family=queue_metrics"
        chosen = lines(api("GET", f"/metrics/detailed?{tables}").body)
    names = [name for name in each if name.startswith("rabbitmq_queue_")]
    assert len(names) == 14
    for name in names:
        assert sum(sums[name]) == sum(each[name]), name
        assert each[name] == chosen[name.replace("rabbitmq_", "rabbitmq_detailed_")], name
    assert each["rabbitmq_queue_messages_bytes"] == [10, 10, 10]
    assert each["rabbitmq_queue_messages_persistent"] == [0, 1, 1]


def lines(body: bytes) -> dict[str, list[float]]:
    """The values of each name."""
    found: dict[str, list[float]] = {}
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found.setdefault(name.partition("{")[0], []).append(float(value))
    return found
