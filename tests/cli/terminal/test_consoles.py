"""Consoles show text of a broker as text: in lines, tables and bars."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from harebell.cli.listing import View, show_rows
from harebell.cli.terminal.consoles import new_console
from harebell.cli.terminal.display import Display

EVIL = "orders\x1b[2J\x1b]0;title\x07\x9b31m\u202e\x7f"


def test_a_line_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    console = new_console(width=200)
    table = Table("name", "text")
    table.add_row(EVIL, Text(EVIL))
    console.print(EVIL)
    console.print(table)
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert printed.count("orders\\x1b[2J") == 3


def test_no_text_is_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = "orders[bold].[/]"
    for variable, value in {"FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(variable, value)
    for _ in range(2):
        display = Display(new_console(width=200))
        display.say(name)
        display.console.print(name)
        with display.stage(name):
            pass
        with display.bars((name, 3, lambda: 3)):
            pass
        printed = capsys.readouterr().out
        assert printed.count("orders") == printed.count(name) >= 4
        monkeypatch.setenv("TERM", "dumb")  # no terminal that could move


def test_a_display(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(new_console(width=200))
    display.say(EVIL)
    with display.stage(EVIL):
        pass
    with display.bars((EVIL, 3, lambda: 3)):
        pass
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert printed.count("orders\\x1b[2J") == 3


def test_colours_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    new_console(width=100).print(Text("alarm", "red"), EVIL)
    printed = capsys.readouterr().out
    assert "\x1b[31malarm" in printed
    assert "\x1b[2J" not in printed


def test_lists_of_administration(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": EVIL, "tags": [EVIL], "limits": {EVIL: 1}}]
    for as_json in (False, True):
        show_rows(lambda: rows, ("name", "tags", "limits"), View(json=as_json))
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_a_display_that_moves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    display = Display(new_console(width=200))
    with display.stage(EVIL):
        pass
    with display.bars((EVIL, 3, lambda: 3)):
        pass
    printed = capsys.readouterr().out
    assert "orders\\x1b[2J" in printed
    assert "\x1b[2J" not in printed
    assert "\x1b]0;" not in printed
