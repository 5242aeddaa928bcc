"""Lists: values as text, order, columns that objects lack, and a broker that is away for a while."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from harebell.cli.http_api.failures import NoAnswer
from harebell.cli.listing import View, cell, show_one, show_rows, show_table, value_at
from harebell.errors import InvalidArgument


@pytest.mark.parametrize(("value", "text"), [
    (None, ""), (True, "yes"), (False, "no"), (12345, "12345"), (1234.5, "1,234.5"), (2.0, "2"), (["a", 1], "a, 1"),
    ({"a": {"b": None}}, "a=b="), ("a\nb\x1b", "a\\nb\\x1b"),
])  # fmt: skip
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


def test_paths() -> None:
    row = {"a": {"b": {"c": 1}}, "x.y": 2}
    assert [value_at(row, path) for path in ("a.b.c", "x.y", "a.c", "a.b.c.d", "z")] == [1, 2, None, None, None]


def test_mixed_values_have_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": value} for value in ("x", 10, None, 9, True, ["l"])]
    assert show_rows(lambda: rows, ("a",), View(sort="a")) == 0
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[2:]] == ["", "yes", "9", "10", "l", "x"]


def test_figures_may_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(columns="name,message_stats.ack", json=True)
    assert show_rows(lambda: [{"name": "q"}], ("name", "message_stats.publish"), view) == 0
    assert '"message_stats.ack": null' in capsys.readouterr().out


ROWS = [
    {
        "name": "q",
        "vhost": "/",
        "queue": {"name": "q"},
        "arguments": {},
        "tags": [],
        "state": "up",
        "message_stats": {},
    },
    {"name": "r", "vhost": "v", "queue": {"name": "r"}, "arguments": {}, "tags": [], "state": "up"},
]
COLUMNS = ("vhost", "name", "queue.name", "message_stats.ack_details.rate")


@pytest.mark.parametrize(
    ("named", "says"),
    [("channel", "there are arguments, message_stats, name, queue"), ("nam", "did you mean 'name'"),
     ("queue.nope", "did you mean 'queue.name'"), ("state.nope", "there are no parts of it"), ("in/s", "there are"),
     ("message_stats.nope", "did you mean"), ("message_stats.ack.rate", "there are no"), ("queue.name.x", "there are"),
     ("message_stats.ack_details.rate.x", "did you mean"), ("tags.x", None), ("arguments.x", None),
     ("message_stats", None),
     ("message_stats.ack", None), ("ack/s", None), ("queue", None), ("vhost", None), ("queue.name", None)],
)  # fmt: skip
def test_columns_of_this_list(named: str, says: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    for view in (View(columns=f"name,{named}"), View(sort=named), View(columns=named, json=True)):
        if says is None:
            assert show_rows(lambda: ROWS, COLUMNS, view) == 0
        else:
            with pytest.raises(InvalidArgument, match=f"no column '{re.escape(named)}': {says}"):
                show_rows(lambda: ROWS, COLUMNS, view)
        assert show_rows(list, COLUMNS, view) == 0  # nobody knows what objects would have
    capsys.readouterr()


def test_a_column_that_is_not_shown_may_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(lambda: ROWS, COLUMNS, None, without=("vhost",))
    assert "vhost" not in capsys.readouterr().out
    show_rows(lambda: ROWS, COLUMNS, View(columns="vhost,queue", json=True), without=("vhost",))
    assert json.loads(capsys.readouterr().out) == [{"vhost": "/", "queue": "q"}, {"vhost": "v", "queue": "r"}]


def test_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    show_one({"name": "q", "arguments": {"a": 1}}, as_json=False)
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [["name", "q"], ["arguments", "a=1"]]


NAMES = ("q", "orders.of.the.day", "in B/s 3", "\u732b" * 20, "a" * 255, "", "x y " * 30)


@pytest.mark.parametrize("columns", [8, 20, 30, 35, 40, 50, 61, 80, 120, 400])
@pytest.mark.parametrize(
    "titles",
    [("vhost", "name", "type", "ready", "unacked", "consumers", "in/s", "out/s"), ("field", "value"), ("name",),
     ("vhost", "name", "pattern", "apply to", "definition", "priority"), ("in B/s", "out B/s")],
    ids=" ".join,
)  # fmt: skip
def test_a_terminal_of_any_width_shows_everything(
    titles: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    numbers = ("ready", "unacked", "consumers", "in/s", "out/s", "priority")
    rows = [[number if title in numbers else name for title in titles] for number, name in enumerate(NAMES)]
    show_table(titles, rows)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(cell_len(line) <= columns for line in shown.splitlines())
    if columns >= max(map(len, titles)) + 8:
        for title in titles:
            assert title in shown, "no title is folded"
    shown = "".join(shown.split())
    for each in {each for row in rows for each in map(str, row)}:
        for letter in each.replace(" ", ""):
            assert shown.count(letter) >= sum(str(value).count(letter) for row in rows for value in row)


def test_a_broker_that_comes_back(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def answers() -> Iterator[list[dict[str, object]]]:
        yield [{"name": "one"}]
        yield []
        yield [{"name": "two"}]
        raise KeyboardInterrupt

    arriving, asked = answers(), iter(range(10))

    def fetch() -> list[dict[str, object]]:
        found = next(arriving)
        if next(asked) == 1:
            raise NoAnswer("gone")
        return found

    monkeypatch.setattr("harebell.cli.listing.sleep", lambda seconds: None)
    with pytest.raises(KeyboardInterrupt):
        show_rows(fetch, ("name",), View(watch=1))
    shown = capsys.readouterr()
    assert [name in shown.out for name in ("one", "two")] == [True, True]
    assert shown.err.endswith("gone; trying again\n")


def test_no_broker_at_first() -> None:
    def fetch() -> list[dict[str, object]]:
        raise NoAnswer("nobody")

    with pytest.raises(NoAnswer):
        show_rows(fetch, ("name",), View(watch=1))
