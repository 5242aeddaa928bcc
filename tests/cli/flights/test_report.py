"""The HTML page: well formed, self-contained, complete, and safe against its data."""

from __future__ import annotations

import re
from pathlib import Path

from harebell.cli.flights.counts import Group
from harebell.cli.flights.report import page, write
from harebell.cli.flights.run import Outcome
from tests.cli.html.checker import checked


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
            "reasons": [{"reason": "rejected", "queue": "flights.ops", "messages": 2, "first": None, "last": None}],
            "origins": [{"first_exchange": "flights", "first_key": "EWR.UA.IAH", "messages": 2}],
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
    narrow = [tag for tag, attributes in checker.tags if "narrow" in (attributes.get("class") or "")]
    assert len(svgs) - len(narrow) == 5
    for attributes in svgs:
        assert attributes["role"] == "img"
        assert set((attributes["aria-labelledby"] or "").split()) <= ids
    captions = sum(tag == "caption" for tag, _ in checker.tags)
    assert captions >= len(svgs) - len(narrow)
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
        triage={"total": [{"n": 0}], "reasons": [], "origins": [], "months": []},
        statistics={"carriers": [], "hours": [], "cells": []},
    )
    checked(page(empty, NAMES, "now"))


def test_write(tmp_path: Path) -> None:
    write(tmp_path / "report.html", outcome())
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
