"""Charts: their scales, their marks."""

from __future__ import annotations

import re

import pytest

from tests.cli.html.checker import checked
from warren.cli.html import charts


def test_ticks_are_round_and_cover_the_range() -> None:
    assert charts.ticks(0, 20.2) == [0, 5, 10, 15, 20, 25]
    assert charts.ticks(-3, 88) == [-20, 0, 20, 40, 60, 80, 100]
    for low, high in ((0, 0.004), (-1234, 5), (0, 1), (7, 7)):
        scale = charts.ticks(low, high)
        assert scale[0] <= low
        assert scale[-1] >= high
        assert len(scale) <= 8


def test_bars_to_both_sides() -> None:
    svg = charts.bars("t", "d", [("A", "a", 10.0), ("B", "b", -5.0)], "minutes")
    checked(svg)
    marks = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    (right, wide), (left, narrow) = ((float(x), float(width)) for x, width in marks)
    assert left + narrow == right, "both begin at zero"
    assert wide == pytest.approx(2 * narrow, abs=0.2)


def test_bars_to_the_left_alone() -> None:
    svg = charts.bars("t", "d", [("A", "a", -1.0)], "messages")
    checked(svg)
    assert "A" in svg


def test_the_strongest_colour_is_for_the_greatest_value() -> None:
    cells = {("A", "1h"): (50.0, ""), ("A", "2h"): (-5.0, ""), ("B", "1h"): (25.0, "")}
    svg = charts.heat_map("t", "d", ["A", "B"], ["1h", "2h"], cells, "minutes")
    checked(svg)
    found = re.findall(r'fill-opacity="([\d.]+)"><title>([AB], \dh)', svg)
    opacity = {place: float(value) for value, place in found}
    assert opacity["A, 1h"] > opacity["B, 1h"] > opacity["A, 2h"]
