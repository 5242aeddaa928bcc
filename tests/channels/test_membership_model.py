"""The short form of `membership_model`: some hundred steps of joining, leaving, cutting and killing."""

from __future__ import annotations

import random

import pytest

from tests.channels.membership_model import run_model


async def test_members_get_what_is_sent_and_others_do_not(broker_url: str, request: pytest.FixtureRequest) -> None:
    """On RabbitMQ without outages: `make torture` has these, where there is time for all that its queues need."""
    seed = random.SystemRandom().randrange(2**32)
    outages = "rabbitmq" not in request.node.name
    outcome = await run_model(broker_url, steps=150, seed=seed, outages=outages)
    assert outcome.wrong == [], f"seed {seed}: {outcome.wrong}"
    assert outcome.delivered >= outcome.promised > 20
