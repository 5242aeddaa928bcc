"""Output of `harebell spark simulate` and `diff`: tables with few lines, numbers with their units, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from harebell.cli.files import write_file
from harebell.cli.terminal.consoles import new_console
from harebell.errors import InvalidArgument

__all__ = [
    "binding_text",
    "bytes_text",
    "count_text",
    "file_text",
    "listing",
    "right",
    "time_text",
    "wide_console",
]

WIDTH: Final = 140


def file_text(path: Path, text: str) -> None:
    """Write a file. Raises InvalidArgument when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}") from None


def wide_console() -> Console:
    """A console on standard output; wide enough for the tables if it is no terminal, which has no width."""
    console = new_console(highlight=True)
    return console if console.is_terminal else new_console(highlight=True, width=WIDTH)


def listing(*columns: str | Column) -> Table:
    """A table with no line but that below the headings. Texts are folded, never cut: names that are cut look alike."""
    folded = (Column(each, overflow="fold") if isinstance(each, str) else each for each in columns)
    return Table(*folded, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)


def right(name: str) -> Column:
    """A right-aligned column, for numbers."""
    return Column(name, justify="right", no_wrap=True)


def count_text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def binding_text(key: str, arguments: Mapping[str, object]) -> str:
    """A binding as text: its key, or the arguments of a headers binding: "x-match=all, haul=long"."""
    return ", ".join(filter(None, (key, *(f"{name}={value}" for name, value in arguments.items()))))


def bytes_text(number: float) -> str:
    """A number of bytes as text: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if number >= 100 or unit == "B" else f"{number:,.1f} {unit}"


def time_text(seconds: float | None) -> str:
    """A duration as text: "90 s", "12 min", "3.5 h"; a dash for never."""
    if seconds is None:
        return "never"
    for most, size, unit in ((120.0, 1, "s"), (7200.0, 60, "min"), (172_800.0, 3600, "h")):
        if seconds < most:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds / 86_400:,.1f} days"
