"""Printed text steers no terminal, whatever a broker calls its things."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.table import Table

import harebell.cli
from harebell.cli import main
from harebell.cli.terminal.consoles import add_row
from harebell.cli.terminal.output import say, say_json, say_lines

COMMANDS = Path(str(harebell.cli.__file__)).parent
EVIL = "orders\x1b[2J\x1b]0;title\x07\x9b31m\r\n\0\u202e\x7f"
TEXTS = st.one_of(st.just(EVIL), st.text(st.characters(exclude_categories=())))


@given(TEXTS)
def test_a_line_is_printable(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert say(text) == 0
    printed = capsys.readouterr().out
    assert printed[:-1].isprintable()
    assert printed.endswith("\n")


@given(TEXTS)
def test_cells_have_no_line_ends(text: str) -> None:
    table = Table()
    add_row(table, text, "[red]x")
    cells = [str(next(iter(column.cells))) for column in table.columns]
    assert all(cell.isprintable() for cell in cells)
    assert cells[1] == "[red]x"


@given(TEXTS, st.sampled_from([None, 2]))
def test_json_stays_json(capsys: pytest.CaptureFixture[str], text: str, indent: int | None) -> None:
    value = {"name": text, text: [text, 1]}
    assert say_json(value, indent=indent) == 0
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert json.loads(printed) == value


def test_what_is_printable_stays(capsys: pytest.CaptureFixture[str]) -> None:
    say("orders é 東")
    say_lines("a\nnext")
    say_json(["orders é 東"])
    assert capsys.readouterr().out == 'orders é 東\na\nnext\n["orders é 東"]\n'


def test_an_error_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.fail(f"no queue '{EVIL}'")
    assert "\x1b" not in (printed := capsys.readouterr().err)
    assert "no queue 'orders\\x1b[2J" in printed


def test_nothing_is_printed_another_way() -> None:
    for path in COMMANDS.rglob("*.py"):
        text, name = path.read_text(), path.relative_to(COMMANDS).as_posix()
        if name not in ("terminal/output.py", "entry.py"):  # `entry` loads nothing
            assert not re.search(r"(?<![\w.])print\(|stdout\.write|stderr\.write", text), f"{path}: use say"
        if name != "terminal/consoles.py":
            assert not re.search(r"(?<!\w)Console\(", text), f"{path}: use new_console"


def test_closed_standard_descriptors_lead_nowhere() -> None:
    code = (
        "import os\nfor each in (0, 1, 2): os.close(each)\n"
        "from harebell.cli.terminal.output import standard_streams\n"
        "with standard_streams('harebell'):\n"
        "    file = os.open('/', os.O_RDONLY)\n"
        "    ends = [os.fstat(each).st_rdev == os.stat(os.devnull).st_rdev for each in (0, 1, 2)]\n"
        "os._exit(0 if all(ends) and file > 2 else 3)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
