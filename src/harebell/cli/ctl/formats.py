"""The formats of rabbitmqctl: rows with tabs, JSON, CSV and a drawn table; and values as Erlang writes them.

Rules: a tab, a line end or an escape in a name is shown as an escape, where rabbitmqctl prints it as it is. The types
in arguments are those that the HTTP API can tell: a whole number is a long, a text a longstr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from harebell.cli.terminal.output import say_drawn, say_json, say_row
from harebell.printable import printable

__all__ = ["FORMATTERS", "show_rows"]

FORMATTERS: Final = ("table", "json", "csv", "pretty_table")
LONGEST: Final = 1 << 20  # characters of a cell
TABLES: Final = frozenset({"arguments", "client_properties", "definition_table"})
"""Columns that are tables of AMQP, which Erlang writes as lists of pairs."""


def show_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], formatter: str, *, headers: bool) -> None:
    """Print the rows; with `headers`, the first line names the columns."""
    match formatter:
        case "json":
            say_json([{name: _json(name, row[name]) for name in columns} for row in rows])
        case "csv":
            _csv(columns, rows, headers=headers)
        case "pretty_table":
            _drawn(columns, rows)
        case _:
            if headers and rows:
                say_row(columns, "\t")
            for row in rows:
                say_row([text_of(name, row[name]) for name in columns], "\t")


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, headers: bool) -> None:
    if headers:
        say_row(['"' + name + '"' for name in columns], ",")
    for row in rows:
        say_row([_quoted(text_of(name, row[name])) for name in columns], ",")


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def text_of(name: str, value: object) -> str:
    """A value as a row has it."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list() if name == "tags":
            return f"[{', '.join(map(str, value))}]"
        case dict() | list() if name in TABLES:
            return _term(value or [])
        case dict() | list():
            return _term(value)
    return str(value)


def _term(value: object) -> str:
    match value:
        case None:
            return "undefined"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return f"[{','.join(f'{{{_term(name)},{_term(each)}}}' for name, each in value.items())}]"
        case list():
            return f"[{','.join(map(_term, value))}]"
    return str(value)


def _json(name: str, value: object) -> object:
    if value is None:
        return ""
    if name in TABLES:
        return [[key, *_typed(each)] for key, each in (cast("dict[str, object]", value) or {}).items()]
    return value


def _typed(value: object) -> list[object]:
    """The type of AMQP, and the value in it."""
    match value:
        case bool():
            return ["bool", value]
        case int():
            return ["long", value]
        case float():
            return ["double", value]
        case dict():
            return ["table", [[key, *_typed(each)] for key, each in value.items()]]
        case list():
            return ["array", [_typed(each) for each in value]]
        case None:
            return ["void", None]
    return ["longstr", value]


def _drawn(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table in the line drawing characters of a VT100, whose letters stand for lines after ESC ( 0."""
    cells = [[printable(_shown(name, row[name]), LONGEST) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]

    def rule(left: str, middle: str, right: str) -> str:
        return f"\x1b(0{left}{middle.join('q' * (width + 2) for width in widths)}{right}\x1b(B"

    def line(texts: Sequence[str], *, bold: bool = False) -> str:
        bar = "\x1b(0x\x1b(B"
        padded = (
            f" {f'{chr(27)}[1m{text}{chr(27)}[0m' if bold else text}{' ' * (width - len(text))} "
            for text, width in zip(texts, widths, strict=True)
        )
        return f"{bar}{bar.join(padded)}{bar}"

    say_drawn(rule("l", "w", "k"))
    say_drawn(line(columns, bold=True))
    for row in cells:
        say_drawn(rule("t", "n", "u"))
        say_drawn(line(row))
    say_drawn(rule("m", "v", "j"))


def _shown(name: str, value: object) -> str:
    if name in TABLES:
        return "".join(
            f'{{<<"{key}">>,{kind},{f"<<{chr(34)}{each}{chr(34)}>>" if kind == "longstr" else _term(each)}}}'
            for key, kind, each in cast("list[tuple[str, str, object]]", _json(name, value or {}))
        )
    return text_of(name, value)
