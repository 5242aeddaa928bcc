"""Draws charts: horizontal bars, stacked columns, lines and a heat map as inline SVG; rankings as a list, which fits
any screen. Lines and columns are drawn twice, once for a phone: the page shows the one that fits.

Rules: a chart is text in, text out; it fetches nothing and runs nothing. Colours are CSS variables of the page, so that
one drawing serves light and dark. Every chart has a title and a description for readers who cannot see it, and every
mark has its number as a tooltip; the page has the same numbers as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import count
from typing import Final

__all__ = ["bars", "heat_map", "lines", "ranking", "stacked"]

WIDTH: Final = 720
NARROW: Final = 340  # the width of a chart on a phone
SERIES: Final = 4  # colours --c1 to --c4 of the page
MARGIN_LEFT: Final = 46
MARGIN_RIGHT: Final = 16
LETTER: Final = 6.6  # approximate pixels of a label's letter; where labels do not fit, some are left out
WIDEST: Final = 80  # pixels of a column
LONGEST: Final = 100  # letters of a ranking's label
DOTS: Final = 60  # places on an x axis up to which a line has a dot, with its number, at each

_numbers = count(1)


def _svg(title: str, description: str, height: float, parts: Sequence[str], css: str = "", width: int = WIDTH) -> str:
    number = next(_numbers)
    kind = " ".join(filter(None, ("scroll", css)))
    return (
        f'<div class="{kind}"><svg viewBox="0 0 {width} {height:g}" role="img" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{escape(title)}</title><desc id="d{number}">{escape(description)}</desc>'
        f"{''.join(parts)}</svg></div>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, tip: str, css: str, extra: str = "") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" class="{css}"{extra}>'
        f"<title>{escape(tip)}</title></rect>"
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="grid"/>'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About `about` round numbers that cover low to high, in steps of 1, 2 or 5 times a power of ten."""
    span = max(high - low, 1e-9)
    power = 10 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= about)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def bars(title: str, description: str, values: Sequence[tuple[str, str, float]], unit: str) -> str:
    """A horizontal bar for each (label, longer name, value); bars of negative values go to the left."""
    row, top, left = 26, 6, 184
    scale = ticks(min(0.0, *(value for *_, value in values)), max(0.0, *(value for *_, value in values)))
    low, high = scale[0], scale[-1]
    width = WIDTH - left - 56
    bottom = top + row * len(values)

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * width

    parts = []
    for tick in scale:
        parts += [_line(at(tick), top, at(tick), bottom), _text(at(tick), bottom + 16, _number(tick), "middle", "tick")]
    for index, (label, name, value) in enumerate(values):
        y = top + row * index
        start, end = sorted((at(0), at(value)))
        parts += [
            _text(left - 42, y + 17, name, "end", "name"),
            _text(left - 8, y + 17, label, "end", "label"),
            _rect(start, y + 4, end - start, row - 8, f"{name}: {value:.1f} {unit}", "c1"),
            _text(end + 6, y + 17, f"{value:.1f}", "start", "value"),
        ]
    parts.append(_text(left + width, bottom + 32, unit, "end", "tick"))
    return _svg(title, description, bottom + 38, parts)


def ranking(title: str, description: str, values: Sequence[tuple[str, float]], unit: str) -> str:
    """A bar below each label, for labels that may be long; the bars of negative values have another colour."""
    most = max((abs(value) for _, value in values), default=0) or 1
    less, items = ' class="less"', []
    for label, value in values:
        wide = max(100 * abs(value) / most, 0.2) if value else 0.0
        items.append(
            f'<li title="{escape(f"{label}: {_number(value)} {unit}")}">'
            f"<span>{escape(label if len(label) <= LONGEST else label[: LONGEST - 1] + '…')}</span>"
            f'<i{less if value < 0 else ""} style="--part: {wide:.1f}%"></i><b>{_number(value)}</b></li>'
        )
    return f'<ol class="ranking" aria-label="{escape(f"{title}. {description}")}">{"".join(items)}</ol>'


def _number(value: float) -> str:
    """A number with thousands separated, never as a power of ten."""
    return f"{value:,.12g}"


def _left(scale: Sequence[float]) -> float:
    """The x where the grid begins: to the right of the longest number of the scale."""
    return max(MARGIN_LEFT, 16 + 1.1 * LETTER * max(len(_number(tick)) for tick in scale))


def _fitting(draw: Callable[[int, str], str]) -> str:
    """A chart for wide and one for narrow screens; `draw` gets the width, and the class by which the page chooses."""
    return draw(WIDTH, "wide") + draw(NARROW, "narrow")


def _axis(at: Sequence[str], x: Callable[[int], float], y: float, width: int) -> list[str]:
    """The labels below a chart."""
    longest = LETTER * max(map(len, at), default=0) + 10
    every = max(1, math.ceil(longest * len(at) / (width - MARGIN_LEFT - MARGIN_RIGHT)))
    rightmost = width - longest / 2
    return [
        _text(min(x(index), rightmost), y, label, "middle", "tick")
        for index, label in enumerate(at)
        if index % every == 0
    ]


def _columns_frame(scale: Sequence[float], height: int, top: int, unit: str, width: int) -> list[str]:
    """The horizontal grid and its numbers, for a chart with vertical values."""
    left = _left(scale)
    parts = [_text(left - 8, top - 8, unit, "start", "tick")]
    for tick in scale:
        y = top + height * (1 - (tick - scale[0]) / (scale[-1] - scale[0]))
        parts += [_line(left, y, width - MARGIN_RIGHT, y), _text(left - 8, y + 4, _number(tick), "end", "tick")]
    return parts


def _legend(names: Sequence[str], left: float, y: float, width: int) -> tuple[list[str], float]:
    """The names with their colours, and the y of their last line."""
    parts, x = [], left
    room = int((width - left - 18) / 7.2)
    for index, whole in enumerate(names):
        name = whole if len(whole) <= room else whole[: room - 1] + "…"
        wide = 42 + 7.2 * len(name)
        if x > left and x + wide - 24 > width:
            x, y = left, y + 20
        parts += [
            f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" rx="2" class="c{index % SERIES + 1}"/>',
            _text(x + 18, y, name),
        ]
        x += wide
    return parts, y


def lines(title: str, description: str, at: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> str:
    """A line for each series over the same places on the x axis."""
    return _fitting(lambda *fit: _lines(title, description, at, series, unit, *fit))


def _lines(
    title: str, description: str, at: Sequence[str], series: Mapping[str, Sequence[float]], unit: str, width: int,
    kind: str,
) -> str:  # fmt: skip
    top, height = 24, 220
    everything = [value for values in series.values() for value in values]
    scale = ticks(min(0.0, *everything), max(everything))
    left = _left(scale)
    step = (width - left - MARGIN_RIGHT) / max(len(at), 1)

    def x(index: int) -> float:
        return left + step * (index + 0.5)

    def y(value: float) -> float:
        return top + height * (1 - (value - scale[0]) / (scale[-1] - scale[0]))

    parts = _columns_frame(scale, height, top, unit, width)
    parts += _axis(at, x, top + height + 18, width)
    for number, (name, values) in enumerate(series.items()):
        css = number % SERIES + 1
        points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
        parts.append(f'<polyline points="{points}" class="l{css}"/>')
        parts += [
            f'<circle cx="{x(index):.1f}" cy="{y(value):.1f}" r="3.2" class="c{css}">'
            f"<title>{escape(f'{name}, {at[index]}: {value:.1f} {unit}')}</title></circle>"
            for index, value in enumerate(values if len(at) <= DOTS else ())
        ]
    legend, bottom = _legend(list(series), left, top + height + 46, width)
    return _svg(title, description, bottom + 8, parts + legend, kind, width)


def stacked(title: str, description: str, at: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> str:
    """A column for each place on the x axis, the series one upon the other."""
    return _fitting(lambda *fit: _stacked(title, description, at, series, unit, *fit))


def _stacked(
    title: str, description: str, at: Sequence[str], series: Mapping[str, Sequence[float]], unit: str, width: int,
    kind: str,
) -> str:  # fmt: skip
    top, height = 24, 220
    scale = ticks(0, max(map(sum, zip(*series.values(), strict=True)), default=1) or 1)
    first = _left(scale)
    step = (width - first - MARGIN_RIGHT) / max(len(at), 1)
    parts = _columns_frame(scale, height, top, unit, width)
    base = [0.0] * len(at)
    for number, (name, values) in enumerate(series.items()):
        for index, value in enumerate(values):
            tall = height * value / scale[-1]
            y = top + height - base[index] - tall
            tip = f"{name}, {at[index]}: {_number(value)} {unit}"
            wide = min(step * 0.64, WIDEST)
            left = first + step * (index + 0.5) - wide / 2
            parts.append(_rect(left, y, wide, tall, tip, f"c{number % SERIES + 1}"))
            base[index] += tall
    parts += _axis(at, lambda index: first + step * (index + 0.5), top + height + 18, width)
    legend, bottom = _legend(list(series), first, top + height + 46, width)
    return _svg(title, description, bottom + 8, parts + legend, kind, width)


def heat_map(
    title: str, description: str, rows: Sequence[str], columns: Sequence[str],
    cells: Mapping[tuple[str, str], tuple[float, str]], unit: str,
) -> str:  # fmt: skip
    """A cell for each (row, column): (value, what the tooltip adds). The colour is strongest for the greatest value."""
    top, left, row = 24, 40, 24
    step = (WIDTH - left - MARGIN_RIGHT) / max(len(columns), 1)
    # The mean of a few flights can be extreme: the scale ends at the 98th percentile, and values beyond it look alike.
    ordered = sorted(value for value, _ in cells.values())
    strongest = max(ordered[math.ceil(0.98 * (len(ordered) - 1))], 1.0) if ordered else 1.0
    parts = [_text(left + step * (i + 0.5), top - 8, name, "middle", "tick") for i, name in enumerate(columns)]
    for y, name in enumerate(rows):
        parts.append(_text(left - 8, top + row * y + 16, name, "end", "label"))
        for x, column in enumerate(columns):
            if (name, column) in cells:
                value, more = cells[name, column]
                opacity = 0.06 + 0.94 * min(max(value, 0) / strongest, 1)
                tip = f"{name}, {column}: {value:.1f} {unit}{more}"
                place = (left + step * x + 1, top + row * y + 1, step - 2, row - 2)
                parts.append(_rect(*place, tip, "heat", f' fill-opacity="{opacity:.2f}"'))
                parts.append(
                    _text(
                        left + step * (x + 0.5), top + row * y + 16, f"{round(value)}", "middle",
                        "cell strong" if opacity > 0.55 else "cell",
                    )
                )  # fmt: skip
    return _svg(title, description, top + row * len(rows) + 6, parts)
