"""The ledger of a redrive: what it remembers of runs that were killed, and for how long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.jobs.deadletters.ledger import FORGOTTEN, Ledger

A, B, C, D = (bytes([n]) * 16 for n in range(1, 5))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def killed(path: Path, clock: Clock) -> None:
    """A run that settled A, confirmed B (and could not settle it), began C, and saw D refused."""
    with Ledger(path, clock) as ledger:
        ledger.note("begun", [A, B, C, D])
        ledger.note("confirmed", [A, B])
        ledger.note("failed", [D])
        ledger.note("settled", [A])


def test_a_fresh_one_knows_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "new" / "ledger") as ledger:
        assert not ledger.was_redriven(A, identified=True)
        assert not ledger.was_begun(A)
        assert ledger.outstanding == 0


def test_what_a_killed_run_left(tmp_path: Path) -> None:
    path, clock = tmp_path / "ledger", Clock()
    killed(path, clock)
    for _ in range(2):  # reading it again changes nothing
        with Ledger(path, clock) as ledger:
            assert ledger.outstanding == 2
            assert [ledger.was_redriven(mark, identified=False) for mark in (A, B, B, C, D)] == [
                False, True, False, False, False,
            ]  # fmt: skip
            assert [ledger.was_begun(mark) for mark in (C, C, D, B)] == [True, False, False, False]


def test_what_is_settled_is_recognised_for_a_while_by_its_id(tmp_path: Path) -> None:
    path, clock = tmp_path / "ledger", Clock()
    killed(path, clock)
    with Ledger(path, clock) as ledger:
        assert not ledger.was_redriven(A, identified=False)
        assert ledger.was_redriven(A, identified=True)
        assert not ledger.was_redriven(A, identified=True)
    clock.now += FORGOTTEN + 1
    with Ledger(path, clock) as ledger:
        assert not ledger.was_redriven(A, identified=True)
        assert ledger.was_redriven(B, identified=True)


def test_equal_messages_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.note("begun", [A, A, A])
        ledger.note("confirmed", [A, A])
        ledger.note("settled", [A])
    with Ledger(path) as ledger:
        assert [ledger.was_redriven(A, identified=False) for _ in range(2)] == [True, False]
        assert [ledger.was_begun(A) for _ in range(2)] == [True, False]


def test_a_whole_pass_ends_the_memory_but_for_what_is_young(tmp_path: Path) -> None:
    path, clock = tmp_path / "ledger", Clock()
    killed(path, clock)
    with Ledger(path, clock) as ledger:
        ledger.finish()
        ledger.note("begun", [D])
    with Ledger(path, clock) as ledger:
        assert ledger.outstanding == 3
    clock.now += FORGOTTEN + 1
    with Ledger(path, clock) as ledger:
        ledger.finish()
    with Ledger(path, clock) as ledger:
        assert ledger.outstanding == 0
        assert path.read_text() == ""


def test_a_torn_line_was_not_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    killed(path, Clock())
    with path.open("a") as file:
        file.write('{"confirmed": ["' + C.hex())
    with Ledger(path, Clock()) as ledger:
        assert ledger.was_begun(C)
        ledger.note("begun", [A])
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("text", ["hello\n", '{"time": 1}\n', '{"begun": ["zz"], "time": 1}\n', "[]\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="not a redrive's ledger"):
        Ledger(path).__enter__()
    assert path.read_text() == text


def test_one_at_a_time(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger"), pytest.raises(InvalidArgument, match="another process"):
        Ledger(tmp_path / "ledger").__enter__()
    with Ledger(tmp_path / "ledger"):
        pass
