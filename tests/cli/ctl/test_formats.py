"""Values as rabbitmqctl's formats have them; what a client named cannot make a column or steer the terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harebell.cli.ctl.formats import show_rows

NESTED: dict[str, Any] = {"t": {"a": True, "b": [1, "x"], "c": None, "d": 1.5}}


def shown(capsys: pytest.CaptureFixture[str], row: dict[str, Any], formatter: str) -> list[str]:
    show_rows(list(row), [row], formatter, headers=False)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("row", "text"), [
    ({"a": None, "b": True, "c": 1}, "\ttrue\t1"), ({"tags": ["a", "b"]}, "[a, b]"), ({"tags": []}, "[]"),
    ({"arguments": {}}, "[]"), ({"name": "a\tb\nc\x1b"}, "a\\tb\\nc\\x1b"),
    ({"arguments": NESTED}, '[{"t",[{"a",true},{"b",[1,"x"]},{"c",undefined},{"d",1.5}]}]'),
    ({"definition": {"max-length": 1}}, '[{"max-length",1}]'),
])  # fmt: skip
def test_a_row(capsys: pytest.CaptureFixture[str], row: dict[str, Any], text: str) -> None:
    assert shown(capsys, row, "table") == [text]


def test_arguments_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = json.loads("".join(shown(capsys, {"arguments": NESTED, "policy": None}, "json")))
    typed = [
        ["a", "bool", True], ["b", "array", [["long", 1], ["longstr", "x"]]], ["c", "void", None], ["d", "double", 1.5],
    ]  # fmt: skip
    assert row == {"arguments": [["t", "table", typed]], "policy": ""}


def test_csv_without_headers(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"name": 'a"b', "messages": 1}, "csv") == ['"a""b","1"']


def test_a_drawn_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"name": "q\x1b", "messages": 10}, "pretty_table")
    assert lines[0] == "\x1b(0lqqqqqqqwqqqqqqqqqqk\x1b(B"
    bar = "\x1b(0x\x1b(B"
    assert lines[1] == f"{bar} \x1b[1mname\x1b[0m  {bar} \x1b[1mmessages\x1b[0m {bar}"
    assert lines[3] == f"{bar} q\\x1b {bar} 10       {bar}"
    assert lines[4] == "\x1b(0mqqqqqqqvqqqqqqqqqqj\x1b(B"
