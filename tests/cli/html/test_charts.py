"""Charts: their scales, their marks."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from harebell.cli.html import charts
from tests.cli.html.checker import checked


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


def test_a_ranking_has_its_numbers_and_room_for_names() -> None:
    text = charts.ranking("t", "<d>", [("<a>" * 60, 1234567), ("b", -617283.5), ("c", 0)], "messages")
    checked(text)
    assert re.findall(r"<b>([^<]*)</b>", text) == ["1,234,567", "-617,283.5", "0"]
    assert re.findall(r"<i( class=\"less\")? style=\"--part: ([\d.]+)%", text) == [
        ("", "100.0"), (' class="less"', "50.0"), ("", "0.0"),
    ]  # fmt: skip
    assert "…</span>" in text


def test_the_numbers_of_a_scale_have_room() -> None:
    for value in (5.0, 80_000.0, 3e9):
        svg = charts.lines("t", "d", ["x"], {"s": [value]}, "messages")
        checked(svg)
        for end, number in re.findall(r'<text x="([\d.]+)" [^>]*text-anchor="end" class="tick">([^<]*)<', svg):
            assert float(end) >= charts.LETTER * len(number), number
            assert "e" not in number


def drawings(made: str) -> dict[int, str]:
    """The drawings of a chart by their width."""
    checked(made)
    classes = re.findall(r'<div class="scroll (wide|narrow)"><svg viewBox="0 0 (\d+) ', made)
    assert classes == [("wide", str(charts.WIDTH)), ("narrow", str(charts.NARROW))]
    wide, narrow = made.split('<div class="scroll narrow">')
    return {charts.WIDTH: wide, charts.NARROW: narrow}


@pytest.mark.parametrize("kind", [charts.lines, charts.stacked])
@pytest.mark.parametrize("value", [1.0, 12_345_678.0])
@pytest.mark.parametrize("name", ["q", "a queue with a long name", "n" * 255])
@pytest.mark.parametrize("places", [1, 24, 240])
def test_a_chart_over_time_fits_its_screen(kind: Callable[..., str], value: float, name: str, places: int) -> None:
    at = [f"{n // 60:02}:{n % 60:02}" for n in range(places)]
    series = {f"{n}{name}": [value] * places for n in range(4)}
    for width, svg in drawings(kind("t", "d", at, series, "messages")).items():
        height = float(re.findall(r'viewBox="0 0 \d+ ([\d.]+)"', svg)[0])
        texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)<', svg)
        spans = []
        for x, y, anchor, text in texts:
            long = charts.LETTER * len(text)
            left = float(x) - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
            assert left >= -8, text
            assert left + long <= width + 4, text
            assert float(y) <= height
            spans.append((float(y), left, left + long))
        spans.sort()
        assert all(one[0] != other[0] or one[2] <= other[1] + 2 for one, other in pairwise(spans)), "texts overlap"
        for x, wide in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg):
            assert float(x) + float(wide) <= width


def test_a_legend_goes_on_below() -> None:
    names = {f"a queue with a long name {n}": [1.0] for n in range(4)}
    for width, lines in ((charts.WIDTH, 2), (charts.NARROW, 4)):
        svg = drawings(charts.lines("t", "d", ["x"], names, "messages"))[width]
        places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="start">a queue', svg)
        assert len({y for _, y in places}) == lines


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
