"""The charts of docs/explanation/performance.md, drawn from their figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from benchmarks.figures import BYTES, Growth, Limit, exponent, least, limit_table, number, power
from tools.charts.svg import WIDTH, LogScale, Svg

__all__ = ["draw_growth", "draw_limit", "draw_peers", "peers"]

MARGIN: Final = 12
COLUMNS: Final = 2
GAP: Final = 20  # between two panels of a line
PANEL: Final = 132  # height of a panel, ...
PLOT: Final = (42, 108)  # ... and where its plot begins and ends
LEAST_TIMES: Final = 4.0  # of the scale of a panel, up and down
ROW: Final = 36  # height of a case
HEADER: Final = 64  # height of title and legend
OURS: Final = "harebell: CPU us each"
THEIRS: Final = "rabbitmq: CPU us each"
RATIO: Final = "CPU us each: better by"

Pair: TypeAlias = tuple[str, str, str]
"""Two figures of a case and their ratio, as a table shows them."""


def draw_growth(growth: Growth) -> str:
    """A panel for each curve: how many times the first point's cost per message each later point has."""
    curves = {name: least(curve["message"]) for name, curve in growth["curves"].items() if name != BYTES}
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    rows = -(-len(curves) // COLUMNS)
    svg = Svg("CPU per message, as one thing grows", HEADER + rows * PANEL)
    svg.text(MARGIN, 22, "CPU per message, as one thing grows", "strong")
    svg.text(MARGIN, 40, "From the first point to the last, in microseconds. Each grid", "small")
    svg.text(MARGIN, 55, "line is twice the one below; the first point is on the dark one.", "small")
    times = max([LEAST_TIMES, *(_spread(points) for points in curves.values())])
    width = (WIDTH - 2 * MARGIN - GAP * (COLUMNS - 1)) / COLUMNS
    for place, (name, points) in enumerate(curves.items()):
        x, y = MARGIN + place % COLUMNS * (width + GAP), HEADER + place // COLUMNS * PANEL
        _panel(svg, x, y, width, name, points, times)
    return svg.written()


def _spread(points: Mapping[int, float]) -> float:
    """How many times the first cost the furthest one is, up or down, as a power of two."""
    first, *rest = points.values()
    return 2.0 ** math.ceil(max(abs(math.log2(cost / first)) for cost in rest))


def _panel(svg: Svg, x: float, y: float, width: float, name: str, points: Mapping[int, float], times: float) -> None:
    title, _, more = name.partition(", ")
    svg.text(x, y + 14, title)
    svg.text(x, y + 29, more, "small")
    svg.text(x + width, y + 29, f"exponent {power(exponent(points))}", "small end")
    sizes, costs = list(points), list(points.values())
    top, bottom = y + PLOT[0], y + PLOT[1]
    height = LogScale(1 / times, times, bottom, top)
    step = -math.log2(times)
    while step <= math.log2(times):
        at = height(2.0**step)
        svg.line(x, at, x + width, at, "axis" if step == 0 else "grid")
        step += 1
    places = [x + 4 + (width - 8) * place / (len(sizes) - 1) for place in range(len(sizes))]
    svg.curve([(place, height(cost / costs[0])) for place, cost in zip(places, costs, strict=True)], "ours")
    svg.text(x, bottom + 16, f"{sizes[0]:,}: {number(costs[0])}", "small")
    svg.text(x + width, bottom + 16, f"{sizes[-1]:,}: {number(costs[-1])}", "small end")


def draw_limit(limit: Limit) -> str:
    """For each case the CPU of the kernel alone, and that of the broker."""
    rows = _columns(limit_table(limit), "limit", "harebell", "ratio")
    return _compared("CPU per message: the limit and Harebell", ("limit", "harebell"), ("least", "ours"), rows)


def peers(tables: Sequence[Sequence[Sequence[str]]]) -> dict[str, Pair]:
    """CPU us of Harebell and of RabbitMQ for each case of the tables that have both."""
    found: dict[str, Pair] = {}
    for table in tables:
        if OURS in table[0] and THEIRS in table[0]:
            found |= _columns(table, OURS, THEIRS, RATIO)
    return found


def draw_peers(rows: Mapping[str, Pair]) -> str:
    """For each case the CPU of Harebell, and that of RabbitMQ."""
    return _compared("CPU per message or operation", ("harebell", "rabbitmq"), ("ours", "theirs"), rows)


def _columns(table: Sequence[Sequence[str]], first: str, second: str, ratio: str) -> dict[str, Pair]:
    """Three columns of a table, by the words in its first one."""
    head, *rows = table
    one, two, three = head.index(first), head.index(second), head.index(ratio)
    return {row[0]: (row[one], row[two], row[three]) for row in rows}


def _figure(cell: str) -> float:
    return float(cell.replace(",", ""))


def _compared(
    title: str,
    names: tuple[str, str],
    styles: tuple[str, str],
    rows: Mapping[str, Pair],
) -> str:
    """Two dots for each row, on a logarithmic scale, and how many times the first one the second one is."""
    svg = Svg(title, HEADER + ROW * len(rows) + 24)
    svg.text(MARGIN, 22, title, "strong")
    at = float(MARGIN)
    for name, style in zip(names, styles, strict=True):
        svg.dot(at + 5, 40, style)
        svg.text(at + 15, 44, name, "small")
        at += 30 + 7 * len(name)
    svg.text(WIDTH - MARGIN, 44, "microseconds", "small end")
    costs = [_figure(cell) for first, second, _ in rows.values() for cell in (first, second)]
    low, high = 10.0 ** math.floor(math.log10(min(costs))), 10.0 ** math.ceil(math.log10(max(costs)))
    across, bottom = LogScale(low, high, MARGIN + 6, WIDTH - MARGIN - 6), HEADER + ROW * len(rows)
    mark = low
    while mark <= high * 1.01:
        svg.line(across(mark), HEADER - 8, across(mark), bottom, "grid")
        anchor = "" if mark == low else " end" if mark * 1.01 > high else " middle"
        svg.text(across(mark), bottom + 16, f"{mark:,.{2 if mark < 0.1 else 1 if mark < 1 else 0}f}", "small" + anchor)
        mark *= 10
    for place, (name, (first, second, ratio)) in enumerate(rows.items()):
        y, left, right = HEADER + ROW * place, across(_figure(first)), across(_figure(second))
        svg.text(MARGIN, y + 12, name)
        svg.text(WIDTH - MARGIN, y + 12, f"{first} / {second}: {ratio}", "small end")
        svg.line(left, y + 23, right, y + 23, "between")
        svg.dot(right, y + 23, styles[1])
        svg.dot(left, y + 23, styles[0])
    return svg.written()
