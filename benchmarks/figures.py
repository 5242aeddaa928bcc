"""The figures of growth.py and limit.py: their files, exponents and tables. It measures nothing.

`growth_tables` and `limit_table` give rows of cells, the head first, and `markdown` writes them as a table. The page
docs/explanation/performance.md has these tables, and its test makes them again from the files in tools/charts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict

Row: TypeAlias = list[str]
Rounds: TypeAlias = dict[str, list[float]]
"""The figures of all rounds, by the size at which they were measured (a number, as JSON's keys are text)."""

MEGABYTE = 1 << 20
BYTES = "message size"  # the curve whose sizes are bytes
TENFOLD = math.log(9.99)
UNITS = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


class Curve(TypedDict):
    """What was measured while one thing grew. Empty: not measured.

    message: CPU us for each message; more: CPU us to make and remove one more; memory: bytes for each.
    """

    message: Rounds
    more: Rounds
    memory: Rounds


class Growth(TypedDict):
    """The file of growth.py."""

    machine: str
    broker: str
    curves: dict[str, Curve]


class Case(TypedDict):
    """The figures of all rounds of one case. CPU us for each message, and bytes that a read and a write had."""

    loopback: list[float]
    disk: list[float]
    harebell: list[float]
    read: list[float]
    write: list[float]


class Limit(TypedDict):
    """The file of limit.py."""

    machine: str
    cases: dict[str, Case]


def least(rounds: Rounds) -> dict[int, float]:
    """The least of each size, by size: other programs on the machine can only add to a cost."""
    return {int(size): min(figures) for size, figures in rounds.items()}


def middle(rounds: Rounds) -> dict[int, float]:
    """The median of each size, by size: a process's memory goes up and down by itself."""
    return {int(size): statistics.median(figures) for size, figures in rounds.items()}


def _told(each: Mapping[int, float]) -> dict[int, float]:
    """Of the bytes that each takes, by size, those that are MEGABYTE together: a process goes up and down by less."""
    return {size: bytes_each for size, bytes_each in each.items() if size * bytes_each >= MEGABYTE}


def exponent(points: Mapping[int, float]) -> float | None:
    """The slope of log cost over log size, by least squares; 0: flat, 1: linear. None where no size is TENFOLD another.

    Points whose size or cost is not above zero have no logarithm, and do not count.
    """
    logs = [(math.log(size), math.log(cost)) for size, cost in points.items() if size > 0 and cost > 0]
    places = [x for x, _ in logs]
    if not places or max(places) - min(places) < TENFOLD:
        return None
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def growth_tables(growth: Growth) -> list[list[Row]]:
    """CPU per message, CPU of one more, memory, and CPU by message size: those tables that have rows."""
    curves = {name: curve for name, curve in growth["curves"].items() if name != BYTES}
    tables = [
        _by_size("CPU us per message", {name: least(curve["message"]) for name, curve in curves.items()}),
        _by_size("CPU us for one more", {name: least(curve["more"]) for name, curve in curves.items()}),
        _by_size("bytes each", {name: _told(middle(curve["memory"])) for name, curve in curves.items()}),
    ]
    if BYTES in growth["curves"]:
        tables.append(_by_bytes(least(growth["curves"][BYTES]["message"])))
    return [table for table in tables if len(table) > 1]


def _by_size(title: str, points: Mapping[str, Mapping[int, float]]) -> list[Row]:
    sizes = sorted({size for each in points.values() for size in each})
    rows = [[title, *(f"{size:,}" for size in sizes), "exponent"]]
    for name, each in points.items():
        if not each:
            continue
        cells = [number(each[size]) if size in each else "" for size in sizes]
        rows.append([name, *cells, power(exponent(each))])
    return rows


def _by_bytes(costs: Mapping[int, float]) -> list[Row]:
    sizes = sorted(costs)
    per_byte = {size: costs[size] * 1000 / size for size in sizes}
    return [
        [BYTES, *map(in_bytes, sizes), "exponent"],
        ["CPU us per message", *(number(costs[size]) for size in sizes), power(exponent(costs))],
        ["CPU ns per byte", *(number(per_byte[size], 2) for size in sizes), power(exponent(per_byte))],
    ]


def limit_table(limit: Limit) -> list[Row]:
    rows = [["messages", "loopback", "disk", "limit", "harebell", "ratio", "bytes a read", "bytes a write"]]
    for name, case in limit["cases"].items():
        loopback, harebell = min(case["loopback"]), min(case["harebell"])
        disk = min(case["disk"]) if case["disk"] else 0.0
        rows.append(
            [
                name, number(loopback, 2), number(disk, 2) if disk else "", number(loopback + disk, 2),
                number(harebell, 2), f"{harebell / (loopback + disk):.1f}x",
                f"{statistics.median(case['read']):,.0f}", f"{statistics.median(case['write']):,.0f}",
            ]
        )  # fmt: skip
    return rows


def number(figure: float, digits: int = 1) -> str:
    """The figure with so many digits behind the point, none from 100 on."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.{digits}f}"


def power(slope: float | None) -> str:
    return "" if slope is None else f"{round(slope, 2) + 0.0:.2f}"  # + 0.0: no minus before a zero


def in_bytes(size: int) -> str:
    name, unit = next((name, unit) for name, unit in UNITS if size >= unit)
    return f"{size // unit} {name}"


def markdown(rows: Sequence[Row]) -> str:
    """A table in Markdown: the first column is words, the others are figures."""
    head, *_ = rows
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    rule = "|" + "|".join(
        "-" * (width + 2) if not column else "-" * (width + 1) + ":" for column, width in enumerate(widths)
    )
    lines = [
        "| "
        + " | ".join(
            f"{cell:>{w}}" if column else f"{cell:{w}}"
            for column, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    return "\n".join([lines[0], rule + "|", *lines[1:]])
