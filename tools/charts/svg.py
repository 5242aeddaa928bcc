"""A picture in SVG: shapes and words on a card, in the colours of the reader's scheme, light or dark.

The card is 400 units wide, so that words of 13 units can be read on a phone; wider screens show it larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["WIDTH", "LogScale", "Svg"]

WIDTH: Final = 400
SHOWN: Final = 560  # pixels, where there are so many

STYLE: Final = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.strong { font-weight: 600 }
.end { text-anchor: end }
.middle { text-anchor: middle }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #e3e8ed; fill: none }
.axis { stroke: #9aa4ae; fill: none }
.ours { fill: #2463c9; stroke: #2463c9 }
.theirs { fill: #c2571a; stroke: #c2571a }
.least { fill: #8a949e; stroke: #8a949e }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.between { stroke: #b9c2cb; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ec }
.small { fill: #a8b1ba }
.card { fill: #15181c; stroke: #3a414a }
.grid { stroke: #2a3038 }
.axis { stroke: #6b7580 }
.ours { fill: #79adff; stroke: #79adff }
.theirs { fill: #ffa06a; stroke: #ffa06a }
.least { fill: #8f99a3; stroke: #8f99a3 }
.between { stroke: #4a525c }
}
"""


class Svg:
    """A picture of that height, with a title for those who do not see it."""

    def __init__(self, title: str, height: int) -> None:
        self._height = height
        self._parts = [
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        ]

    def text(self, x: float, y: float, words: str, style: str = "") -> None:
        self._parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{_style(style)}>{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self._parts.append(f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"{_style(style)}/>')

    def curve(self, points: Sequence[tuple[float, float]], style: str) -> None:
        """A line through these points, with a dot at each."""
        joined = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{joined}" class="line {style}" fill="none" style="fill:none"/>')
        for x, y in points:
            self.dot(x, y, style, 3)

    def dot(self, x: float, y: float, style: str, radius: float = 5) -> None:
        self._parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"{_style(style)}/>')

    def bar(self, x: float, y: float, width: float, height: float, style: str) -> None:
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="2"{_style(style)}/>'
        )

    def written(self) -> str:
        size = f'width="{SHOWN}" height="{round(self._height * SHOWN / WIDTH)}" viewBox="0 0 {WIDTH} {self._height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return "\n".join([head, *self._parts, "</svg>", ""])


class LogScale:
    """Where a figure between `low` and `high` is, on a logarithmic scale from `start` to `end`."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._span = math.log(low), math.log(high) - math.log(low)
        self._start, self._end = start, end

    def __call__(self, figure: float) -> float:
        return self._start + (math.log(figure) - self._low) / self._span * (self._end - self._start)


def _style(style: str) -> str:
    return f' class="{style}"' if style else ""


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
