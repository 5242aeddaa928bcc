"""Each way to consume, and each way in which that ends: what the program is told, and where each message is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.config import Limits
from harebell.testing import EmbeddedBroker
from tests.client.deliveries_law import TOLD, WAYS, Trial

ON_EACH_BROKER = ("the queue is deleted", "the queue is gone after an outage", "an exclusive consumer takes the queue "
                  "during an outage", "the connection is cut", "another call on the channel is refused")  # fmt: skip
"""Here the client depends on what a broker says, and when."""


@pytest.fixture(scope="module")
def restartable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder: Path = tmp_path_factory.mktemp("law")
    with EmbeddedBroker(lambda: Broker(data=folder)) as server:
        yield server


CASES = [(way, end) for end, told in TOLD.items() for way in WAYS if told[way] != "-"]


@pytest.mark.repeats
@pytest.mark.parametrize("way, end", CASES)
async def test_harebell(way: str, end: str, restartable: EmbeddedBroker, name: str) -> None:
    async def act(what: str) -> None:
        if what == "restart":
            await asyncio.to_thread(restartable.restart)
        else:
            limits = Limits(consumer_timeout=0.05 if what == "expire" else 1800.0)
            restartable.run(lambda broker: broker.node.set_limits(limits))

    await Trial(way, end, restartable.url, name, act).run()


@pytest.mark.parametrize("way, end", [case for case in CASES if case[1] in ON_EACH_BROKER])
async def test_rabbitmq(way: str, end: str, rabbitmq4: object, name: str) -> None:
    await Trial(way, end, rabbitmq4.url, name).run()  # type: ignore[attr-defined]
