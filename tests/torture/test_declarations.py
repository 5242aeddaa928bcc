"""The ledger of what is declared sees what a broker has lost, and what it has brought back."""

from __future__ import annotations

import pytest

from tests.torture.declarations import Ledger, Thing
from tests.torture.history import History

QUEUE: Thing = ("queue", "q")
USER: Thing = ("users", "u")


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def ledger(history: History) -> Ledger:
    ledger = Ledger(history)
    ledger.answered({QUEUE: "classic"})
    return ledger


def breaches(history: History) -> list[str]:
    return history.verdict().breaches


def test_what_was_answered_is_there(ledger: Ledger, history: History) -> None:
    ledger.found({QUEUE: "classic"})
    ledger.asked({QUEUE: None})
    ledger.answered({QUEUE: None})
    ledger.found({})
    assert breaches(history) == []
    assert ledger.value(QUEUE) is None


def test_a_declaration_that_is_lost(ledger: Ledger, history: History) -> None:
    ledger.found({})
    assert breaches(history) == ["queue q is None, but it may be ['classic']"]


def test_a_deletion_that_is_lost(ledger: Ledger, history: History) -> None:
    ledger.answered({QUEUE: None})
    ledger.found({QUEUE: "classic"})
    assert breaches(history) == ["queue q is classic, but it was deleted"]


@pytest.mark.parametrize("found", [{QUEUE: "classic"}, {}])
def test_what_was_not_answered_may_be_either(ledger: Ledger, history: History, found: dict[Thing, str]) -> None:
    ledger.asked({QUEUE: None})
    ledger.found(found)
    ledger.found(found)
    assert breaches(history) == []
    assert history.figures["unanswered, settled"] == 1
    ledger.found({} if found else {QUEUE: "classic"})
    assert len(breaches(history)) == 1, "it is settled now"


def test_another_value_and_a_thing_that_nobody_declared(ledger: Ledger, history: History) -> None:
    ledger.found({QUEUE: "stream", USER: "a"})
    assert breaches(history) == ["queue q is stream, but it may be ['classic']", "users u was never declared"]
