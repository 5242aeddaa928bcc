"""The same requests to RabbitMQ's management plug-in and to Harebell: the same answers, but for a table."""

from __future__ import annotations

from pathlib import Path

from tests.differential.http_api.compare import differences
from tests.differential.http_api.conftest import Broker
from tests.differential.http_api.playing import play
from tests.differential.http_api.script import SCRIPT
from tests.differential.http_api.wanted import RIGHTS, WANTED

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "http-api.md"


def test_answers(ours: Broker, theirs: Broker, version: str) -> None:
    unwanted, met = list[str](), set[int]()
    for step, mine, others in zip(SCRIPT, play(ours, SCRIPT), play(theirs, SCRIPT), strict=True):
        for found in differences(mine, others, ordered="sort=" in step.path):
            wanted = [number for number, each in enumerate(WANTED) if each.allows(version, step.key, found)]
            met.update(wanted)
            if not wanted:
                unwanted.append(f"{step.key}: {found}")
    assert not unwanted, "\n".join(unwanted)
    stale = [
        each.difference
        for number, each in enumerate(WANTED)
        if each.always and version in each.versions and number not in met
    ]
    assert not stale, stale


def test_each_difference_is_documented() -> None:
    page = " ".join(PAGE.read_text("utf-8").split())
    assert [each.why for each in (*WANTED, *RIGHTS) if each.why not in page] == []
