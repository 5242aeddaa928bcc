"""Numbers that must agree."""

from __future__ import annotations

from harebell.cli.flights.counts import Group, agree

SAME = Group("flights", (("published", 1000), ("in the log", 1000)))
DIFFERENT = Group("flights", (("published", 1000), ("in the log", 999), ("rows", 1000), ("read", 2)))


def test_agreement() -> None:
    assert SAME.agrees
    assert SAME.difference == ""
    assert agree((SAME, SAME))


def test_disagreement_names_who_differs() -> None:
    assert not DIFFERENT.agrees
    assert DIFFERENT.difference == "1,000 published, but 999 in the log, 2 read"
    assert not agree((SAME, DIFFERENT))
