"""The short forms of the ordeals; `make torture` has the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.history import Verdict
from tests.torture.run import OPEN_FILES, churn, kills, soak

SEED = 1


WORK = ("confirmed", "acknowledgements taken", "rejected", "rolled back", "stream reads")


def check(verdict: Verdict, wanted: tuple[str, ...]) -> None:
    assert verdict.breaches == [], f"\n{verdict}"
    assert verdict.figures["lost"] == 0
    for name in wanted:
        assert verdict.figures[name] > 0, f"it did not do what it should: {verdict}"


@pytest.mark.slow
async def test_a_broker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    wanted = (*WORK, "declared", "deleted", "looks at what is declared", "redeliveries, flagged")
    verdict = await kills(tmp_path, count=5, seed=SEED, wanted=wanted)
    check(verdict, wanted)
    assert verdict.figures["kills"] >= 5


@pytest.mark.slow
async def test_connections_that_are_cut_and_stalled_lose_nothing(tmp_path: Path) -> None:
    wanted = (*WORK, "connections lost")
    check(await churn(tmp_path, seconds=10.0, seed=SEED, wanted=wanted), wanted)


@pytest.mark.slow
async def test_a_heavy_client_loses_nothing(tmp_path: Path) -> None:
    wanted = (*WORK, "heavy acts", "looks of the probe")
    verdict = await soak(tmp_path, seconds=15.0, seed=SEED, wanted=wanted)
    check(verdict, (*wanted, "kills", "peak memory, MiB"))
    assert 0 < verdict.figures["most open files"] <= OPEN_FILES
