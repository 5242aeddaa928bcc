"""Charts: their scales, their marks."""

from __future__ import annotations

import re

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


def test_a_legend_goes_on_below() -> None:
    names = {f"a queue with a long name {n}": [1.0] for n in range(4)}
    svg = charts.lines("t", "d", ["x"], names, "messages")
    checked(svg)
    places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="start">a queue', svg)
    assert len({y for _, y in places}) == 2
    assert max(float(y) for _, y in places) < float(re.findall(r'viewBox="0 0 720 ([\d.]+)"', svg)[0])


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
