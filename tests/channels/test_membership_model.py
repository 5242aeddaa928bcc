"""The short form of `membership_model`: some hundred steps of joining, leaving, cutting and killing."""

from __future__ import annotations

import random

from tests.channels.membership_model import run_model


async def test_members_get_what_is_sent_and_others_do_not(broker_url: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    outcome = await run_model(broker_url, steps=150, seed=seed)
    assert outcome.wrong == [], f"seed {seed}: {outcome.wrong}"
    assert outcome.delivered >= outcome.promised > 20
