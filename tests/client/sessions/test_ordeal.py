"""The short form of the ordeal; `make torture` has the long one."""

from __future__ import annotations

import random

import pytest

from tests.client.sessions.ordeal import endured


@pytest.mark.slow
async def test_each_message_once_whatever_happens_to_the_connection() -> None:
    seed = random.randrange(1 << 30)
    figures = await endured(4000, seed)
    assert figures.good, f"{figures} (seed {seed})"
    assert figures.connections > 3
