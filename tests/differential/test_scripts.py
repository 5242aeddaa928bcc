"""The same script on Harebell and RabbitMQ: the same answers, or a row in the published table of differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from harebell.testing.rabbitmq import RabbitMQ
from tests.differential import differences
from tests.differential.conftest import Pair
from tests.differential.delivery import CASES as DELIVERY_CASES
from tests.differential.driver import AGREE_SECONDS, DIFFERENT_SECONDS, Login, Peer, await_outcome, play_until_same, run
from tests.differential.not_utf8 import NOT_UTF8_CASES
from tests.differential.permissions import PERMISSION_CASES
from tests.differential.scripts import Case
from tests.fixtures.rabbitmq import VERSIONS

Peers = Callable[..., tuple[Peer, Peer]]
CASES = (*DELIVERY_CASES, *PERMISSION_CASES, *NOT_UTF8_CASES)


# RabbitMQ takes three seconds to refuse some of these.
LOGINS = [case for case in CASES if all(isinstance(step, Login) for step in case.steps)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case not in LOGINS])
def test_same_answers(case: Case, peers: Peers, version: str) -> None:
    def once() -> Pair:
        ours, theirs = peers(case.steps, case.without)
        play(case, ours, theirs, version)
        return ours, theirs

    ours, theirs = once() if wanted(case, version) != differences.SAME else play_until_same(once)
    check(case, ours, theirs, version)


@pytest.fixture(scope="module")
def played(harebell_port: int, peopled_rabbitmq: RabbitMQ, version: str) -> Iterator[dict[str, Future[Pair]]]:
    """The peers of each login, by its name; all log in at the same time."""

    def log_in(case: Case) -> Pair:
        ours, theirs = Peer(harebell_port, case.without), Peer(peopled_rabbitmq.port, case.without)
        stack.callback(ours.close)
        stack.callback(theirs.close)
        play(case, ours, theirs, version)
        return ours, theirs

    with ExitStack() as stack, ThreadPoolExecutor(len(LOGINS)) as pool:
        yield {case.name: pool.submit(log_in, case) for case in LOGINS}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in LOGINS])
def test_same_logins(case: Case, played: dict[str, Future[Pair]], version: str) -> None:
    check(case, *played[case.name].result(), version)


def play(case: Case, ours: Peer, theirs: Peer, version: str) -> None:
    run(
        case.steps,
        ours,
        theirs,
        agree=AGREE_SECONDS if wanted(case, version) == differences.SAME else DIFFERENT_SECONDS,
    )


def wanted(case: Case, version: str) -> str:
    """What RabbitMQ of that version does, in the words of the table."""
    return differences.rows()[case.differs].rabbitmq[version] if case.differs else differences.SAME


def check(case: Case, ours: Peer, theirs: Peer, version: str) -> None:
    said = wanted(case, version)
    if said == differences.SAME:
        assert ours.trace == theirs.trace
    if case.differs:
        harebell = differences.rows()[case.differs].harebell
        assert await_outcome(ours, harebell) == harebell
        if said != differences.SAME:
            assert await_outcome(theirs, said) == said
            assert ours.trace != theirs.trace, f"no difference from {version} any more: put `same` in {case.differs!r}"


def test_every_difference_is_one() -> None:
    """The published table has a row for each difference that a script shows, and no other."""
    assert {case.differs for case in CASES if case.differs} == set(differences.rows())


def test_every_row_has_a_version_that_differs() -> None:
    for row in differences.rows().values():
        assert tuple(row.rabbitmq) == VERSIONS, row
        assert set(row.rabbitmq.values()) != {differences.SAME}, row


def test_names_of_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
