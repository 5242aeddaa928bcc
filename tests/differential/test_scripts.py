"""The same script on Harebell and RabbitMQ: the same answers, or a row in the published table of differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.differential import differences
from tests.differential.delivery import CASES as DELIVERY_CASES
from tests.differential.driver import AGREE_SECONDS, Peer, await_outcome, run
from tests.differential.permissions import PERMISSION_CASES
from tests.differential.scripts import Case

Peers = Callable[..., tuple[Peer, Peer]]
CASES = (*DELIVERY_CASES, *PERMISSION_CASES)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_same_answers(case: Case, peers: Peers) -> None:
    ours, theirs = peers(case.steps, case.without)
    run(case.steps, ours, theirs, agree=0.3 if case.differs else AGREE_SECONDS)
    if not case.differs:
        assert ours.trace == theirs.trace
        return
    row = differences.rows()[case.differs]
    assert (await_outcome(theirs, row.rabbitmq), await_outcome(ours, row.harebell)) == (row.rabbitmq, row.harebell)
    assert ours.trace != theirs.trace, f"no difference any more: take the row {case.differs!r} out"


def test_every_difference_is_one() -> None:
    """The published table has a row for each difference that a script shows, and no other."""
    assert {case.differs for case in CASES if case.differs} == set(differences.rows())


def test_names_of_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
