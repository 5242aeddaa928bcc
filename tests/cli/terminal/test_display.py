"""What the user sees: lines where there is no terminal, bars where there is one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harebell.cli.terminal.display import Display


def display(terminal: bool) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    return Display(Console(file=out, force_terminal=terminal, width=120, highlight=False)), out


def test_lines_without_a_terminal() -> None:
    shown, out = display(False)
    with shown.bars(("publish", 2000, lambda: 1000)):
        pass
    with shown.stage("think"):
        pass
    first, second = out.getvalue().splitlines()
    assert first.startswith("publish ")
    assert "1,000 of 2,000" in first
    assert second.startswith("think ")
    assert second.endswith(" s")
    assert "\x1b" not in out.getvalue()


def test_bars_on_a_terminal() -> None:
    shown, out = display(True)
    with shown.bars(("publish", 2000, lambda: 1000)):
        pass
    with shown.stage("think"):
        pass
    assert "\x1b" in out.getvalue()
    assert "1000/2000" in out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_passes_through(terminal: bool) -> None:
    shown, _ = display(terminal)
    with pytest.raises(KeyError), shown.bars(("publish", 1, lambda: 0)):
        raise KeyError
    with pytest.raises(KeyError), shown.stage("think"):
        raise KeyError
