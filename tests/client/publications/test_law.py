"""Every publication is told its end: each way to publish and each end, compared with what is in the queue.

With HAREBELL_LAW=all the policies are tried with every way, as `make torture` does, and otherwise with four.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from harebell.testing import RabbitMQ
from tests.client.publications.law import ENDS, POLICIES, Policy, run
from tests.client.publications.ways import WAYS, BlockingPublish, ProduceSoon, Publish, PublishMany, Transaction

CELLS: Final = [(way, end) for way, kind in WAYS.items() for end in ENDS if ENDS[end].meets(kind)]
OTHERS: Final[list[Policy]] = [policy for policy in POLICIES if policy != "raise"]
WITH_POLICIES: Final = [
    (way, end, policy)
    for way, end in CELLS
    for policy in OTHERS
    if WAYS[way].confirms and WAYS[way] is not Transaction
    if os.environ.get("HAREBELL_LAW") == "all" or WAYS[way] in (Publish, PublishMany, ProduceSoon, BlockingPublish)
]
# What needs no broker that is stopped, blocked or restarted for it.
ANYWHERE: Final = ("well", "cut", "cut while writing 150", "404 of another call", "404 of its own", "403 of its own",
                   "channel closed", "nacked", "returned", "404 of one in a transaction")  # fmt: skip
SAMPLE: Final = [
    (way, end, policy)
    for way, end in CELLS
    if WAYS[way] in (Publish, PublishMany, Transaction) and end in ANYWHERE
    for policy in POLICIES
    if policy == "raise" or (policy == "retry" and WAYS[way] is not Transaction)
]


@pytest.mark.repeats
@pytest.mark.parametrize("way, end", CELLS)
async def test_what_is_told_is_true(harebell_url: str, name: str, way: str, end: str) -> None:
    await run(WAYS[way], ENDS[end], "raise", harebell_url, name)


@pytest.mark.repeats
@pytest.mark.parametrize("way, end, policy", WITH_POLICIES)
async def test_what_becomes_of_it_is_what_the_policy_says(
    harebell_url: str, name: str, way: str, end: str, policy: Policy
) -> None:
    await run(WAYS[way], ENDS[end], policy, harebell_url, name)


@pytest.mark.parametrize("way, end, policy", SAMPLE)
async def test_it_is_true_on_rabbitmq(any_rabbitmq: RabbitMQ, name: str, way: str, end: str, policy: Policy) -> None:
    await run(WAYS[way], ENDS[end], policy, any_rabbitmq.url, name)
