"""A share of the bad days with the other tests; `python -m tests.spark.bad_days --rabbitmq` runs all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from harebell.errors import MissingDependency
from harebell.spark.runtime.java import find_java
from tests.spark.bad_days.days import CLUSTER_DAYS, DAYS, Scene
from tests.spark.bad_days.evidence import tally
from tests.spark.bad_days.stage import setting
from tests.spark.preloaded import Interpreters

MESSAGES = 1000
# The days that take seconds; the others are in the program only.
SHARE = ["task retried", "broker restarted", "connection cut", "queue missing", "wrong password", "large message"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, interpreters: Interpreters) -> Iterator[Scene]:
    try:
        find_java()
    except MissingDependency as error:
        pytest.skip(str(error))
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("days")
        yield setting(stack, "harebell", folder, cluster=False, python=str(interpreters.executable))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("day", SHARE)
def test_a_day_on_harebell(scene: Scene, day: str, tmp_path: Path) -> None:
    """From each kind of queue into Parquet; the program has the other sink too."""
    DAYS[day](replace(scene, folder=tmp_path, messages=MESSAGES, sinks=("parquet",)))


def test_the_share_is_of_days_that_there_are() -> None:
    assert set(SHARE) <= set(DAYS)
    assert not set(DAYS) & set(CLUSTER_DAYS)


def test_a_tally_sees_what_is_missing_doubled_or_renamed() -> None:
    whole = tally([(0, "a"), (1, "b")])
    assert whole.once(2) == ""
    assert "1 of 3 missing" in whole.once(3)
    assert "1 never published" in whole.once(1)
    doubled = tally([(0, "a"), (1, "b"), (1, "b")])
    assert doubled.once(2) == "1 rows too many"
    assert doubled.at_least_once(2) == ""
    assert "under 3 ids" in tally([(0, "a"), (1, "b"), (1, "c")]).at_least_once(2)
    assert "under 1 ids" in tally([(0, "a"), (1, "a")]).at_least_once(2)
