"""Consoles of rich that names and texts of a broker cannot steer.

What is shown on them is printable (`harebell.cli.terminal.output`); colours and cursor movements of rich itself pass.
"""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment

from harebell.cli.terminal.output import lines

__all__ = ["new_console"]


def new_console(*, stderr: bool = False, highlight: bool = False, width: int | None = None) -> Console:
    """A console on standard output or standard error."""
    console = Console(stderr=stderr, highlight=highlight, width=width)
    console.push_render_hook(_Hook())
    return console


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
