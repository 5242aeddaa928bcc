"""No test replaces for all threads of its process how they wait: brokers and py4j have threads of their own there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOR_ALL = re.compile(
    r"""(?:setattr|patch|patch\.object)\(\s*["']?time(?:\.|,\s*["'])(?:sleep|monotonic|perf_counter)["']"""
)


@pytest.mark.parametrize(
    "line, found",
    [
        ('monkeypatch.setattr("time.sleep", sleep)', True),
        ('patch.setattr(time, "monotonic", now)', True),
        ('with patch("time.sleep"):', True),
        ("replace_time(monkeypatch, connecting, sleep=sleep)", False),
        ('monkeypatch.setattr("time.time_ns", now)', False),
    ],
)
def test_what_is_found(line: str, found: bool) -> None:
    assert bool(FOR_ALL.search(line)) is found


def test_no_test_replaces_the_waiting_of_every_thread() -> None:
    here = {Path(__file__), TESTS / "replaced_time.py"}
    found = [path for path in sorted(TESTS.rglob("*.py")) if path not in here and FOR_ALL.search(path.read_text())]
    assert found == []
