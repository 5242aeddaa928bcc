"""The short form of the churn; `make torture` has the long one."""

from __future__ import annotations

import pytest

from tests.client.churn import Churn

FIGURES = (
    "publications acked",
    "publications orphaned",
    "publications returned",
    "acknowledgements orphaned",
    "deliveries, redelivered",
    "given back",
    "acknowledged by workers",
)


@pytest.mark.repeats
async def test_a_client_that_is_cut_all_the_time_loses_nothing(broker_url: str) -> None:
    """Where a loss hits is chance: what one churn did not meet, the next ones do."""
    met: set[str] = set()
    for seed in range(1, 6):
        account = await Churn(broker_url, losses=120, seed=seed).run()
        assert account.breaches == [], f"\n{account}"
        assert account.figures["connections and channels lost"] >= 120
        met |= {figure for figure in FIGURES if account.figures[figure] > 0}
        if len(met) == len(FIGURES):
            return
    raise AssertionError(f"it did not do {set(FIGURES) - met}:\n{account}")
