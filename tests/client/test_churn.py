"""The short form of the churn; `make torture` has the long one."""

from __future__ import annotations

from tests.client.churn import Churn


async def test_a_client_that_is_cut_all_the_time_loses_nothing(broker_url: str) -> None:
    account = await Churn(broker_url, losses=120, seed=1).run()
    assert account.breaches == [], f"\n{account}"
    for figure in (
        "publications acked",
        "publications orphaned",
        "publications returned",
        "acknowledgements orphaned",
        "deliveries, redelivered",
        "given back",
        "acknowledged by workers",
    ):
        assert account.figures[figure] > 0, f"it did not do what it should:\n{account}"
    assert account.figures["connections and channels lost"] >= 120
