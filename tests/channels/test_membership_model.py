"""The short form of `membership_model`: some hundred steps of joining, leaving, cutting and killing."""

from __future__ import annotations

import random

import pytest

from tests.channels.membership_model import run_model


async def test_members_get_what_is_sent_and_others_do_not(request: pytest.FixtureRequest, broker_url: str) -> None:
    if "rabbitmq4" in request.node.name:
        reason = "once in ten runs on RabbitMQ 4.0 a member does not get a message, and nobody knows why yet"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    seed = random.SystemRandom().randrange(2**32)
    outcome = await run_model(broker_url, steps=150, seed=seed)
    assert outcome.wrong == [], f"python -m tests.channels.membership_model --seed {seed}"
    assert outcome.delivered >= outcome.promised > 20
