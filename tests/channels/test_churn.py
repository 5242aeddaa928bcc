"""The short form of `churn`: some seconds of coming, going, talking and cutting."""

from __future__ import annotations

from tests.channels.churn import churned


async def test_what_is_promised_arrives_once(broker_url: str) -> None:
    counts = await churned(broker_url, seconds=4, clients=20)
    assert counts.twice == []
    assert counts.lost == []
    assert counts.cuts > 3
    assert counts.delivered >= counts.promised > 20
    assert counts.unworked <= counts.uncertain <= 10 * counts.cuts
    assert counts.memberships == (0, 0)
