"""Consoles of rich that names and texts of a broker cannot steer.

What is shown on them is printable (`harebell.cli.terminal.output`); colours and cursor movements of rich itself pass.
"""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from harebell.cli.terminal.output import line, lines

__all__ = ["add_row", "new_console"]


def new_console(*, stderr: bool = False, highlight: bool = False, width: int | None = None) -> Console:
    """A console on standard output or standard error. No text on it is markup: names of a broker have brackets."""
    console = Console(stderr=stderr, highlight=highlight, width=width, markup=False)
    console.push_render_hook(_Hook())
    return console


def add_row(table: Table, *cells: str) -> None:
    """Add a row of texts as they are: no line end of a name begins a line, and nothing in it is markup."""
    table.add_row(*(Text(line(each)) for each in cells))


class _Printable:
    """A renderable whose text is printable."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(lines(segment.text), segment.style)


class _Hook(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(each) for each in renderables]
