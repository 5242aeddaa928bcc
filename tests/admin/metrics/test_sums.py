"""The sums of all counts: in steps, and whatever comes and goes between two of them, no counter becomes smaller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harebell.admin.metrics.sums import STEP, Sums, summing
from harebell.admin.resources.objects import Operator
from harebell.broker import Broker
from harebell.broker.counts import AMQP010, AMQP091, QueueCounts
from harebell.broker.node import Node
from harebell.routing.steps import Steps, complete

QUEUES = 4 * STEP
GUEST = Operator("guest")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with QUEUES queues, to each of which one message was published."""
    async with Broker(port=0, data=tmp_path) as broker:
        vhost = broker.node.vhosts["/"]
        for number in range(QUEUES):
            vhost.declare_queue(
                GUEST, f"q{number}", durable=False, exclusive=False, auto_delete=False, arguments={}
            ).counts.publish += 1
        yield broker.node


def published(sums: Sums) -> int:
    return sums.queues[AMQP091, "classic"].publish


def begun(work: Steps[Sums], steps: int) -> Steps[Sums]:
    """The work, after so many steps."""
    for _ in range(steps):
        next(work)
    return work


async def test_queues_are_added_up_in_steps(node: Node) -> None:
    assert sum(1 for _ in summing(node, {})) >= QUEUES // STEP
    assert published(complete(summing(node, {}))) == QUEUES


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_queue_that_goes_meanwhile_counts_once(node: Node, steps: int) -> None:
    work = begun(summing(node, {}), steps)
    for number in range(0, QUEUES, 2):
        complete(node.vhosts["/"].deleting_queue(node.vhosts["/"].queues[f"q{number}"], user="guest"))
    assert published(complete(work)) == QUEUES
    assert published(complete(summing(node, {}))) == QUEUES


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
async def test_what_0_10_does_meanwhile_makes_no_counter_smaller(node: Node, steps: int) -> None:
    told: dict[str, QueueCounts] = {}
    last = 0
    for _ in range(3):
        work = begun(summing(node, told), steps)
        for queue in node.vhosts["/"].queues.values():
            queue.counts.deliver += 1
            node.lasting.amqp010["classic"].deliver += 1
        sums = complete(work)
        assert sums.queues[AMQP091, "classic"].deliver >= last
        last = sums.queues[AMQP091, "classic"].deliver
    assert last <= QUEUES, "only what came while it was added up counts for 0-9-1"
    assert complete(summing(node, told)).queues[AMQP010, "classic"].deliver == 3 * QUEUES
    assert complete(summing(node, {})).queues[AMQP091, "classic"].deliver == 0
