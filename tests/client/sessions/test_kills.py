"""The short form of the kills; `make torture` has the long one."""

from __future__ import annotations

import random

import pytest

from tests.client.sessions import kills, moves


@pytest.mark.slow
async def test_each_message_once_though_the_broker_is_killed() -> None:
    seed = random.randrange(1 << 30)
    figures = await kills.endured(3, seed)
    assert figures.good, f"{figures} (seed {seed})"
    assert figures.messages > 0


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True], ids=["branches", "transactions"])
async def test_each_message_is_moved_once_though_the_broker_is_killed(plain: bool) -> None:
    seed = random.randrange(1 << 30)
    figures = await moves.endured(4, seed, plain=plain)
    assert figures.good, f"{figures} (seed {seed})"
    assert figures.messages > 0
