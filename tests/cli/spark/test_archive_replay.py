"""`warren spark archive` and `replay` without Spark: what is refused before anything starts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.administering import Command, runner
from warren.cli.spark.replay import Chosen, How
from warren.errors import InvalidArgument
from warren.spark.jobs.replay import Pace, Selection, Target


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def started(*arguments: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr("warren.cli.spark.archive.job", started)
    monkeypatch.setattr("warren.cli.spark.replay.job", started)
    return runner(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["archive", "box"], "warren: name the queues to archive, or say --compact or --verify\n"),
        (
            ["archive", "box", "q", "--every", "0s"],
            "warren: --every takes a time of more than nothing, such as 30s\n",
        ),
        (["replay", "box", "--header", "x"], "warren: --header takes NAME=VALUE, not 'x'\n"),
        (["replay", "box", "--speed", "fast"], "warren: --speed takes a number such as 10x, not 'fast'\n"),
        (["replay", "box", "--speed", "0x"], "warren: speed is 0.0, and must be more than 0\n"),
        (
            ["replay", "box", "--speed", "1x", "--rate", "5"],
            "warren: a replay goes at a rate or at a speed, not both\n",
        ),
        (
            ["replay", "box", "--resume", "one", "--key", "a.#"],
            "warren: --resume goes on with what was asked for at first: leave the other options out\n",
        ),
    ],
)
def test_one_clear_line(run: Command, arguments: list[str], text: str) -> None:
    result = run("spark", *arguments)
    assert (result.status, result.output, result.error) == (1, "", text)


@pytest.mark.parametrize(
    "arguments",
    [["archive"], ["archive", "box", "q", "--batch", "0"], ["replay", "box", "--rate", "0"],
     ["replay", "box", "--since", "yesterday"], ["replay", "box", "--limit", "0"]],
)  # fmt: skip
def test_values_that_are_none(run: Command, arguments: list[str]) -> None:
    assert run("spark", *arguments).status == 2


def test_options_of_a_replay() -> None:
    since = datetime(2026, 1, 5)
    chosen = Chosen(since=since, queue=("q",), key="a.#", header=("x=1=2", "y="), where="true", limit=3)
    assert chosen.selection() == Selection(since, None, ("q",), "a.#", (("x", "1=2"), ("y", "")), "true", 3)
    how = How(to_exchange="", to_key="q", mandatory=False, speed="2.5x")
    assert (how.target(), how.pace()) == (Target("", "q", False), Pace(None, 2.5))
    with pytest.raises(InvalidArgument):
        How(rate=1.0, speed="1").pace()


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    from warren.spark.jobs.replay import replay

    with pytest.raises(InvalidArgument, match="there is no archive in"):
        replay(None, "amqp://localhost/", tmp_path / "none")  # type: ignore[arg-type]
