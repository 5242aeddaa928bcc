"""Work in steps, done at once."""

from __future__ import annotations

import pytest

from harebell.routing.steps import Steps, complete


def test_all_steps_are_done_and_the_result_returned() -> None:
    done = []

    def work() -> Steps[str]:
        for number in range(3):
            done.append(number)
            yield
        return "done"

    assert complete(work()) == "done"
    assert done == [0, 1, 2]


def test_an_error_of_a_step_ends_it() -> None:
    def work() -> Steps[None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        complete(work())
