"""The HTML page: well formed, self-contained, complete, and safe against its data."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from warren.cli.flights import charts
from warren.cli.flights.counts import Group
from warren.cli.flights.report import page, write
from warren.cli.flights.run import Outcome

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Fails on tags that do not close in order; collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return checker


def outcome(**changes: object) -> Outcome:
    numbers = {"flights": 10, "cancelled": 1, "mean": 12.5, "median": -1, "p90": 60}
    whole = Outcome(
        broker="RabbitMQ <3.10>",
        spark="4.3.0",
        flights=20,
        seconds={"archive": 1.5},
        rates={"published and confirmed": 12345.6},
        groups=(Group("flights", (("asked for", 20), ("rows in Parquet", 20))),),
        triage={
            "total": [{"n": 2}],
            "reasons": [{"reason": "rejected", "queue": "flights.ops", "exchange": "flights", "n": 2}],
            "keys": [{"routing_key": "EWR.UA.IAH", "n": 2}],
            "months": [{"month": 1, "origin": "EWR", "n": 2}],
        },
        statistics={
            "carriers": [{"carrier": "UA", **numbers}, {"carrier": "AA", **numbers, "mean": -3.0}],
            "hours": [{"hour": 5, **numbers}, {"hour": 6, **numbers, "mean": None, "median": None, "p90": None}],
            "cells": [{"carrier": "UA", "hour": 5, "flights": 10, "mean": 12.5}],
        },
        alerts=[{"carrier": "UA", "day": "2013-01-02", "flights": 3, "mean_delay": 61.25}],
    )
    for name, value in changes.items():
        setattr(whole, name, value)
    return whole


NAMES = {"UA": "United <Air> & Co", "AA": "American Airlines Incorporated"}


def test_it_is_well_formed_and_fetches_nothing() -> None:
    html = page(outcome(), NAMES, "2026-01-01 10:00")
    checker = checked(html)
    tags = {tag for tag, _ in checker.tags}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?://|url\(|@import", html)
    assert not [name for _, attributes in checker.tags for name in attributes if name.startswith("on")]


def test_every_chart_has_a_title_a_description_and_a_table() -> None:
    checker = checked(page(outcome(), NAMES, "now"))
    svgs = [attributes for tag, attributes in checker.tags if tag == "svg"]
    ids = {attributes.get("id") for tag, attributes in checker.tags if tag in ("title", "desc")}
    assert len(svgs) == 5
    for attributes in svgs:
        assert attributes["role"] == "img"
        assert set((attributes["aria-labelledby"] or "").split()) <= ids
    captions = sum(tag == "caption" for tag, _ in checker.tags)
    assert captions >= len(svgs)
    assert len({attributes["aria-labelledby"] for attributes in svgs}) == len(svgs)


def test_the_numbers_are_there() -> None:
    text = " ".join(checked(page(outcome(), NAMES, "now")).text)
    for number in ("12,346/s", "12.5", "-3.0", "61.2", "EWR.UA.IAH", "rejected", "All counts agree"):
        assert number in text


def test_text_from_data_is_escaped() -> None:
    html = page(outcome(), NAMES, "now")
    assert "United &lt;Air&gt; &amp; Co" in html
    assert "RabbitMQ &lt;3.10&gt;" in html
    assert "<Air>" not in html


def test_a_disagreement_is_written() -> None:
    groups = (Group("flights", (("asked for", 20), ("rows in Parquet", 19))),)
    text = " ".join(checked(page(outcome(groups=groups), NAMES, "now")).text)
    assert "The counts do not agree: flights: 20 asked for, but 19 rows in Parquet" in text
    assert "NO" in text
    assert "All counts agree" not in text


def test_a_run_without_cancellations_or_alerts() -> None:
    empty = outcome(
        alerts=[],
        triage={"total": [{"n": 0}], "reasons": [], "keys": [], "months": []},
        statistics={"carriers": [], "hours": [], "cells": []},
    )
    checked(page(empty, NAMES, "now"))


def test_write(tmp_path: Path) -> None:
    write(tmp_path / "report.html", outcome())
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


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


def test_the_strongest_colour_is_for_the_greatest_value() -> None:
    cells = {("A", "1h"): (50.0, ""), ("A", "2h"): (-5.0, ""), ("B", "1h"): (25.0, "")}
    svg = charts.heat_map("t", "d", ["A", "B"], ["1h", "2h"], cells, "minutes")
    checked(svg)
    found = re.findall(r'fill-opacity="([\d.]+)"><title>([AB], \dh)', svg)
    opacity = {place: float(value) for value, place in found}
    assert opacity["A, 1h"] > opacity["B, 1h"] > opacity["A, 2h"]
