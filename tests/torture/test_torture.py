"""The short forms of the ordeals; `make torture` has the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.history import Verdict
from tests.torture.run import OPEN_FILES, churn, kills, soak

SEED = 1


def check(verdict: Verdict) -> None:
    assert verdict.breaches == [], f"\n{verdict}"
    assert verdict.figures["lost"] == 0
    for name in ("confirmed", "acknowledgements taken", "rejected", "rolled back", "stream reads"):
        assert verdict.figures[name] > 0, f"it did not do what it should: {verdict}"


@pytest.mark.slow
async def test_a_broker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    verdict = await kills(tmp_path, count=5, seed=SEED)
    check(verdict)
    assert verdict.figures["kills"] == 5
    for name in ("declared", "deleted", "looks at what is declared"):
        assert verdict.figures[name] > 0, f"it did not do what it should: {verdict}"
    assert verdict.figures["redeliveries, flagged"] > 0


@pytest.mark.slow
async def test_connections_that_are_cut_and_stalled_lose_nothing(tmp_path: Path) -> None:
    verdict = await churn(tmp_path, seconds=10.0, seed=SEED)
    check(verdict)
    assert verdict.figures["connections lost"] > 0


@pytest.mark.slow
async def test_a_heavy_client_loses_nothing(tmp_path: Path) -> None:
    verdict = await soak(tmp_path, seconds=15.0, seed=SEED)
    check(verdict)
    for name in ("kills", "heavy acts", "looks of the probe", "peak memory, MiB"):
        assert verdict.figures[name] > 0, f"it did not do what it should: {verdict}"
    assert 0 < verdict.figures["most open files"] <= OPEN_FILES
